"""Redirections: no command replaces a file that the shell has opened, or writes into what it reads."""

import gzip
import os
import subprocess
import sys
from pathlib import Path
from threading import Thread

import pytest
from command_line import heedful
from tiny_bundle import PAIRS

SOURCES = "".join(f"{source}\n" for source, _ in PAIRS)
TARGETS = "".join(f"{target}\n" for _, target in PAIRS)

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="redirections are those of a POSIX shell")


@pytest.fixture
def files(tmp_path: Path) -> Path:
    """A source `s` and its translations `t`."""
    (tmp_path / "s").write_text(SOURCES, encoding="utf-8")
    (tmp_path / "t").write_text(TARGETS, encoding="utf-8")
    return tmp_path


def shell(command: str, run: Path, folder: Path) -> "subprocess.CompletedProcess[str]":
    """Run a command in a folder; `heedful` and MODEL stand for this program and the model."""
    program = f"{sys.executable} -m heedful"
    return subprocess.run(
        command.replace("heedful", program).replace("MODEL", str(run)),
        shell=True, executable="/bin/bash", cwd=folder, capture_output=True, text=True, check=False,
        timeout=300,
    )  # fmt: skip


@pytest.mark.representatives(1)
@pytest.mark.parametrize(
    ("command", "names"),
    [
        ("heedful translate MODEL --prefix /dev/stdin", "--input and --prefix"),
        ("heedful translate MODEL -i - --prefix -", "--input and --prefix"),
        ("ln -s /dev/stdin in; heedful translate MODEL --prefix in", "--input and --prefix"),
        ("heedful align MODEL --src /dev/fd/0 --tgt -", "--src and --tgt"),
        ("heedful score MODEL --src s --tgt - --prefix /dev/stdin", "--tgt and --prefix"),
    ],
)
def test_stdin_is_read_for_one_thing(run: Path, files: Path, command: str, names: str) -> None:
    outcome = shell(f"{command} < <(cat s)", run, files)
    assert (outcome.returncode, outcome.stdout) == (2, "")
    assert f"error: Invalid value: {names} cannot both be stdin; write one to a file" in outcome.stderr


@pytest.mark.representatives(2)
@pytest.mark.parametrize(
    ("command", "name"),
    [
        ("heedful translate MODEL < s -o s", "s"),
        ("ln -s s link; heedful translate MODEL < s -o link", "link"),
        ("ln s twin; heedful translate MODEL < s -o twin", "twin"),
        ("heedful translate MODEL < s -o /dev/stdin", "/dev/stdin"),
        ("heedful translate MODEL -i /dev/stdin < s -o s", "s"),
        ("heedful translate MODEL -i /dev/fd/7 7< s -o s", "s"),
        ("heedful align MODEL --src t --tgt - -o s < s", "s"),
        ("heedful evaluate MODEL --src /dev/stdin --ref t -o s < s", "s"),
        ("heedful translate MODEL -i s >> s", "stdout"),
        ("heedful translate MODEL -i s -o /dev/stdout >> s", "/dev/stdout"),
        ("heedful score MODEL --src s --tgt t >> t", "stdout"),
    ],
)
def test_the_input_is_not_written_to_however_it_was_opened(
    run: Path, files: Path, command: str, name: str
) -> None:
    done = shell(command, run, files)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == f"error: {name}: is the input too; write to another file\n"
    assert (files / "s").read_text(encoding="utf-8") == SOURCES
    assert (files / "t").read_text(encoding="utf-8") == TARGETS


@pytest.mark.representatives(1)
@pytest.mark.parametrize("path", ["/dev/stdout", "/dev/fd/1", "/proc/self/fd/1", "link", "out"])
def test_what_the_shell_has_opened_is_written_to_and_keeps_what_others_write(
    run: Path, files: Path, path: str
) -> None:
    if path.startswith("/proc") and not Path("/proc/self/fd").is_dir():
        pytest.skip("no /proc")
    (files / "link").symlink_to("/dev/stdout")
    done = shell(f"(echo before; heedful translate MODEL -i s -o {path}; echo after) > out", run, files)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert (files / "out").read_text(encoding="utf-8") == f"before\n{TARGETS}after\n"
    assert sorted(each.name for each in files.iterdir()) == ["link", "out", "s", "t"]


@pytest.mark.slow
def test_outputs_come_before_the_scores_where_both_go_to_stdout(run: Path, files: Path) -> None:
    command = "heedful evaluate MODEL --src s --ref t --metric bleu -o /dev/stdout > out"
    assert shell(command, run, files).returncode == 0
    written = (files / "out").read_text(encoding="utf-8")
    assert written.startswith(f"{TARGETS}bleu 100.00")


@pytest.mark.parametrize(
    "command",
    [
        "translate MODEL -i s", "score MODEL --src s --tgt t", "evaluate MODEL --src s --ref t",
        "align MODEL --src s --tgt t", "inspect MODEL", "inspect --machine", "--version", "score --help",
    ],
)  # fmt: skip
@pytest.mark.slow
def test_results_that_cannot_be_printed_are_an_error(run: Path, files: Path, command: str) -> None:
    done = shell(f"heedful {command} >&-", run, files)
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].startswith("error: stdout: is closed")
    assert "Traceback" not in done.stderr
    assert shell("heedful translate MODEL -i s -o out >&-", run, files).returncode == 0


@pytest.mark.slow
def test_other_descriptors_are_written_to(run: Path, files: Path) -> None:
    for path, number in (("/dev/stderr", 2), ("/dev/fd/5", 5)):
        command = f"(echo before >&{number}; heedful translate MODEL -i s -o {path}; echo after >&{number})"
        done = shell(f"{command} {number}> out", run, files)
        assert done.returncode == 0
        assert (files / "out").read_text(encoding="utf-8") == f"before\n{TARGETS}after\n"


@pytest.mark.slow
def test_a_descriptor_that_cannot_be_written_to_is_named_before_the_work(run: Path, files: Path) -> None:
    for command in ("-o /dev/fd/9", "-o /dev/fd/9 9< t"):
        done = shell(f"heedful translate MODEL -i s {command}", run, files)
        assert done.returncode == 1
        assert done.stderr.startswith("error: /dev/fd/9: cannot be written: bad file descriptor")
    assert (files / "t").read_text(encoding="utf-8") == TARGETS


def test_a_pipe_and_a_process_are_written_to(run: Path, files: Path) -> None:
    assert shell("heedful translate MODEL -i s -o /dev/stdout | cat", run, files).stdout == TARGETS
    done = shell("heedful translate MODEL -i s -o >(cat > out); wait $!", run, files)
    assert done.returncode == 0
    assert (files / "out").read_text(encoding="utf-8") == TARGETS


@pytest.mark.slow
@pytest.mark.parametrize("ending", [".html", ".json", ".png"])
def test_a_picture_goes_into_a_pipe_and_does_not_replace_it(run: Path, tmp_path: Path, ending: str) -> None:
    if ending == ".png":
        pytest.importorskip("matplotlib")
    pipe, file, found = tmp_path / f"pipe{ending}", tmp_path / f"file{ending}", []
    os.mkfifo(pipe)
    reader = Thread(target=lambda: found.append(pipe.read_bytes()), daemon=True)
    reader.start()
    for output in (file, pipe):
        assert heedful("attention", run, PAIRS[0][0], "--output", output).code == 0
    assert pipe.is_fifo()
    reader.join(60)
    assert found == [file.read_bytes()]


@pytest.mark.parametrize("verb", ["translate", "align", "evaluate"])
def test_a_name_that_ends_in_gz_is_written_compressed_and_can_be_read_back(
    run: Path, files: Path, verb: str
) -> None:
    source, target = files / "s", files / "t"
    given = {
        "translate": ["-i", source],
        "align": ["--src", source, "--tgt", target],
        "evaluate": ["--src", source, "--ref", target],
    }[verb]
    for name in ("plain.txt", "packed.gz", "PACKED.GZ"):
        assert heedful(verb, run, *given, "-o", files / name).code == 0
    plain = (files / "plain.txt").read_bytes()
    assert plain.count(b"\n") == len(PAIRS)
    assert gzip.decompress((files / "packed.gz").read_bytes()) == plain
    assert (files / "PACKED.GZ").read_bytes() == (files / "packed.gz").read_bytes()
    read_back = heedful("translate", run, "-i", files / "packed.gz")
    assert read_back == heedful("translate", run, "-i", files / "plain.txt")
    assert read_back.code == 0
    assert sorted(each.name for each in files.iterdir()) == ["PACKED.GZ", "packed.gz", "plain.txt", "s", "t"]


def test_a_compressed_output_that_an_error_ends_is_kept_and_readable(run: Path, files: Path) -> None:
    (files / "old.gz").write_bytes(b"precious")
    (files / "s").write_bytes(SOURCES.encode() + b"\xff\n")
    outcome = heedful("translate", run, "-i", files / "s", "-o", files / "old.gz")
    assert outcome.code == 1
    assert (files / "old.gz").read_bytes() == b"precious"
    assert gzip.decompress((files / "old.gz.unfinished").read_bytes()).decode() == TARGETS
    (files / "old.gz.unfinished").unlink()
    (files / "s").write_bytes(b"\xff\n")
    assert heedful("translate", run, "-i", files / "s", "-o", files / "old.gz").code == 1
    assert sorted(each.name for each in files.iterdir()) == ["old.gz", "s", "t"]
