"""What commands write: checked before the work, whole or not at all, and never over what they read."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from queue import Queue
from threading import Thread
from typing import BinaryIO

import pytest
from command_line import Outcome, assert_one_clear_line, heedful, text
from tiny_bundle import SOURCES, TARGETS

from heedful.decoding.translator import Translator
from heedful.tasks import evaluate


@pytest.fixture
def files(tmp_path: Path) -> Path:
    """A source `s`, a reference `r`, and an output `old` of an earlier command."""
    (tmp_path / "s").write_bytes(text(SOURCES))
    (tmp_path / "r").write_bytes(text(TARGETS))
    (tmp_path / "old").write_bytes(b"precious\n")
    return tmp_path


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@pytest.fixture
def no_work(monkeypatch: pytest.MonkeyPatch) -> None:
    def translated(*_: object, **__: object) -> None:
        raise AssertionError("something was translated before the output was looked at")

    monkeypatch.setattr(Translator, "translations", translated)
    monkeypatch.setattr(Translator, "translate", translated)


@pytest.mark.usefixtures("no_work")
@pytest.mark.parametrize("verb", ["translate", "evaluate", "attention", "plot", "shortlist"])
def test_an_output_that_cannot_be_is_refused_before_the_work(verb: str, run: Path, files: Path) -> None:
    ending = {"attention": ".json", "plot": ".png"}.get(verb, "")
    commands: dict[str, list[object]] = {
        "translate": ["translate", run, "--input", files / "s"],
        "evaluate": ["evaluate", run, "--src", files / "s", "--ref", files / "r"],
        "attention": ["attention", run, SOURCES[0]],
        "plot": ["plot", run],
        "shortlist": ["shortlist", run, "--src", files / "s", "--tgt", files / "r"],
    }
    command = commands[verb]
    (files / f"folder{ending}").mkdir()
    (files / "closed").mkdir(mode=0o500)
    what = "already exists" if verb == "shortlist" else "is a directory"
    assert_one_clear_line(heedful(*command, "--output", files / f"folder{ending}"), 1, what)
    assert_one_clear_line(
        heedful(*command, "--output", files / "s" / f"out{ending}"), 1, f"out{ending}", "no directory"
    )
    slash = heedful(*command, "--output", f"{files}/new{ending}/")
    assert_one_clear_line(slash, 2, f"{files}/new{ending}/: is a directory; give the name of a file")
    if verb not in ("attention", "plot"):  # which make the directory
        missing = heedful(*command, "--output", files / "none" / "out")
        assert_one_clear_line(missing, 1, "there is no directory")
    if os.geteuid():
        closed = heedful(*command, "--output", files / "closed" / f"out{ending}")
        assert_one_clear_line(closed, 1, "permission denied")


@pytest.mark.usefixtures("no_work")
def test_evaluate_never_writes_over_what_it_reads(run: Path, files: Path) -> None:
    (files / "link").symlink_to(files / "r")
    (files / "twin").hardlink_to(files / "s")
    before = {name: (files / name).read_bytes() for name in ("s", "r")}
    for name in ("s", "r", "link", "twin"):
        args = ["evaluate", run, "--src", files / "s", "--ref", files / "r", "--ref", files / "link"]
        assert_one_clear_line(heedful(*args, "--output", files / "." / name), 1, "is the input too")
    assert {name: (files / name).read_bytes() for name in before} == before
    for name in ("s", "twin"):
        outcome = heedful("translate", run, "--input", files / "s", "--output", files / name)
        assert_one_clear_line(outcome, 1, "is the input too")


def test_evaluate_keeps_its_outputs_whatever_becomes_of_the_scores(
    run: Path, files: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(*_: object, **__: object) -> None:
        raise OSError("no score")

    monkeypatch.setattr(evaluate, "compare_systems", failing)
    args = ["evaluate", run, "--src", files / "s", "--ref", files / "r", "--output", files / "out"]
    assert heedful(*args).code == 1
    assert (files / "out").read_bytes() == text(TARGETS)


def test_an_output_is_there_when_it_is_complete(run: Path, files: Path) -> None:
    (files / "old").chmod(0o640)
    outcome = heedful("translate", run, "--input", files / "s", "--output", files / "old")
    assert outcome == Outcome(0, "", "")
    assert (files / "old").read_bytes() == text(TARGETS)
    assert (files / "old").stat().st_mode & 0o777 == 0o640
    assert names(files) == ["old", "r", "s"]


def test_what_an_error_ends_early_stays_beside_the_old_output(run: Path, files: Path) -> None:
    (files / "s").write_bytes(text(SOURCES[:2]) + b"\xff\n" + text(SOURCES))
    outcome = heedful("translate", run, "--input", files / "s", "--output", files / "old")
    assert_one_clear_line(outcome, 1, "line 3, byte 0: 0xff is not valid UTF-8", "old.unfinished")
    assert (files / "old").read_bytes() == b"precious\n"
    assert (files / "old.unfinished").read_bytes() == text(TARGETS[:2])
    (files / "old.unfinished").unlink()
    (files / "s").write_bytes(b"\xff\n")
    assert heedful("translate", run, "--input", files / "s", "--output", files / "old").code == 1
    assert names(files) == ["old", "r", "s"]


def test_a_link_and_a_device_stay_what_they_are(run: Path, files: Path) -> None:
    (files / "link").symlink_to(files / "old")
    args = ["translate", run, "--input", files / "s", "--output"]
    assert heedful(*args, files / "link").code == 0
    assert (files / "link").is_symlink()
    assert (files / "old").read_bytes() == text(TARGETS)
    assert heedful(*args, os.devnull).code == 0
    assert not Path(os.devnull).is_file()
    os.mkfifo(files / "pipe")
    found: list[bytes] = []
    reader = Thread(target=lambda: found.append((files / "pipe").read_bytes()))
    reader.start()
    assert heedful(*args, files / "pipe").code == 0
    reader.join(30)
    assert found == [text(TARGETS)]


def test_a_page_that_cannot_be_written_leaves_the_old_one(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "map.html"
    assert heedful("attention", run, SOURCES[0], "--output", path).code == 0
    before = path.read_bytes()
    replace: Callable[..., object] = Path.replace

    def failing(self: Path, target: Path) -> object:
        if Path(target).name == path.name:
            raise OSError(28, "No space left on device", str(target))
        return replace(self, target)

    monkeypatch.setattr(Path, "replace", failing)
    assert_one_clear_line(heedful("attention", run, SOURCES[1], "--output", path), 1, "map.html")
    assert path.read_bytes() == before


def lines_of(stream: BinaryIO) -> "Queue[bytes]":
    """The lines of a stream as they come."""
    queue: Queue[bytes] = Queue()
    Thread(target=lambda: [queue.put(line) for line in stream], daemon=True).start()
    return queue


def conversation(run: Path, *args: str, stdin: int | None = None) -> "subprocess.Popen[bytes]":
    command = [sys.executable, "-m", "heedful", "translate", str(run), *args]
    return subprocess.Popen(
        command, stdin=subprocess.PIPE if stdin is None else stdin, stdout=subprocess.PIPE
    )


@pytest.mark.slow
def test_line_buffered_answers_each_line_before_the_next_is_read(run: Path) -> None:
    with conversation(run, "--line-buffered", "--n-best", "2", "--json") as process:
        assert process.stdin is not None
        assert process.stdout is not None
        answers = lines_of(process.stdout)
        for source, target in zip(SOURCES, TARGETS, strict=True):
            process.stdin.write(text([source]))
            process.stdin.flush()
            assert json.loads(answers.get(timeout=60))["text"] == target
        process.stdin.close()
        assert process.wait(60) == 0


def test_a_terminal_is_answered_line_by_line(run: Path) -> None:
    pty = pytest.importorskip("pty")
    ours, theirs = pty.openpty()
    try:
        with conversation(run, "--input", "-", stdin=theirs) as process:
            assert process.stdout is not None
            answers = lines_of(process.stdout)
            for source, target in zip(SOURCES[:2], TARGETS, strict=False):
                os.write(ours, text([source]))
                assert answers.get(timeout=60) == text([target])
            os.write(ours, b"\x04")  # the end of the input
            assert process.wait(60) == 0
    finally:
        os.close(ours)
        os.close(theirs)


@pytest.mark.slow
def test_line_buffered_writes_a_file_as_it_goes(run: Path, files: Path) -> None:
    args = ["--line-buffered", "--output", str(files / "old")]
    with conversation(run, *args) as process:
        assert process.stdin is not None
        process.stdin.write(text(SOURCES[:1]))
        process.stdin.close()
        assert process.wait(60) == 0
    assert (files / "old").read_bytes() == text(TARGETS[:1])
    assert names(files) == ["old", "r", "s"]
