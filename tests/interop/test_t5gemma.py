"""T5Gemma's settings: what is taken from them, and what is refused by name."""

import json
from pathlib import Path
from typing import Any

import pytest
from pretrained_models import FAMILIES, imported

from heedful import Translator
from heedful.analysis.attention_maps import attention_of
from heedful.errors import InteropError
from heedful.storage.bundle import Bundle


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("t5gemma") / "model"
    FAMILIES["t5gemma"].save(directory)
    return directory


def changed(saved: Path, directory: Path, **values: Any) -> Path:  # noqa: ANN401
    """A copy with other settings in both stacks."""
    directory.mkdir()
    for file in saved.iterdir():
        (directory / file.name).symlink_to(file)
    config = json.loads((saved / "config.json").read_text())
    for stack in ("encoder", "decoder"):
        config[stack] |= values
    (directory / "config.json").unlink()
    (directory / "config.json").write_text(json.dumps(config))
    return directory


@pytest.mark.parametrize(
    ("values", "named"),
    [
        ({"layer_types": ["full_attention"]}, "layer_types"),
        ({"layer_types": []}, "layer_types"),
        ({"layer_types": 3}, "layer_types"),
        ({"layer_types": "abc"}, "layer_types"),
        ({"layer_types": ["chunked_attention", "full_attention", "chunked_attention"]}, "layer_types"),
        ({"rope_parameters": {"type": "yarn", "factor": 4.0}}, "rope_type"),
        ({"rope_parameters": {"rope_type": "yarn"}}, "rope_type"),
        ({"rope_parameters": {"full_attention": [1], "sliding_attention": {}}}, "rope_parameters"),
        ({"rope_parameters": 3}, "rope_parameters"),
        ({"query_pre_attn_scalar": -1}, "query_pre_attn_scalar"),
        ({"query_pre_attn_scalar": 0}, "query_pre_attn_scalar"),
        ({"sliding_window": 0}, "sliding_window"),
        ({"hidden_activation": "tanh"}, "hidden_activation"),
    ],
)
def test_a_setting_that_is_not_supported_is_refused_by_name(
    values: dict[str, Any], named: str, saved: Path, tmp_path: Path
) -> None:
    with pytest.raises(InteropError, match=named):
        imported("t5gemma", changed(saved, tmp_path / "model", **values))


@pytest.mark.parametrize(("kind", "scale"), [("default", 1.0), ("linear", 8.0)])
def test_only_linear_positions_are_divided(kind: str, scale: float, saved: Path, tmp_path: Path) -> None:
    positions = {"rope_type": kind, "factor": 8.0, "rope_theta": 1e4}
    found, _ = imported("t5gemma", changed(saved, tmp_path / "model", rope_parameters=positions))
    assert found.config.model.rotary_scale == scale


def test_merges_without_their_prefix_are_refused(saved: Path, tmp_path: Path) -> None:
    directory = changed(saved, tmp_path / "model")
    pipeline = json.loads((directory / "tokenizer.json").read_text())
    pipeline["model"]["continuing_subword_prefix"] = "##"
    (directory / "tokenizer.json").unlink()
    (directory / "tokenizer.json").write_text(json.dumps(pipeline))
    with pytest.raises(InteropError, match="continuing_subword_prefix"):
        imported("t5gemma", directory)


def test_the_maps_of_a_merged_decoder_are_those_of_its_source_and_its_target(tmp_path: Path) -> None:
    FAMILIES["t5gemma 2"].save(tmp_path / "model")
    found, model = imported("t5gemma", tmp_path / "model")
    translator = Translator(Bundle(found.config, found.tokenizers, model))
    maps = attention_of(translator, "the cat sleeps", target="die Katze")
    shapes = {
        "encoder": (len(maps.source_tokens),) * 2,
        "cross": (len(maps.target_tokens), len(maps.source_tokens)),
        "decoder": (len(maps.target_tokens),) * 2,
    }
    assert {each.kind for each in maps.layers} == shapes.keys()
    for each in maps.layers:
        assert each.weights.shape[-2:] == shapes[each.kind]
