"""Bundles and checkpoints that were written once must load and give the same for good.

`run-of-format-1` was trained by `heedful train` on ten pairs, 1+1 layers of 32, and is not made again: a
change of the format that needs another one puts it beside this one, with a migration.
"""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from command_line import heedful
from safetensors.torch import load_file
from ten_pairs import ENGLISH, GERMAN, write_pairs

from heedful import Translator
from heedful.storage.bundle import load_bundle, settings_sha256
from heedful.training.checkpoint import is_complete

OLD = Path(__file__).parent / "run-of-format-1"


def test_the_bundle_translates_as_it_did() -> None:
    translator = Translator.load(OLD)
    assert translator.translate(list(ENGLISH)) == list(GERMAN)


def test_the_bundle_scores_as_it_did() -> None:
    found = Translator.load(OLD).score(list(ENGLISH[:3]), list(GERMAN[:3]))
    assert [each.log_prob for each in found] == pytest.approx([-2.89087, -3.83949, -4.42063], abs=1e-3)


def test_what_the_bundle_says_of_itself_is_read() -> None:
    bundle = load_bundle(OLD)
    assert bundle.scores["nll"] == pytest.approx(0.11681, abs=1e-4)
    assert (bundle.config.model.d_model, bundle.config.train.max_steps) == (32, 400)


def renamed(folder: Path) -> Path:
    """The bundle with a value by the name that it had before 0.1.0."""
    bundle = folder / "bundle"
    shutil.copytree(OLD / "best", bundle)
    description = json.loads((bundle / "config.json").read_text(encoding="utf-8"))
    description["config"]["decode"]["length_normalization"] = "average"
    settings = {key: description[key] for key in ("config", "scores")}
    description["sha256"]["settings"] = settings_sha256(settings)
    (bundle / "config.json").write_text(json.dumps(description), encoding="utf-8")
    return bundle


def test_a_stored_bundle_may_have_former_names_without_a_warning(tmp_path: Path) -> None:
    assert load_bundle(renamed(tmp_path)).config.decode.length_normalization == "power"


def test_a_former_name_on_the_command_line_is_accepted_with_one_line(tmp_path: Path) -> None:
    command = ("score", renamed(tmp_path), *write_files(tmp_path))
    present = heedful(*command, "--length-normalization", "power")
    assert heedful(*command) == present
    assert heedful(*command, "--length-normalization", "gnmt") != present
    outside = [sys.executable, "-m", "heedful", *map(str, command), "--length-normalization", "average"]
    former = subprocess.run(outside, capture_output=True, encoding="utf-8", check=True)
    assert former.stdout == present.out
    warning, rest = former.stderr.split("\n", 1)
    assert warning == (
        'warning: length_normalization="average" is called "power" now; the old name works in versions 0.1.x'
    )
    assert rest == present.err


def write_files(folder: Path) -> tuple[object, ...]:
    for name, lines in (("en", ENGLISH), ("de", GERMAN)):
        (folder / name).write_text("\n".join([*lines, ""]), encoding="utf-8")
    return ("--src", folder / "en", "--tgt", folder / "de")


def test_the_checkpoint_can_be_resumed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = tmp_path / "run"
    shutil.copytree(OLD, run)
    assert is_complete(run / "checkpoints" / "step-400")
    write_pairs(tmp_path)
    monkeypatch.chdir(tmp_path)  # where its config.toml has the text
    outcome = heedful("train", "--resume", "--set", "train.max_steps=405", "--output", run)
    assert outcome.code == 0, outcome.err
    assert "step 405" in outcome.err
    weights = load_file(run / "last" / "model.safetensors")
    before = load_file(OLD / "best" / "model.safetensors")
    assert all((weights[name] - before[name]).abs().max() < 0.1 for name in before)
