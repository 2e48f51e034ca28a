"""`heedful inspect` of bundles whose tokenizer is not there, or cannot be read here."""

import json
from pathlib import Path

import pytest
from command_line import heedful
from small_models import small_model
from tiny_bundle import save_memorised

from heedful.errors import MissingExtraError
from heedful.settings.run import Config
from heedful.storage.model_files import save_model
from heedful.text import TokenizerPair


def test_a_bundle_without_a_tokenizer_is_shown(tmp_path: Path) -> None:
    model = small_model(tgt_vocab_size=13, tied="target")
    save_model(model, Config(model=model.config), tmp_path / "ids", card="")
    outcome = heedful("inspect", tmp_path / "ids", "--json")
    found = json.loads(outcome.out)["bundle"]
    assert (outcome.code, outcome.err) == (0, "")
    assert found["num_parameters"] == model.num_parameters
    assert (found["src_vocab_size"], found["tgt_vocab_size"], found["joint"]) == (11, 13, None)
    shown = heedful("inspect", tmp_path / "ids").out
    assert "tokens    11 source, 13 target (no tokenizer: the model works on ids)" in shown
    assert "checksums correct" in shown
    assert "  d_model = 8\n" in shown


def test_a_bundle_whose_tokenizer_needs_what_is_not_installed_is_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = save_memorised(tmp_path / "bundle")
    wanted = json.loads(heedful("inspect", path, "--json").out)["bundle"]
    assert (wanted["joint"], wanted["no_tokenizer"]) == (True, None)

    def missing(_: Path) -> None:
        raise MissingExtraError("it needs tokenizers: install them")

    monkeypatch.setattr(TokenizerPair, "load", missing)
    outcome = heedful("inspect", path)
    assert (outcome.code, outcome.err) == (0, "")
    assert "(it needs tokenizers: install them)" in outcome.out
