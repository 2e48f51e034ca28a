"""Shards: each is complete or absent, and one command, several, Ray and Spark write the same bytes."""

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
from pathlib import Path

import filelock
import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from command_line import Outcome, assert_one_clear_line, heedful, text
from ray_without_cluster import use_ray_without_cluster
from tiny_bundle import SOURCES, TARGETS

from heedful.storage.description import file_sha256

TRANSLATED = dict(zip(SOURCES, TARGETS, strict=True)) | {"": "", None: None}
TEXTS = [*SOURCES[:2], None, "", *SOURCES]


@pytest.fixture
def shards(tmp_path: Path) -> Path:
    """Two texts, one gzipped, and a Parquet file, in a folder with a hidden file."""
    folder = tmp_path / "in"
    folder.mkdir()
    (folder / "a.txt").write_bytes(text(SOURCES))
    (folder / "b.txt.gz").write_bytes(gzip.compress(text(SOURCES[::-1])))
    pq.write_table(pa.table({"id": range(len(TEXTS)), "text": TEXTS}), folder / "c.parquet")
    (folder / ".hidden").write_bytes(b"\xff")
    return folder


def translate(
    run: Path, shards: Path, *options: object, only: str | None = None, output: str = "out"
) -> Outcome:
    source = shards if only is None else shards / only
    return heedful("translate", run, "-i", source, "-o", shards.parent / output, *options)


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


def test_each_shard_is_translated_and_listed_with_its_checksums(run: Path, shards: Path) -> None:
    assert translate(run, shards) == Outcome(0, "", "shards translated: 3\n")
    out = shards.parent / "out"
    assert sorted(contents(out)) == ["a.txt", "b.txt.gz", "c.parquet", "manifest.json"]
    assert (out / "a.txt").read_bytes() == text(TARGETS)
    assert gzip.decompress((out / "b.txt.gz").read_bytes()) == text(TARGETS[::-1])
    expected = {
        "id": [*range(len(TEXTS))],
        "text": TEXTS,
        "translation": [TRANSLATED[each] for each in TEXTS],
    }
    assert pq.read_table(out / "c.parquet").to_pydict() == expected
    manifest = json.loads((out / "manifest.json").read_text(encoding="utf-8"))
    assert manifest["settings"]["precision"] == "float32"
    for name, lines in {"a.txt": 6, "b.txt.gz": 6, "c.parquet": len(TEXTS)}.items():
        record = manifest["parts"][name]
        assert record["lines"] == lines
        for which, folder in (("source", shards), ("output", out)):
            size = (folder / name).stat().st_size
            assert record[which] == {"bytes": size, "sha256": file_sha256(folder / name)}


def test_a_shard_that_cannot_be_read_leaves_the_others(run: Path, shards: Path) -> None:
    good = (shards / "b.txt.gz").read_bytes()
    assert translate(run, shards, output="whole").code == 0
    (shards / "b.txt.gz").write_bytes(good[:-9])
    assert_one_clear_line(translate(run, shards), 1, "in/b.txt.gz")
    out = shards.parent / "out"
    assert sorted(contents(out)) == ["a.txt", "c.parquet", "manifest.json"]
    before = (out / "a.txt").stat().st_mtime_ns
    (shards / "b.txt.gz").write_bytes(good)
    assert_one_clear_line(translate(run, shards), 1, "out: has translated shards; --resume goes on with them")
    assert translate(run, shards, "--resume").err == "shards translated: 1; 2 were done before\n"
    assert (out / "a.txt").stat().st_mtime_ns == before
    here, whole = contents(out), contents(shards.parent / "whole")
    manifests = [json.loads(each.pop("manifest.json")) for each in (here, whole)]
    assert here == whole
    assert manifests[0] == manifests[1]
    assert translate(run, shards, "--resume").err == "shards translated: 0; 3 were done before\n"


def test_what_is_done_is_known_by_checksums(run: Path, shards: Path) -> None:
    """Sizes and names say nothing: an output that has changed is written again, a shard is refused."""
    assert translate(run, shards).code == 0
    out, before = shards.parent / "out", contents(shards.parent / "out")
    source = (shards / "a.txt").read_bytes()
    (out / "a.txt").write_bytes(b"")
    (out / "b.txt.gz").write_bytes(bytes(len(before["b.txt.gz"])))
    assert translate(run, shards, "--resume").err == "shards translated: 2; 1 were done before\n"
    assert contents(out) == before
    (shards / "a.txt").write_bytes(source.replace(b"cat", b"dog"))
    assert_one_clear_line(translate(run, shards, "--resume"), 1, "in/a.txt")
    assert contents(out) == before


def test_objects_of_a_shard_are_those_of_its_file(run: Path, shards: Path) -> None:
    for only, output in (("*.txt", "shards"), ("a.txt", "alone")):
        assert translate(run, shards, "--json", only=only, output=output).code == 0
    assert (shards.parent / "shards" / "a.txt").read_bytes() == (shards.parent / "alone").read_bytes()


def test_an_interrupted_job_says_how_to_go_on(
    run: Path, shards: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("heedful.bulk.text_shards.TextShards._parquet", interrupted)
        assert_one_clear_line(translate(run, shards), 130, "interrupted", "--resume")
    assert translate(run, shards, "--resume").err == "shards translated: 1; 2 were done before\n"


def test_other_options_shards_and_folders_are_refused(run: Path, shards: Path) -> None:
    assert translate(run, shards).code == 0
    (shards / "d.txt").write_bytes(text(SOURCES))
    out = shards.parent / "out"
    outcome = translate(run, shards, "--resume", "--beam-size", 2)
    assert_one_clear_line(
        outcome, 1, "out: was written with strategy=BeamSearch(beam_size=4", "another --output"
    )
    outcome = translate(run, shards, "--resume", "--column", "id")
    assert_one_clear_line(outcome, 1, "out: was written with column=text", "another --output")
    (shards / "a.txt").write_bytes(text(SOURCES[:3]))
    assert_one_clear_line(translate(run, shards, "--resume"), 1, "in/a.txt")
    (out / "manifest.json").write_bytes(b"{}")
    assert_one_clear_line(translate(run, shards, "--resume"), 1, "out/manifest.json: damaged")
    (out / "manifest.json").unlink()
    assert_one_clear_line(translate(run, shards, "--resume"), 1, "out: has files, but no manifest.json")
    assert_one_clear_line(translate(run, shards, output="in"), 1, "in: is the input too")
    (shards.parent / "link").symlink_to(shards, target_is_directory=True)
    linked = translate(run, shards.parent / "link", "--overwrite", output="in")
    assert_one_clear_line(linked, 1, "in: is the input too")
    assert_one_clear_line(translate(run, shards, only="*.zip"), 1, "in/*.zip")
    assert_one_clear_line(translate(run, shards, "--json", output="2"), 2, "--json and --n-best are for text")
    assert_one_clear_line(heedful("translate", run, "-i", shards), 2, "shards need --input and --output")
    assert_one_clear_line(
        translate(run, shards, "--on", "mars", output="2"), 2, "--on mars: must be here or ray"
    )


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--column", "txt"], "has no column 'txt' (it has id, text); choose with --column"),
        (["--column", "id"], "the column 'id' is int64, not string"),
    ],
)
def test_a_parquet_file_needs_the_column(run: Path, shards: Path, options: list[str], message: str) -> None:
    assert_one_clear_line(translate(run, shards, *options, only="*.parquet"), 1, "in/c.parquet", message)


def test_a_damaged_parquet_file_leaves_the_other_shards(run: Path, shards: Path) -> None:
    whole = (shards / "c.parquet").read_bytes()
    for damaged in (b"PAR1", whole[:-100] + whole[-4:]):
        (shards / "c.parquet").write_bytes(damaged)
        assert_one_clear_line(translate(run, shards, only="c.parquet"), 1, "in/c.parquet")


def test_a_parquet_file_is_not_written_into_a_directory_of_its_name(run: Path, shards: Path) -> None:
    output = shards.parent / "out.parquet"
    outcome = heedful("translate", run, "-i", shards / "c.parquet", "-o", output)
    assert_one_clear_line(outcome, 2, "out.parquet")
    assert not output.exists()


def test_a_parquet_file_has_the_column_once(run: Path, shards: Path) -> None:
    texts = pa.array(SOURCES)
    pq.write_table(pa.Table.from_arrays([texts, texts], ["text", "text"]), shards / "c.parquet")
    outcome = translate(run, shards, only="c.parquet")
    assert_one_clear_line(outcome, 1, "in/c.parquet")


@pytest.mark.skipif(sys.platform != "linux", reason="file names are text")
def test_a_name_that_is_not_utf8_is_refused(run: Path, shards: Path) -> None:
    (shards / os.fsdecode(b"d\xff.txt")).write_bytes(text(SOURCES))
    message = f"{shards}/d\\xff.txt: the file's name is not UTF-8; rename it"
    assert_one_clear_line(translate(run, shards), 1, message)


def test_an_empty_path_is_no_directory(run: Path, shards: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(shards)
    for paths, option in ((("-i", "", "-o", "out"), "--input"), (("-i", "a.txt", "-o", ""), "--output")):
        assert_one_clear_line(heedful("translate", run, *paths), 2, f"{option}: the path is empty; give one")
    assert not (shards / "out").exists()


def test_what_is_translated_already_is_not_overwritten(run: Path, shards: Path) -> None:
    assert translate(run, shards, "--scores", only="c.parquet").code == 0
    assert pq.read_schema(shards.parent / "out" / "c.parquet").names == ["id", "text", "translation", "score"]
    again = heedful("translate", run, "-i", shards.parent / "out", "-o", shards.parent / "2")
    assert_one_clear_line(again, 1, "out/c.parquet")


def test_urls_are_those_of_fsspec(run: Path, shards: Path) -> None:
    fsspec = pytest.importorskip("fsspec")
    memory = fsspec.filesystem("memory")
    memory.put(str(shards), "/news", recursive=True)
    outcome = heedful("translate", run, "-i", "memory://news/*.*", "-o", "memory://translated")
    assert outcome.code == 0, outcome.err
    assert translate(run, shards).code == 0
    for name, content in contents(shards.parent / "out").items():
        assert memory.cat(f"/translated/{name}") == content
    unknown = heedful("translate", run, "-i", "nothing://news", "-o", shards.parent / "2")
    assert_one_clear_line(unknown, 1, "nothing://news: Protocol not known")


def test_processes_share_the_work(run: Path, shards: Path) -> None:
    """A shard that another process translates is waited for, and translated if that one dies."""
    out = shards.parent / "out"
    out.mkdir()
    other = filelock.FileLock(out / ".a.txt.lock")  # as one that is killed leaves it, but for the lock
    other.acquire()
    outcomes: list[Outcome] = []
    worker = threading.Thread(target=lambda: outcomes.append(translate(run, shards, "--resume")))
    worker.start()
    while not (out / "c.parquet").exists():
        assert worker.is_alive()
        time.sleep(0.01)
    assert not (out / "a.txt").exists()
    other.release()
    worker.join()
    assert outcomes[0].code == 0, outcomes
    assert sorted(contents(out)) == ["a.txt", "b.txt.gz", "c.parquet", "manifest.json"]


def test_a_worker_of_ray_writes_the_same_bytes_and_reports_a_damaged_shard(
    run: Path, shards: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_ray_without_cluster(monkeypatch)
    assert translate(run, shards, output="here").code == 0
    good = (shards / "b.txt.gz").read_bytes()
    (shards / "b.txt.gz").write_bytes(good[:-9])
    assert_one_clear_line(translate(run, shards, "--on", "ray"), 1, "in/b.txt.gz")
    (shards / "b.txt.gz").write_bytes(good)
    assert (
        translate(run, shards, "--on", "ray", "--resume").err == "shards translated: 1; 2 were done before\n"
    )
    here, there = (contents(shards.parent / each) for each in ("here", "out"))
    manifests = [json.loads(each.pop("manifest.json")) for each in (here, there)]
    assert there == here
    assert manifests[0] == manifests[1]


def _workers_of(process: psutil.Process) -> list[psutil.Process]:
    """The processes of Ray that translate shards."""
    with contextlib.suppress(psutil.Error):
        return [
            each for each in process.children(recursive=True) if "ShardWorker" in " ".join(each.cmdline())
        ]
    return []


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="no kill -9")
@pytest.mark.timeout(900)
def test_ray_writes_the_same_bytes_though_its_workers_are_killed(run: Path, tmp_path: Path) -> None:
    """Ten shards of a thousand lines; a worker is killed, then another."""
    pytest.importorskip("ray")
    rng = random.Random(22)
    (tmp_path / "in").mkdir()
    for number in range(10):
        lines = [" ".join(rng.choices(SOURCES, k=rng.randint(1, 3))) for _ in range(1000)]
        (tmp_path / "in" / f"{number}.txt").write_bytes(text(lines))
    assert heedful("translate", run, "-i", tmp_path / "in", "-o", tmp_path / "here").code == 0
    command = ["translate", str(run), "-i", str(tmp_path / "in"), "-o", str(tmp_path / "ray"), "--on", "ray"]
    process = psutil.Popen(
        [sys.executable, "-m", "heedful", *command], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    killed: set[int] = set()
    while process.poll() is None:
        workers = [each for each in _workers_of(process) if each.pid not in killed]
        if workers and len(killed) < 2:
            victim = rng.choice(workers)
            with contextlib.suppress(psutil.NoSuchProcess):
                victim.kill()
                killed.add(victim.pid)
        time.sleep(0.1)
    _, errors = process.communicate()
    assert process.returncode == 0, errors
    assert killed
    assert errors.endswith("shards translated: 10\n")
    here, there = contents(tmp_path / "here"), contents(tmp_path / "ray")
    manifests = [json.loads(each.pop("manifest.json")) for each in (here, there)]
    assert there == here
    assert manifests[0] == manifests[1]
