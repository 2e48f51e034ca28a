"""Bundles and checkpoints that were written once must load and give the same for good.

`run-of-format-1` was trained by `heedful train` on ten pairs, 1+1 layers of 32, and is not made again: a
change of the format that needs another one puts it beside this one, with a migration.
"""

import shutil
from pathlib import Path

import pytest
from command_line import heedful
from safetensors.torch import load_file
from ten_pairs import ENGLISH, GERMAN, write_pairs

from heedful import Translator
from heedful.storage.bundle import load_bundle
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
