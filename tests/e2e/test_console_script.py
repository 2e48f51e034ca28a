"""What only a process of its own can show: start-up time, pipes, and the way in through `python -m`."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from command_line import heedful
from ten_pairs import write_pairs

FULL = Path("/dev/full")
HEAVY = {"torch", "numpy", "pyarrow", "sentencepiece", "sacrebleu", "pydantic", "matplotlib"}


@pytest.mark.parametrize(
    ("words", "shown", "heavy"),
    [
        (["--help"], "translate", HEAVY),
        (["train", "--help"], "--src", HEAVY - {"pydantic"}),  # typer reads options by it
        (["serve", "--help"], "--port", HEAVY - {"pydantic"}),
        (["translate", "--help"], "--input", {"torch", "pyarrow", "sacrebleu", "matplotlib"}),
    ],
)
def test_the_command_line_loads_nothing_heavy_before_it_must(
    words: list[str], shown: str, heavy: set[str]
) -> None:
    """So help answers in under 0.3 s; it is counted in modules, for seconds are the machine's."""
    code = "import atexit, sys, heedful.cli.main as m; atexit.register(lambda: print(*sys.modules)); m.main()"
    command = [sys.executable, "-c", code, *words]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert shown in done.stdout
    loaded = done.stdout.splitlines()[-1].split()
    assert heavy.isdisjoint(loaded)
    assert len(loaded) < 450


@pytest.mark.representatives(1)
@pytest.mark.skipif(not FULL.exists(), reason="this system has no /dev/full")
@pytest.mark.parametrize("flags", [[], ["-u"]])
def test_a_full_disk_is_one_line(flags: list[str]) -> None:
    with FULL.open("wb") as full:
        command = [sys.executable, *flags, "-m", "heedful"]
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, check=False)
    assert done.returncode == 1
    assert done.stderr == b"error: no space left on the disk; free some and run the command again\n"


INTERRUPT = """
import os, signal, sys

class Interrupt:
    def find_spec(self, name, path=None, target=None):
        if name == os.environ["INTERRUPTED_IMPORT"]:
            os.kill(os.getpid(), signal.SIGINT)

signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs ignore it
sys.meta_path.insert(0, Interrupt())
"""


@pytest.mark.representatives(1)
@pytest.mark.skipif(sys.platform == "win32", reason="no SIGINT is sent to a process there")
@pytest.mark.parametrize(
    "module",
    ["heedful.cli.main", "typer", "heedful.verbs.train", "torch", "torch.nn", "heedful.training.loop"],
)
def test_ctrl_c_while_modules_are_imported_is_one_line(module: str, tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(INTERRUPT, encoding="utf-8")
    environment = os.environ | {"PYTHONPATH": str(tmp_path), "INTERRUPTED_IMPORT": module}
    command = [sys.executable, "-m", "heedful", "train", *write_pairs(tmp_path), "-o", str(tmp_path / "run")]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "error: interrupted\n")
    assert not (tmp_path / "run").exists()


@pytest.mark.skipif(sys.platform == "win32", reason="SIGTERM ends a process at once there")
def test_sigterm_removes_an_export_that_is_half_written(run: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "heedful", "export", run, "--to", "onnx", "--output", tmp_path / "onnx"]
    process = subprocess.Popen(command, stderr=subprocess.PIPE)
    while process.poll() is None and not (tmp_path / ".onnx.heedful-writing").exists():
        time.sleep(0.01)
    process.terminate()
    assert process.communicate() == (None, b"")
    assert process.returncode == 143
    assert not list(tmp_path.iterdir())


def test_without_a_verb_the_verbs_are_shown() -> None:
    outcome = heedful()
    assert outcome.code == 0
    assert "Commands:" in outcome.out


def test_the_version_is_shown() -> None:
    assert heedful("--version").out.startswith("heedful 0.")


def test_a_verb_after_two_dashes_is_the_verb() -> None:
    assert heedful("--", "translate", "--help").out == heedful("translate", "--help").out
    assert heedful("--", "translate").err == heedful("translate").err


def test_a_verb_that_does_not_exist_gets_a_suggestion() -> None:
    outcome = heedful("evalutae")
    assert outcome.code == 2
    assert outcome.err == "error: No such command 'evalutae'. Did you mean 'evaluate'; see heedful --help\n"


@pytest.mark.parametrize(
    ("words", "belongs"),
    [
        ("translate model test.en", "'test.en': give the text with -i test.en, or < test.en; see"),
        ("score model test.en --src a --tgt b", "'test.en': give the text with --src and --tgt; see"),
        ("evaluate model test.en --src a --ref b", "'test.en': give the text with --src and --ref; see"),
        ("train recipe.toml test.en test.de", "'test.en': give the text with --src and --tgt; see"),
        ("push model ann/model more", "'more'; see"),
    ],
)
def test_a_stray_argument_is_told_where_it_belongs(words: str, belongs: str) -> None:
    outcome = heedful(*words.split())
    assert outcome.code == 2
    assert outcome.err == f"error: unexpected argument {belongs} heedful {words.split()[0]} --help\n"
