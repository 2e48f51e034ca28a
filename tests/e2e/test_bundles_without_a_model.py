"""Bundles that are whole, with the right checksums, and whose weights hold no model: an error says so."""

from copy import deepcopy
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from command_line import heedful
from tiny_bundle import PAIRS, memorised

from heedful.model.transformer import Transformer
from heedful.storage.bundle import save_bundle

SOURCES = "".join(f"{source}\n" for source, _ in PAIRS).encode()


def saved(path: Path, model: Transformer) -> Path:
    save_bundle(replace(memorised(), network=model), path, card="# Damaged\n")
    return path


def filled(value: float, *, only: str = "") -> Transformer:
    """The model with one value in place of the weights whose names contain a word."""
    model = deepcopy(memorised().model)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if only in name:
                weight.fill_(value)
    return model


@pytest.mark.parametrize("value", [0.0, 0.25])
@pytest.mark.parametrize("engine", ["auto", "torch"])
def test_weights_of_one_value_are_named(tmp_path: Path, value: float, engine: str) -> None:
    for only in ("", "embedding.tokens"):
        bundle = saved(tmp_path / f"model{only}", filled(value, only=only))
        outcome = heedful("translate", bundle, "--engine", engine, stdin=SOURCES)
        assert (outcome.code, outcome.out) == (1, "")
        named = f"model.safetensors: encoder.embedding.tokens.weight: every value is {value:g}, so that all"
        assert named in outcome.err
        assert outcome.err.count("\n") == 1


def test_a_layer_of_zeros_is_a_model(tmp_path: Path) -> None:
    bundle = saved(tmp_path / "model", filled(0.0, only="encoder.layers.1.feed_forward.outer"))
    assert heedful("translate", bundle, stdin=SOURCES).code == 0


def test_an_epsilon_that_hides_all_values_is_refused(tmp_path: Path) -> None:
    config = memorised().config
    sizes = config.model.model_copy(update={"layer_norm_eps": 1e300})  # unchecked, as in a file
    bundle = replace(memorised(), config=config.model_copy(update={"model": sizes}))
    save_bundle(bundle, tmp_path / "model", card="# Damaged\n")
    outcome = heedful("translate", tmp_path / "model", stdin=SOURCES)
    assert (outcome.code, outcome.out) == (1, "")
    assert "model.layer_norm_eps=1e+300" in outcome.err


@pytest.mark.parametrize(("precision", "advises"), [("float32", False), ("bf16", False), ("fp16", True)])
def test_only_fp16_is_told_that_its_range_is_small(tmp_path: Path, precision: str, advises: bool) -> None:
    bundle = saved(tmp_path / "model", filled(float("nan"), only="layers.1"))
    outcome = heedful("translate", bundle, "--engine", "torch", "--precision", precision, stdin=SOURCES)
    assert outcome.code == 1
    assert "the model's log-probabilities are not numbers; its weights are damaged" in outcome.err
    assert ("fp16" in outcome.err) == advises
