"""Long translations of lines; what they share with other jobs that go on is test_resumable_jobs.py."""

import gzip
import os
import random
import re
import signal
from pathlib import Path

import pytest
from command_line import Outcome, assert_one_clear_line, heedful, text
from struck_commands import struck
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


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="no kill -9")
def test_a_translation_killed_again_and_again_ends_in_the_same_bytes(run: Path, files: Path) -> None:
    """24 starts, each killed some calls of fsync after the last; HEEDFUL_STRIKES is another number."""
    rng = random.Random(50)
    command = ["translate", str(run), "-i", str(files / "in.txt"), "--beam-size", "1", "-o"]
    starts = int(os.environ.get("HEEDFUL_STRIKES", "24"))
    resumed = [*command, str(files / "out"), "--resume"]
    codes = struck([("fsync", rng.randint(2, 7), resumed) for _ in range(starts)])
    assert set(codes) <= {0, -signal.SIGKILL}
    assert codes.count(-signal.SIGKILL) > starts / 2
    for words in (resumed, [*command, str(files / "whole")]):
        assert heedful(*words).code == 0
    assert (files / "out").read_bytes() == (files / "whole").read_bytes()
