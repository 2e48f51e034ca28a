"""Long translations of lines; what they share with other jobs that go on is test_resumable_jobs.py."""

import gzip
import os
import random
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from command_line import Outcome, assert_one_clear_line, heedful, text
from tiny_bundle import SOURCES

from heedful.bulk import resumable

pytestmark = pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="no kill -9")

LINES = [*SOURCES, "", "the dog", "sees the cat", *SOURCES[::-1], "the cat ?"] * 3 + [" ".join(SOURCES)]


@pytest.fixture(autouse=True)
def short_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("heedful.bulk.lines.CHUNK_LINES", 4)
    monkeypatch.setattr(resumable, "_SYNC_SHARE", 1e9)  # an entry after every chunk


@pytest.fixture
def files(tmp_path: Path) -> Path:
    (tmp_path / "in.txt").write_bytes(text(LINES))
    return tmp_path


def interrupted(run: Path, files: Path, *options: object, output: str = "out") -> Outcome:
    """Translate until a line that is not UTF-8, after 33 lines, and mend that."""
    good = (files / "in.txt").read_bytes()
    (files / "in.txt").write_bytes(text(LINES[:33]) + b"\xff\n" + text(LINES[34:]))
    outcome = heedful("translate", run, "-i", files / "in.txt", "-o", files / output, *options)
    (files / "in.txt").write_bytes(good)
    return outcome


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_translation_goes_on_after_the_last_chunk_on_the_disk(run: Path, files: Path) -> None:
    outcome = interrupted(run, files)
    assert_one_clear_line(outcome, 1, "line 34", "out.unfinished", "--resume")
    assert (files / "out.unfinished").read_bytes().count(b"\n") == 33
    (files / "twice.gz").write_bytes(
        gzip.compress(text(LINES))
    )  # the lines count, and not how they are stored
    outcome = heedful("translate", run, "-i", files / "twice.gz", "-o", files / "out", "--resume")
    assert outcome == Outcome(0, "", "resuming after line 32\n")
    expected = heedful("translate", run, stdin=text(LINES)).out
    assert (files / "out").read_text(encoding="utf-8") == expected
    assert names(files) == ["in.txt", "out", "twice.gz"]


def test_lines_keep_their_numbers(run: Path, files: Path) -> None:
    options = ["--n-best", 2, "--max-source-tokens", 40]
    assert interrupted(run, files, *options).code == 1
    whole = heedful("translate", run, "-i", files / "in.txt", "-o", files / "whole", *options)
    outcome = heedful("translate", run, "-i", files / "in.txt", "-o", files / "out", "--resume", *options)
    assert (files / "out").read_bytes() == (files / "whole").read_bytes()
    assert f"line {len(LINES)}: " in whole.err
    assert outcome.err == "resuming after line 32\n" + whole.err


def test_another_output_than_was_written_is_refused(run: Path, files: Path) -> None:
    interrupted(run, files)
    whole = (files / "out.unfinished").read_bytes()
    for changed in (whole[:100], b"X" + whole[1:]):
        (files / "out.unfinished").write_bytes(changed)
        outcome = heedful("translate", run, "-i", files / "in.txt", "-o", files / "out", "--resume")
        assert_one_clear_line(outcome, 1, "out.unfinished")


def test_prefixes_belong_to_the_input(run: Path, files: Path) -> None:
    prefixes = ["" if number % 3 else "der" for number, _ in enumerate(LINES)]
    (files / "prefix").write_bytes(text(prefixes))
    options = ["--prefix", files / "prefix"]
    interrupted(run, files, *options)
    (files / "prefix").write_bytes(text(["die", *prefixes[1:]]))
    arguments = ["-i", files / "in.txt", "-o", files / "out", "--resume"]
    assert_one_clear_line(heedful("translate", run, *arguments, *options), 1, "out: ")
    (files / "prefix").write_bytes(text(prefixes))
    assert heedful("translate", run, *arguments, *options).code == 0
    expected = heedful("translate", run, "-i", files / "in.txt", *options).out
    assert (files / "out").read_text(encoding="utf-8") == expected


def test_lines_of_an_earlier_run_are_left_alone(run: Path, files: Path) -> None:
    interrupted(run, files)
    before = (files / "out.unfinished").read_bytes()
    outcome = heedful("translate", run, "-i", files / "in.txt", "-o", files / "out")
    assert outcome.code == 0
    assert f"{files}/out.unfinished has 32 lines" in outcome.err
    assert (files / "out.unfinished").read_bytes() == before
    assert names(files) == ["in.txt", "out", "out.unfinished", "out.unfinished.json"]


@pytest.mark.parametrize("source", ["in.txt", "in.txt.gz", "-"])
def test_progress_is_shown_with_the_time_that_is_left(
    run: Path, files: Path, source: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("heedful.cli.streams._BETWEEN_LINES", 0.0)
    (files / "in.txt.gz").write_bytes(gzip.compress(text(LINES)))
    path = source if source == "-" else files / source
    outcome = heedful("translate", run, "-i", path, "-o", files / "out", stdin=text(LINES))
    left = "" if source == "-" else r" · \d+:\d\d left"
    shown = [re.fullmatch(rf"(\d+) lines · [\d,]+ tokens/s{left}", line) for line in outcome.err.splitlines()]
    assert [match and int(match[1]) for match in shown] == [*range(4, len(LINES), 4)]


@pytest.mark.parametrize("options", [[], ["-o", "-"], ["-o", "/dev/null"], ["-o", "out", "--line-buffered"]])
def test_only_a_file_can_be_resumed(run: Path, options: list[str]) -> None:
    assert_one_clear_line(heedful("translate", run, "--resume", *options), 2, "--resume needs --output")


# Kills runs after a random time, each a new process that goes on where the last one was; prints how many
# were killed and how many went on; a whole translation is compared, and the next one starts.
KILLED = """
import json, os, pathlib, random, signal, sys, time
from heedful.cli.main import main
from heedful.tasks import loading
from heedful.bulk import resumable
from heedful.bulk import lines
def start(*arguments):
    child = os.fork()
    if not child:
        sys.argv[1:] = arguments
        main()
    return child
folder, kills, rng = pathlib.Path(sys.argv[1]), int(sys.argv[2]), random.Random(50)
command = ["translate", sys.argv[3], "-i", str(folder / "in"), "--beam-size", "1", "-o"]
started = time.monotonic()
assert os.waitpid(start(*command, str(folder / "whole")), 0)[1] == 0
longest, killed = time.monotonic() - started, 0
manifest, went_on = folder / "out.unfinished.json", 0
while killed < kills:
    went_on += b'"lines"' in (manifest.read_bytes() if manifest.exists() else b"")
    child = start(*command, str(folder / "out"), "--resume")
    time.sleep(rng.uniform(0.0, longest))
    os.kill(child, signal.SIGKILL)
    status = os.waitpid(child, 0)[1]
    assert os.waitstatus_to_exitcode(status) in (0, -signal.SIGKILL)
    killed += os.waitstatus_to_exitcode(status) != 0
    if (folder / "out").exists():
        assert (folder / "out").read_bytes() == (folder / "whole").read_bytes()
        (folder / "out").unlink()
assert os.waitpid(start(*command, str(folder / "out"), "--resume"), 0)[1] == 0
print(killed, went_on)
"""


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_many_kills_at_any_moment_change_no_byte(run: Path, tmp_path: Path) -> None:
    """20 times on 10,000 lines; HEEDFUL_STRIKES is another number."""
    rng = random.Random(50)
    lines = [" ".join(rng.choices(SOURCES, k=rng.randint(1, 2))) for _ in range(10_000)]
    (tmp_path / "in").write_bytes(text(lines))
    kills = os.environ.get("HEEDFUL_STRIKES", "20")
    arguments = [sys.executable, "-c", KILLED, str(tmp_path), kills, str(run)]
    done = subprocess.run(arguments, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    killed, went_on = map(int, done.stdout.split())
    assert killed == int(kills)
    assert went_on > 0  # how many depends on how fast the machine is
    assert (tmp_path / "out").read_bytes() == (tmp_path / "whole").read_bytes()
    assert (tmp_path / "out").read_bytes().count(b"\n") == 10_000
