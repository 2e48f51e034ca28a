"""Names of files are bytes, and not all of them are UTF-8."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from command_line import assert_one_clear_line, heedful
from ten_pairs import write_pairs
from tiny_bundle import save_memorised

from heedful.storage.bundle import load_bundle
from heedful.verbs.train import _quoted

LATIN_1 = os.fsdecode(b"caf\xe9's \\ n\xc3\xa4")


@pytest.mark.parametrize("argument", ["plain", "two words", "it's", "a$b`c`", "ü", LATIN_1])
def test_the_command_in_a_model_card_is_what_was_typed(argument: str) -> None:
    bash = shutil.which("bash")
    if bash is None:
        pytest.skip("there is no bash")
    text = _quoted(argument)
    text.encode("utf-8")
    printed = subprocess.run([bash, "-c", f"printf %s {text}"], capture_output=True, check=True).stdout
    assert printed == os.fsencode(argument)


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


def test_text_whose_name_is_not_utf_8_is_refused_before_training(tmp_path: Path) -> None:
    text = tmp_path / LATIN_1
    outcome = heedful("train", "--src", text, "--tgt", text, "--output", tmp_path / "run")
    assert_one_clear_line(outcome, 2, "is not UTF-8; rename the file, or check the encoding")
    assert not (tmp_path / "run").exists()


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
