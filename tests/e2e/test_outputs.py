"""What commands write: each asks whether it may, before the work; files, pipes and streams of the shell."""

import gzip
import json
import os
import subprocess
import sys
from pathlib import Path
from queue import Queue
from threading import Thread
from typing import BinaryIO

import pytest
from command_line import Outcome, assert_one_clear_line, heedful, text
from tiny_bundle import SOURCES, TARGETS

from heedful.decoding.translator import Translator
from heedful.runtime.durable import claimed
from heedful.tasks import evaluate

on_posix = pytest.mark.skipif(sys.platform == "win32", reason="redirections are those of a POSIX shell")


@pytest.fixture
def files(tmp_path: Path) -> Path:
    """A source `s`, its translations `t`, and an output `old` of an earlier command."""
    (tmp_path / "s").write_bytes(text(SOURCES))
    (tmp_path / "t").write_bytes(text(TARGETS))
    (tmp_path / "old").write_bytes(b"precious\n")
    return tmp_path


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@pytest.mark.parametrize("verb", ["translate", "evaluate", "align", "attention", "plot", "shortlist"])
def test_a_bad_output_is_refused_before_the_work(
    verb: str, run: Path, files: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All reasons are in tests/unit/tasks/test_outputs.py."""
    for name in ("translations", "translate", "align"):
        monkeypatch.setattr(Translator, name, None)
    given: dict[str, list[object]] = {
        "translate": ["--input", files / "s"],
        "evaluate": ["--src", files / "s", "--ref", files / "t"],
        "align": ["--src", files / "s", "--tgt", files / "t"],
        "attention": [SOURCES[0]],
        "plot": [],
        "shortlist": ["--src", files / "s", "--tgt", files / "t"],
    }
    output = files / {"attention": "d.json", "plot": "d.png"}.get(verb, "d")
    output.mkdir()
    assert_one_clear_line(heedful(verb, run, *given[verb], "--output", output), 1, str(output))
    slash = heedful(verb, run, *given[verb], "--output", f"{output}/")
    assert_one_clear_line(slash, 2, f"{output}/")
    assert names(output) == []


COMMANDS_WITH_AN_OUTPUT = {
    "export": ["export", "{run}", "--to", "onnx", "--output", "{output}"],
    "import": ["import", "{run}/exported", "--output", "{output}"],
    "corrected text": ["inspect", "s", "t", "--fix", "{output}"],
    "memory": ["translate", "{run}", "--input", "s", "--output", "o", "--to-tmx", "{output}"],
    "report of terms": [
        *("translate", "{run}", "--input", "s", "--output", "o", "--glossary", "g.tsv"),
        *("--glossary-report", "{output}"),
    ],
    "text as it is written": [
        "translate",
        "{run}",
        "--line-buffered",
        "--input",
        "s",
        "--output",
        "{output}",
    ],
    "shortlist": ["shortlist", "{run}", "--src", "s", "--tgt", "t", "--output", "{output}"],
    "picture": ["attention", "{run}", SOURCES[0], "--output", "{output}.json"],
}


@pytest.mark.parametrize("output", COMMANDS_WITH_AN_OUTPUT)
def test_an_output_that_another_process_is_writing_is_refused(
    output: str, run: Path, files: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`translate --output` alone has a name of its own until the end, since it can be resumed."""
    monkeypatch.chdir(files)
    (files / "g.tsv").write_text("cat\tKatze\n")
    command = [part.format(run=run, output="new") for part in COMMANDS_WITH_AN_OUTPUT[output]]
    path = Path("new.json" if "new.json" in command else "new")
    before = names(files)
    with claimed(path):
        outcome = heedful(*command)
    assert (outcome.code, f"{path}: another process is writing it" in outcome.err) == (1, True), outcome
    assert {*names(files)} - {*before} <= {"o"}


def test_evaluate_keeps_its_outputs_if_the_scores_fail(
    run: Path, files: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(*_: object, **__: object) -> None:
        raise OSError("no score")

    monkeypatch.setattr(evaluate, "compare_systems", failing)
    args = ["evaluate", run, "--src", files / "s", "--ref", files / "t", "--output", files / "out"]
    assert heedful(*args).code == 1
    assert (files / "out").read_bytes() == text(TARGETS)


@pytest.mark.parametrize("name", ["old", "old.gz"])
def test_an_output_replaces_the_old_one_when_it_is_complete(run: Path, files: Path, name: str) -> None:
    read = gzip.decompress if name.endswith(".gz") else bytes
    output, unfinished = files / name, files / f"{name}.unfinished"
    output.write_bytes(b"precious\n")
    command = ["translate", run, "--input", files / "s", "--output", output]
    before = names(files)

    (files / "s").write_bytes(text(SOURCES[:2]) + b"\xff\n" + text(SOURCES))
    assert_one_clear_line(heedful(*command), 1, "line 3", str(unfinished))
    assert (output.read_bytes(), read(unfinished.read_bytes())) == (b"precious\n", text(TARGETS[:2]))
    unfinished.unlink()
    (files / "s").write_bytes(b"\xff\n")
    assert heedful(*command).code == 1
    assert names(files) == before

    (files / "s").write_bytes(text(SOURCES))
    assert heedful(*command) == Outcome(0, "", "")
    assert read(output.read_bytes()) == text(TARGETS)
    assert names(files) == before


def test_links_stay_links_and_devices_devices(run: Path, files: Path) -> None:
    (files / "link").symlink_to(files / "old")
    (files / "loop").symlink_to(files / "loop")
    for output in (files / "link", files / "loop", os.devnull):
        assert heedful("translate", run, "--input", files / "s", "--output", output).code == 0
    assert (files / "link").is_symlink()
    assert (files / "old").read_bytes() == (files / "loop").read_bytes() == text(TARGETS)
    assert not Path(os.devnull).is_file()


def test_an_input_called_unfinished_is_left_alone(run: Path, files: Path) -> None:
    mine = (files / "s").rename(files / "old.unfinished")
    assert heedful("translate", run, "-i", mine, "-o", files / "old").code == 0
    assert mine.read_bytes() == text(SOURCES)
    assert (files / "old").read_bytes() == text(TARGETS)


def shell(command: str, run: Path, folder: Path) -> "subprocess.CompletedProcess[str]":
    """Run a command in a folder; `heedful` and MODEL stand for this program and the model."""
    command = command.replace("heedful", f"{sys.executable} -m heedful").replace("MODEL", str(run))
    return subprocess.run(
        command, shell=True, executable="/bin/bash", cwd=folder, capture_output=True, text=True, timeout=300
    )


@on_posix
@pytest.mark.representatives(4)
@pytest.mark.parametrize(
    ("command", "code", "words"),
    [
        ("heedful translate MODEL < s -o s", 1, "s: is the input too"),
        ("heedful translate MODEL -i s >> s", 1, "stdout: is the input too"),
        ("heedful translate MODEL --prefix /dev/stdin < s", 2, "--input and --prefix"),
        ("heedful translate MODEL -i s >&-", 1, "stdout: is closed"),
        ("heedful score MODEL --src s --tgt t >> t", 1, "stdout: is the input too"),
        ("heedful translate MODEL -i /dev/fd/7 7< s -o s", 1, "s: is the input too"),
        ("heedful evaluate MODEL --src /dev/stdin --ref t -o s < s", 1, "s: is the input too"),
        ("heedful align MODEL --src /dev/fd/0 --tgt - < s", 2, "--src and --tgt"),
        ("heedful translate MODEL <&-", 1, "stdin: is closed"),
        ("heedful inspect --machine >&-", 1, "stdout: is closed"),
        ("heedful --version >&-", 1, "stdout: is closed"),
    ],
)
def test_streams_of_the_shell_are_refused(
    run: Path, files: Path, command: str, code: int, words: str
) -> None:
    done = shell(command, run, files)
    assert (done.returncode, done.stdout) == (code, "")
    assert words in done.stderr.splitlines()[-1]
    assert "Traceback" not in done.stderr
    assert [(files / name).read_bytes() for name in "st"] == [text(SOURCES), text(TARGETS)]


@on_posix
@pytest.mark.representatives(2)
@pytest.mark.parametrize(
    "command",
    [
        "(echo before; heedful translate MODEL -i s -o /dev/stdout; echo after) > out",
        "(echo before; heedful translate MODEL -i s -o >(cat); wait $!; echo after) | cat > out",
        "(echo before; heedful translate MODEL -i s -o out; echo after) > out",
        "(echo before >&5; heedful translate MODEL -i s -o /dev/fd/5; echo after >&5) 5> out",
        "(echo before; heedful translate MODEL -i s 2>&-; echo after) > out",
    ],
)
def test_streams_of_the_shell_are_written_to(run: Path, files: Path, command: str) -> None:
    done = shell(command, run, files)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert (files / "out").read_bytes() == b"before\n" + text(TARGETS) + b"after\n"
    assert names(files) == ["old", "out", "s", "t"]


def lines_of(stream: BinaryIO) -> "Queue[bytes]":
    """The lines of a stream as they come."""
    queue: Queue[bytes] = Queue()
    Thread(target=lambda: [queue.put(line) for line in stream], daemon=True).start()
    return queue


def conversation(run: Path, *args: str, stdin: int = subprocess.PIPE) -> "subprocess.Popen[bytes]":
    command = [sys.executable, "-m", "heedful", "translate", str(run), *args]
    return subprocess.Popen(command, stdin=stdin, stdout=subprocess.PIPE)


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
