"""The settings that other families need: lists, `false` for None, files and back, and what clashes."""

import json
import tomllib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from heedful.settings.loading import load_config, parse_override, to_toml
from heedful.settings.model import ModelConfig
from heedful.settings.run import Config, DecodeConfig

FIELDS: dict[str, dict[str, Any]] = {
    "model": {
        "num_kv_heads": 2, "activation": "gelu_tanh", "gated": True, "norm_kind": "rms",
        "decoder_start_id": 0, "positions": "relative", "relative_buckets": 64, "relative_max_distance": 99,
    },
    "decode": {
        "length_normalization": "power", "early_stopping": "first", "max_length": 77, "forced_first_id": 0,
        "forced_last_id": 2, "suppressed_ids": (0, 3, 58100),
    },
    "languages": {"src_tag": "eng_Latn", "tgt_tag": '>>"fra"<<', "src_tag_position": "last"},
    "train": {"freeze": ("encoder.", "decoder.layers.0.")},
    "lora": {"alpha": 32.0, "dropout": 0.05, "targets": ("query", "key", "inner")},
}  # fmt: skip
NONE_BY_DEFAULT = [
    ("model", "num_kv_heads"), ("model", "decoder_start_id"), ("decode", "max_length"),
    ("decode", "forced_first_id"), ("decode", "forced_last_id"), ("decode", "suppressed_ids"),
    ("languages", "src_tag"), ("languages", "tgt_tag"),
]  # fmt: skip


def loaded(folder: Path, text: str) -> Config:
    path = folder / "config.toml"
    path.write_text(text, encoding="utf-8")
    return load_config(path)


def test_no_option_is_on_by_default() -> None:
    for section, key in NONE_BY_DEFAULT:
        assert getattr(getattr(Config(), section), key) is None
    model = ModelConfig()
    assert (model.positions, model.norm_kind, model.activation) == ("sinusoidal", "layer", "relu")
    assert not model.gated
    assert Config().lora.rank == 0
    assert Config().train.freeze == ()


def test_every_field_survives_the_way_through_toml_and_json(tmp_path: Path) -> None:
    config = Config(**FIELDS)
    for section, values in FIELDS.items():
        for key, value in values.items():
            assert getattr(getattr(config, section), key) == value
    assert loaded(tmp_path, to_toml(config)) == config
    assert Config(**json.loads(json.dumps(config.model_dump()))) == config


def test_a_list_is_a_tuple_from_a_file_from_json_and_from_the_command_line(tmp_path: Path) -> None:
    text = '[train]\nfreeze = ["encoder.", "output"]\n[decode]\nsuppressed_ids = [5, 0]\n'
    from_toml = loaded(tmp_path, text + '[lora]\ntargets = ["key"]')
    lists = {"train": {"freeze": ["encoder.", "output"]}, "decode": {"suppressed_ids": [5, 0]}}
    from_json = Config(**json.loads(json.dumps(lists | {"lora": {"targets": ["key"]}})))
    overrides = [
        'train.freeze=["encoder.", "output"]',
        "decode.suppressed_ids=[5, 0]",
        'lora.targets=["key"]',
    ]
    from_line = load_config(overrides=[parse_override(override) for override in overrides])
    for config in (from_toml, from_json, from_line):
        assert config.train.freeze == ("encoder.", "output")
        assert config.decode.suppressed_ids == (5, 0)
        assert config.lora.targets == ("key",)
        hash(config)  # frozen throughout


@pytest.mark.parametrize(("section", "key"), NONE_BY_DEFAULT)
def test_false_is_none_where_none_may_be(tmp_path: Path, section: str, key: str) -> None:
    assert getattr(getattr(loaded(tmp_path, f"[{section}]\n{key} = false"), section), key) is None
    assert getattr(getattr(load_config(overrides=[(f"{section}.{key}", False)]), section), key) is None


@pytest.mark.parametrize("key", ["forced_first_id", "forced_last_id"])
def test_an_id_of_zero_is_an_id_and_false_is_none(tmp_path: Path, key: str) -> None:
    config = loaded(tmp_path, f"[decode]\n{key} = 0")
    assert getattr(config.decode, key) == 0
    assert getattr(loaded(tmp_path, to_toml(config)).decode, key) == 0
    assert loaded(tmp_path, "[model]\ndecoder_start_id = 0").model.decoder_start_id == 0


def test_no_suppressed_ids_and_the_usual_ones_are_two_things(tmp_path: Path) -> None:
    for given_ids in (None, (), (7,)):
        config = Config(decode=DecodeConfig(suppressed_ids=given_ids))
        written = to_toml(config)
        ids = tomllib.loads(written)["decode"].get("suppressed_ids")
        assert ids == (None if given_ids is None else list(given_ids))
        assert loaded(tmp_path, written).decode.suppressed_ids == given_ids


@settings(max_examples=30)
@given(
    ids=st.none() | st.lists(st.integers(0, 10**6), max_size=4).map(tuple),
    prefixes=st.lists(st.text(st.characters(exclude_categories=["Cs"]), min_size=1), max_size=3).map(tuple),
    tag=st.none() | st.text(st.characters(exclude_categories=["Cs"]), min_size=1),
)
def test_any_list_and_tag_survives_the_round_trip(
    tmp_path_factory: pytest.TempPathFactory,
    ids: tuple[int, ...] | None,
    prefixes: tuple[str, ...],
    tag: str | None,
) -> None:
    config = Config(decode={"suppressed_ids": ids}, train={"freeze": prefixes}, languages={"tgt_tag": tag})
    file = tmp_path_factory.mktemp("round") / "config.toml"
    file.write_text(to_toml(config), encoding="utf-8", newline="")
    assert load_config(file) == config


def test_sizes_that_only_look_odd_are_accepted() -> None:
    assert ModelConfig(d_model=9, num_heads=3, positions="alibi").head_key_size == 3
    assert ModelConfig(positions="rotary", d_k=6, d_v=5, num_heads=7, d_model=15).head_key_size == 6
    assert ModelConfig(num_heads=6, d_model=12, num_kv_heads=3).num_kv_heads == 3
    assert ModelConfig(positions="relative", relative_max_distance=17).relative_max_distance == 17
    assert ModelConfig(relative_max_distance=1).positions == "sinusoidal"  # where it is not used


def test_batches_of_automatic_size_are_zero_until_it_is_found(tmp_path: Path) -> None:
    for given_tokens in ("auto", 0):
        config = Config(batch={"tokens": given_tokens, "ramp_from": 500})
        assert config.batch.tokens == 0
        assert loaded(tmp_path, to_toml(config)) == config
    assert loaded(tmp_path, '[batch]\ntokens = "auto"').batch.tokens == 0
