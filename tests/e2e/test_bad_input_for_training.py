"""What cannot be trained on gets one line, exit code 1 or 2, and nothing that was there is lost."""

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from command_line import Outcome, heedful
from full_disk import files_limited_to
from ten_pairs import as_options, write_pairs
from tiny_bundle import save_memorised

from heedful.storage.bundle import load_bundle
from heedful.tasks.card import shell_command

QUICK = {"train.max_steps": 2, "valid.every_steps": 2}


def line(number: int, of: bytes, become: bytes) -> bytes:
    lines = of.split(b"\n")
    lines[number - 1] = become
    return b"\n".join(lines)


LATIN_1 = os.fsdecode(b"caf\xe9's \\ n\xc3\xa4")
DAMAGED: dict[str, tuple[Callable[[bytes], bytes], str]] = {
    "too few lines": (lambda text: text[: text.index(b"\n") + 1], "line: 2"),
    "empty": (lambda _: b"", "ten.de: "),
    "only blank lines": (lambda _: b"\n" * 10, "ten.de: "),
    "not UTF-8": (lambda text: line(3, text, b"caf\xe9"), "line 3, byte 3"),
    "a NUL byte": (lambda text: line(4, text, b"a\0b"), "line 4"),
}


def assert_one_line(outcome: Outcome, code: int, message: str) -> None:
    last = outcome.err.splitlines()[-1]
    assert outcome.code == code, outcome.err
    assert last.startswith("error: ")
    assert message in last
    assert "Traceback" not in outcome.err
    assert outcome.out == ""


@pytest.mark.parametrize("damage", DAMAGED)
def test_damaged_text_is_named_with_its_place(damage: str, tmp_path: Path) -> None:
    arguments = write_pairs(tmp_path)
    change, message = DAMAGED[damage]
    (tmp_path / "ten.de").write_bytes(change((tmp_path / "ten.de").read_bytes()))
    outcome = heedful("train", *arguments, *as_options(QUICK), "--output", tmp_path / "run")
    assert_one_line(outcome, 1, message)
    assert not (tmp_path / "run").exists()


# What is given besides the command; PAIRS are --src and --tgt, with the settings of a small run.
MISTAKES: dict[str, tuple[list[str], str, int]] = {
    "an unknown key": (["PAIRS", "--set", "model.num_head=4"], "'num_heads'", 2),
    "no key": (["PAIRS", "--set", "max_steps"], "max_steps", 2),
    "a large vocabulary": (["PAIRS", "--set", "tokenizer.vocab_size=8000"], "tokenizer.vocab_size", 1),
    "room for nothing": (["PAIRS", "--set", "data.max_length=2"], "data.max_length", 1),
    "a missing file": (["PAIRS", "--tgt", "none.de"], "none.de", 1),
    "no text at all": ([], "--src and --tgt", 2),
    "one side alone": (["--src", "ten.en"], "--tgt", 2),
    "an unknown preset": (["--preset", "smal"], "'small'", 2),
    "nothing to resume": (["PAIRS", "--resume"], "run", 1),
    "a file for a directory": (["PAIRS", "--output", "ten.de"], "ten.de", 1),
    "a name that is not UTF-8": (["--src", LATIN_1, "--tgt", LATIN_1], "UTF-8", 2),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_in_the_command_is_named(
    mistake: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    pairs = write_pairs(tmp_path)
    given, name, code = MISTAKES[mistake]
    arguments = [each for word in given for each in (pairs if word == "PAIRS" else [word])]
    output = [] if "--output" in given else ["--output", "run"]
    assert_one_line(heedful("train", *arguments, *output), code, name)
    assert (tmp_path / "ten.de").stat().st_size > 0
    assert not (tmp_path / "run").exists()


def test_overwriting_with_bad_text_keeps_the_old_run(tmp_path: Path) -> None:
    arguments = [*write_pairs(tmp_path), *as_options(QUICK), "--output", str(tmp_path / "run")]
    assert heedful("train", *arguments).code == 0
    before = {path: path.read_bytes() for path in (tmp_path / "run").rglob("*") if path.is_file()}
    (tmp_path / "ten.de").write_bytes(b"\xff\n")
    assert_one_line(heedful("train", *arguments, "--overwrite"), 1, "ten.de")
    after = {path: path.read_bytes() for path in (tmp_path / "run").rglob("*") if path.is_file()}
    assert after == before


def test_a_text_in_the_run_that_would_be_renamed_is_refused(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    arguments = [*write_pairs(tmp_path / "run"), *as_options(QUICK), "--output", str(tmp_path / "run")]
    assert_one_line(heedful("train", *arguments, "--overwrite"), 1, "--overwrite")
    assert (tmp_path / "run" / "ten.de").exists()


def test_a_full_disk_ends_training_with_one_line_and_the_run_can_go_on(tmp_path: Path) -> None:
    settings = as_options(QUICK | {"train.checkpoint_every_steps": 1})
    arguments = [*write_pairs(tmp_path), *settings, "--output", str(tmp_path / "run")]
    with files_limited_to(500_000):
        assert_one_line(heedful("train", *arguments), 1, str(tmp_path / "run"))
    resumed = heedful("train", *arguments, "--resume")
    assert resumed.code == 0, resumed.err
    assert (tmp_path / "run" / "last" / "model.safetensors").exists()


@pytest.mark.parametrize(
    "argument", ["plain", "two words", "it's", "a$b`c`", "ü", LATIN_1, "two\nlines\u2028\x7f"]
)
def test_the_command_in_a_model_card_is_what_was_typed(argument: str) -> None:
    bash = shutil.which("bash")
    if bash is None:
        pytest.skip("there is no bash")
    text = shell_command([argument])
    text.encode("utf-8")
    printed = subprocess.run([bash, "-c", f"printf %s {text}"], capture_output=True, check=True).stdout
    assert printed == os.fsencode(argument)


@pytest.mark.slow
def test_a_run_whose_directory_is_not_utf_8_trains_to_its_end(tmp_path: Path) -> None:
    run = tmp_path / LATIN_1
    try:
        run.mkdir()
    except OSError:
        pytest.skip("this file system has UTF-8 only")
    outcome = heedful(
        "train",
        *write_pairs(tmp_path),
        "--output",
        run,
        "--set",
        "train.max_steps=2",
        "--set",
        "train.processes=1",
    )
    assert outcome.code == 0, outcome.err
    assert "caf\\xe9" in (run / "best" / "README.md").read_text(encoding="utf-8")
    assert heedful("average", run, "--last", 1, "--output", tmp_path / "mean").code == 0
    assert "caf\\udce9" in (tmp_path / "mean" / "README.md").read_text(encoding="utf-8")
    load_bundle(tmp_path / "mean")
    for verb in ("inspect", "plot"):
        assert heedful(verb, run).code == 0


@pytest.mark.parametrize(
    "verb", ["inspect", "translate", "evaluate", "plot", "attention", "average", "export"]
)
def test_no_verb_ends_in_a_traceback_for_such_a_name(tmp_path: Path, verb: str) -> None:
    bundle = save_memorised(tmp_path / "bundle")
    nothing = tmp_path / LATIN_1
    more = {
        "evaluate": ["--src", nothing, "--ref", nothing],
        "attention": ["the cat", "--output", nothing],
        "average": ["--output", nothing],
        "export": ["--to", "marian", "--output", nothing],
    }.get(verb, [])
    for run in (bundle, nothing):
        outcome = heedful(verb, run, *more, stdin=b"the cat sleeps .\n")
        assert outcome.code in (0, 1, 2)
        assert outcome.err.count("\n") <= 1
