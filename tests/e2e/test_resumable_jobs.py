"""One resumable job behind four commands: killed or refused, it loses nothing and ends in the same bytes."""

import contextlib
import gzip
import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import filelock
import psutil
import pytest
from command_line import Outcome, assert_one_clear_line, heedful, text
from ray_without_cluster import use_ray_without_cluster
from struck_commands import assert_killed
from ten_pairs import as_options
from tiny_bundle import PAIRS, SOURCES, TARGETS, save_untrained
from translation_server import own_ray

from heedful.bulk.folders import folder_at
from heedful.runtime.durable import LOCK

LINES = [*SOURCES, "", "the dog", "sees the cat", *SOURCES[::-1], "the cat ?"] * 3 + [" ".join(SOURCES)]
TSV = "".join(f"{src}\t{tgt}\n" for src, tgt in PAIRS).encode()


@dataclass(frozen=True, kw_only=True)
class Job:
    """A command that works on the parts of `in` and can be resumed.

    Attributes:
        words: the command, without its output; IN is the input and RUN a model.
        parts: the contents of the files of the input; the first is done, the last one damaged.
        bad: the damaged content of the last one.
        other: options that change what is written.
        key: the name of what they change.
        manifest: the file that records what is done.
        moments: calls of functions of `os` at which the command is killed; the first two in quick tests.
    """

    words: Sequence[str]
    parts: Mapping[str, bytes]
    bad: bytes
    other: Sequence[str]
    key: str
    manifest: str
    moments: Sequence[tuple[str, int]]

    def write(self, folder: Path) -> None:
        (folder / "in").mkdir(exist_ok=True)
        for name, content in self.parts.items():
            (folder / "in" / name).write_bytes(content)

    def command(self, run: Path, folder: Path, *options: object, output: object = "out") -> list[str]:
        source = str(folder / "in")
        words = [word.replace("RUN", str(run)).replace("IN", source) for word in self.words]
        return [*words, "-o", str(folder / str(output)), *map(str, options)]

    def start(self, run: Path, folder: Path, *options: object, output: object = "out") -> Outcome:
        return heedful(*self.command(run, folder, *options, output=output))

    def fail(self, run: Path, folder: Path) -> Outcome:
        """Start with a damaged last part, and mend it."""
        last = [*self.parts][-1]
        (folder / "in" / last).write_bytes(self.bad)
        outcome = self.start(run, folder)
        self.write(folder)
        return outcome


PREPARE = ["prepare", "--pairs", "IN", "--preset", "tiny"]
PREPARE += as_options({"train.threads": 1, "tokenizer.vocab_size": 60, "tokenizer.bundle": "RUN"})
JOBS = {
    # fsync is of the manifest and its directory; for each of twelve chunks, of the output, of the manifest
    # and its directory; of the output and its directory. After 13 manifests the output is renamed.
    "lines": Job(
        words=["translate", "RUN", "-i", "IN/in.txt", "--json"],
        parts={"in.txt": text(LINES)},
        bad=text(LINES[:33]) + b"\xff\n" + text(LINES[34:]),
        other=["--beam-size", "2"],
        key="strategy=",
        manifest="out.unfinished.json",
        moments=[("fsync", 1), ("fsync", 38), ("fsync", 3), ("fsync", 4), ("replace", 14), ("unlink", 1)],
    ),
    "shards": Job(
        words=["translate", "RUN", "-i", "IN"],
        parts={"a.txt": text(SOURCES), "b.txt": text(SOURCES[:2]), "c.txt.gz": gzip.compress(text(SOURCES))},
        bad=gzip.compress(text(SOURCES))[:-9],
        other=["--beam-size", "2"],
        key="strategy=",
        manifest="out/manifest.json",
        moments=[("fsync", 3), ("fsync", 6), ("replace", 3)],
    ),
    "prepared": Job(
        words=PREPARE,
        parts={"a.tsv": TSV, "b.tsv": TSV * 2, "c.tsv": TSV * 3},
        bad=TSV + b"no tab\n",
        other=["--set", "data.max_length=20"],
        key="max_length=",
        manifest="out/manifest.json",
        moments=[("fsync", 12), ("replace", 8)],
    ),
    # Before, within and after the chunks of a document, and when the manifest and a copy are written.
    "documents": Job(
        words=["translate", "RUN", "--document", "IN", "--beam-size", "1"],
        parts={
            "a.html": b'<p class="x">the cat <b>sleeps</b> .</p>\n',
            "b.txt": text(SOURCES[:5]),
            "d.png": b"\x89PNG\r\n\x1a\n" + bytes(range(256)),
            "c.json": b'["the dog sleeps ."]',
        },
        bad=b'{"a": ',
        other=["--beam-size", "2"],
        key="strategy=",
        manifest="out/.manifest.json",
        moments=[("fsync", n) for n in (19, 28, 13, 23, 25, 27, 39)],
    ),
}
of_folders = pytest.mark.parametrize("name", ["shards", "prepared", "documents"])
of_shards = pytest.mark.parametrize("name", ["shards", "prepared"])


@pytest.fixture(autouse=True)
def short_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("heedful.bulk.lines.CHUNK_LINES", 4)
    monkeypatch.setattr("heedful.spans.pipeline._CHUNK", 2)
    monkeypatch.setattr("heedful.bulk.resumable._SYNC_SHARE", 1e9)  # an entry after every chunk


@pytest.fixture
def job(name: str, tmp_path: Path) -> Job:
    JOBS[name].write(tmp_path)
    return JOBS[name]


def contents(output: Path) -> dict[str, object]:
    """The files of an output, or what it is; manifests without the order of their parts."""
    files = [output] if output.is_file() else [path for path in output.rglob("*") if path.is_file()]
    found: dict[str, object] = {path.relative_to(output).as_posix(): path.read_bytes() for path in files}
    for name in [name for name in found if name.endswith("manifest.json")]:
        found[name] = json.loads((output / name).read_bytes())
    return found


def state(folder: Path) -> dict[str, object]:
    """All files but those of the input."""
    return {name: data for name, data in contents(folder).items() if not name.startswith("in/")}


@of_folders
def test_a_damaged_part_leaves_the_others(job: Job, run: Path, tmp_path: Path) -> None:
    last, out = [*job.parts][-1], tmp_path / "out"
    assert job.start(run, tmp_path, output="whole").code == 0
    outcome = job.fail(run, tmp_path)
    assert outcome.code == 1
    assert last in outcome.err.splitlines()[-1]
    done = {path: path.stat().st_ino for path in out.rglob("*") if path != tmp_path / job.manifest}
    assert len([path for path in done if path.is_file()]) >= len(job.parts) - 1
    assert_one_clear_line(job.start(run, tmp_path), 1, str(out), "--resume")
    resumed = job.start(run, tmp_path, "--resume")
    assert resumed.code == 0, resumed.err
    assert contents(out) == contents(tmp_path / "whole")
    assert {path: path.stat().st_ino for path in done if path.suffix != ".png"}.items() <= done.items()
    assert job.start(run, tmp_path, "--resume").code == 0
    assert contents(out) == contents(tmp_path / "whole")


@pytest.mark.parametrize("name", JOBS)
def test_other_settings_and_another_model_are_refused(job: Job, run: Path, tmp_path: Path) -> None:
    job.fail(run, tmp_path)
    other = save_untrained(tmp_path / "other")
    before = state(tmp_path)
    changed = job.start(run, tmp_path, "--resume", *job.other)
    assert_one_clear_line(changed, 1, str(tmp_path / "out"), job.key)
    if job.words != PREPARE:  # of a model, the ids depend on the vocabulary alone
        assert_one_clear_line(job.start(other, tmp_path, "--resume"), 1, str(tmp_path / "out"))
    assert state(tmp_path) == before


@pytest.mark.parametrize("name", JOBS)
def test_a_changed_input_is_refused(job: Job, run: Path, tmp_path: Path) -> None:
    job.fail(run, tmp_path)
    before, first = state(tmp_path), next(iter(job.parts))
    (tmp_path / "in" / first).write_bytes(job.parts[first].replace(b"cat", b"dog"))
    where = tmp_path / ("out" if first == "in.txt" else f"in/{first}")
    assert_one_clear_line(job.start(run, tmp_path, "--resume"), 1, f"{where}: ")
    assert state(tmp_path) == before


@of_folders
def test_a_changed_output_is_written_again(job: Job, run: Path, tmp_path: Path) -> None:
    """Sizes and names say nothing."""
    assert job.start(run, tmp_path).code == 0
    out, before = tmp_path / "out", contents(tmp_path / "out")
    first, second = sorted(path for path in out.iterdir() if path.name[0] in "ab")[:2]
    first.unlink()
    second.write_bytes(bytes(second.stat().st_size))
    assert job.start(run, tmp_path, "--resume").code == 0
    assert contents(out) == before


@pytest.mark.parametrize("name", JOBS)
def test_a_damaged_manifest_is_refused(job: Job, run: Path, tmp_path: Path) -> None:
    job.fail(run, tmp_path)
    manifest = tmp_path / job.manifest
    manifest.write_bytes(b'{"format_version": 2}')
    before = state(tmp_path)
    assert_one_clear_line(job.start(run, tmp_path, "--resume"), 1, str(manifest))
    assert state(tmp_path) == before


@of_folders
def test_an_output_with_other_files_or_in_the_input_is_refused(job: Job, run: Path, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "mine").touch()
    (tmp_path / "link").symlink_to(tmp_path / "in")
    before = contents(tmp_path)
    for options in ((), ("--resume",)):
        assert_one_clear_line(job.start(run, tmp_path, *options), 1, str(tmp_path / "out"))
    for output in ("in", "link"):
        assert_one_clear_line(job.start(run, tmp_path, output=output), 1, str(tmp_path / output))
    assert contents(tmp_path) == before


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no kill -9")
@pytest.mark.parametrize("moments", [slice(2), pytest.param(slice(2, None), marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", JOBS)
def test_a_killed_job_ends_in_the_same_bytes(job: Job, moments: slice, run: Path, tmp_path: Path) -> None:
    cases = {f"{function}-{number}": (function, number) for function, number in job.moments[moments]}
    if job is JOBS["lines"]:
        cases |= {f"{name}.gz": moment for name, moment in cases.items()}
    assert_killed([(*moment, job.command(run, tmp_path, output=name)) for name, moment in cases.items()])
    notices = ""
    for name in cases:
        whole, out = tmp_path / f"whole{Path(name).suffix}", tmp_path / name
        if not whole.exists():
            assert job.start(run, tmp_path, output=whole.name).code == 0
        complete = {} if out.is_file() else contents(out)
        for file in complete:
            if not file.startswith(".") and file != "manifest.json":
                assert complete[file] == contents(whole)[file]
        outcome = job.start(run, tmp_path, "--resume", output=name)
        assert outcome.code == 0, outcome.err
        assert contents(out) == contents(whole)
        notices += outcome.err
    assert ("resuming after" in notices) == (job in (JOBS["lines"], JOBS["documents"]))  # within a part
    assert {path.name for path in tmp_path.iterdir()} - {*cases, "whole", "whole.gz", "in"} <= {"cache"}


@pytest.mark.parametrize("name", JOBS)
def test_an_interrupted_job_says_how_to_go_on(
    job: Job, run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert job.start(run, tmp_path, output="whole").code == 0
    left, fsync = 8, os.fsync

    def interrupted(descriptor: int) -> None:
        nonlocal left
        left -= 1
        if not left:
            raise KeyboardInterrupt
        fsync(descriptor)

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", interrupted)
        outcome = job.start(run, tmp_path)
    assert (outcome.code, outcome.out) == (130, "")
    assert "--resume" in outcome.err.splitlines()[-1]
    assert job.start(run, tmp_path, "--resume").code == 0
    assert contents(tmp_path / "out") == contents(tmp_path / "whole")


@pytest.mark.parametrize("name", ["lines"])
def test_two_processes_do_not_write_one_file(job: Job, run: Path, tmp_path: Path) -> None:
    job.fail(run, tmp_path)
    with folder_at(str(tmp_path)).locked("out.unfinished"):
        assert_one_clear_line(job.start(run, tmp_path, "--resume"), 1, "out.unfinished")


@of_folders
def test_processes_share_the_parts(job: Job, run: Path, tmp_path: Path) -> None:
    """A part that another process has locked is waited for, and worked on if that process dies."""
    assert job.start(run, tmp_path, output="whole").code == 0
    first, *_, last = (part for part in job.parts if not part.endswith(".png"))
    (out := tmp_path / "out").mkdir()
    other = filelock.FileLock(out / f".{first}{LOCK}")  # as one that is killed leaves it, but for the lock
    other.acquire()
    outcomes: list[Outcome] = []
    worker = threading.Thread(target=lambda: outcomes.append(job.start(run, tmp_path, "--resume")))
    worker.start()
    while not any(path.name.startswith(last) for path in out.iterdir()):
        assert worker.is_alive()
        time.sleep(0.01)
    assert not any(path.name.startswith(first) for path in out.iterdir())
    other.release()
    worker.join()
    assert outcomes[0].code == 0, outcomes
    assert contents(out) == contents(tmp_path / "whole")


@of_shards
@pytest.mark.skipif(sys.platform != "linux", reason="file names are text")
def test_a_name_that_is_not_utf8_is_refused(job: Job, run: Path, tmp_path: Path) -> None:
    (tmp_path / "in" / os.fsdecode(b"d\xff.txt")).write_bytes(text(SOURCES))
    assert_one_clear_line(job.start(run, tmp_path), 1, f"{tmp_path}/in/d\\xff.txt")


@of_shards
def test_urls_are_those_of_fsspec(name: str, job: Job, run: Path, tmp_path: Path) -> None:
    memory = pytest.importorskip("fsspec").filesystem("memory")
    memory.put(str(tmp_path / "in"), f"/{name}", recursive=True)
    assert job.start(run, tmp_path).code == 0
    words = [word.replace("RUN", str(run)).replace("IN", f"memory://{name}/*.*") for word in job.words]
    outcome = heedful(*words, "-o", f"memory://{name}-out")
    assert outcome.code == 0, outcome.err
    for path in (tmp_path / "out").glob("[abc].*"):
        assert memory.cat(f"/{name}-out/{path.name}") == path.read_bytes()
    words = [word.replace("RUN", str(run)).replace("IN", "nothing://in") for word in job.words]
    assert_one_clear_line(heedful(*words, "-o", tmp_path / "2"), 1, "nothing://in")


@of_shards
def test_a_worker_of_ray_writes_the_same_bytes_and_reports_a_damaged_part(
    job: Job, run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_ray_without_cluster(monkeypatch)
    last = [*job.parts][-1]
    assert job.start(run, tmp_path, output="here").code == 0
    (tmp_path / "in" / last).write_bytes(job.bad)
    assert_one_clear_line(job.start(run, tmp_path, "--on", "ray"), 1, f"in/{last}")
    job.write(tmp_path)
    assert job.start(run, tmp_path, "--on", "ray", "--resume").code == 0
    assert contents(tmp_path / "out") == contents(tmp_path / "here")
    assert_one_clear_line(job.start(run, tmp_path, "--on", "mars", output="2"), 2, "mars")


# Runs a command on a cluster of its own with so many CPUs.
ON_RAY = """
import logging, sys, ray
from heedful.cli.main import main
cpus = int(sys.argv.pop(1))
ray.init(num_cpus=cpus, include_dashboard=False, log_to_driver=False, logging_level=logging.ERROR)
main()
"""


def workers_of(process: psutil.Process) -> list[psutil.Process]:
    """The processes of Ray that work on shards."""
    with contextlib.suppress(psutil.Error):
        children = process.children(recursive=True)
        return [each for each in children if "ShardWorker" in " ".join(each.cmdline())]
    return []


@of_shards
@pytest.mark.slow
@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="no kill -9")
@pytest.mark.timeout(3600)
def test_killed_workers_of_ray_change_no_byte(job: Job, run: Path, tmp_path: Path) -> None:
    """Eight large shards; a worker is killed, then another."""
    pytest.importorskip("ray")
    rng = random.Random(22)
    for part in job.parts:
        (tmp_path / "in" / part).unlink()
    for number in range(8):
        chosen = [
            rng.choices(range(len(PAIRS)), k=2) for _ in range(20_000 if job.words == PREPARE else 1000)
        ]
        sides = [[" ".join(side[each] for each in two) for two in chosen] for side in (SOURCES, TARGETS)]
        lines = ["\t".join(pair) for pair in zip(*sides, strict=True)] if job.words == PREPARE else sides[0]
        ending = "tsv" if job.words == PREPARE else "txt"
        (tmp_path / "in" / f"{number}.{ending}").write_bytes(text(lines))
    assert job.start(run, tmp_path, output="here").code == 0
    with own_ray():
        process = psutil.Popen(
            [sys.executable, "-c", ON_RAY, "2", *job.command(run, tmp_path, "--on", "ray")],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            env={**os.environ, "RAY_USAGE_STATS_ENABLED": "0"},
        )  # fmt: skip
    killed: set[int] = set()
    while process.poll() is None:
        alive = [each for each in workers_of(process) if each.pid not in killed]
        if alive and len(killed) < 2:
            victim = rng.choice(alive)
            with contextlib.suppress(psutil.NoSuchProcess):
                victim.kill()
                killed.add(victim.pid)
        time.sleep(0.05)
    _, errors = process.communicate()
    assert process.returncode == 0, errors
    assert killed
    assert contents(tmp_path / "out") == contents(tmp_path / "here")
