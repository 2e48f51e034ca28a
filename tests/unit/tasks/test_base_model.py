"""Which settings come from a bundle to continue from, and which stay the user's."""

from pathlib import Path
from typing import Any

import pytest
from tiny_bundle import memorised, save_memorised

from heedful.errors import ConfigError
from heedful.settings.loading import load_config, to_toml
from heedful.settings.run import Config
from heedful.tasks.setup import BaseModel, continued_settings, load_base_model


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> BaseModel:
    return load_base_model(str(save_memorised(tmp_path_factory.mktemp("base") / "tiny")))


def given(**settings: Any) -> Config:  # noqa: ANN401
    overrides = [(key.replace("__", "."), value) for key, value in settings.items()]
    return load_config(overrides=[*overrides, ("train.init", "bundle")])


def test_what_is_not_said_is_as_in_the_bundle(base: BaseModel) -> None:
    found = continued_settings(given(schedule__peak=0.5), base)
    assert found.model == memorised().config.model
    assert found.tokenizer == memorised().config.tokenizer
    assert found.schedule.peak == 0.5
    assert found.train.init == "bundle"


@pytest.mark.parametrize(
    ("settings", "wanted"),
    [
        ({}, {"name": "linear", "peak": 0.0, "warmup_fraction": 0.1}),
        ({"schedule__peak": 1e-5}, {"name": "linear", "peak": 1e-5, "warmup_fraction": 0.1}),
        ({"schedule__warmup_steps": 7}, {"name": "linear", "warmup_steps": 7, "warmup_fraction": None}),
        ({"schedule__name": "constant", "schedule__peak": 1e-3}, {"peak": 1e-3, "warmup_fraction": None}),
        ({"schedule__name": "paper"}, {"name": "paper", "peak": None, "warmup_steps": 4000}),
        ({"schedule__scale": 0.1}, {"name": "paper", "scale": 0.1}),
    ],
)
def test_the_schedule_is_for_a_trained_model_unless_another_is_named(
    base: BaseModel, settings: dict[str, Any], wanted: dict[str, Any]
) -> None:
    found = continued_settings(given(**settings), base).schedule.model_dump()
    assert {key: found[key] for key in wanted} == wanted


def test_regularisation_and_search_may_be_set_anew(base: BaseModel) -> None:
    wanted = given(
        model__dropout=0.3, model__attention_dropout=0.1, tokenizer__sampling=0.1, decode__beam_size=2
    )
    found = continued_settings(wanted, base)
    assert (found.model.dropout, found.model.attention_dropout, found.model.d_model) == (0.3, 0.1, 32)
    assert (found.tokenizer.sampling, found.tokenizer.vocab_size) == (0.1, 60)
    assert found.decode.beam_size == 2


def test_label_smoothing_is_the_bundles_unless_it_is_set(base: BaseModel) -> None:
    config = base.config.replace(train={"label_smoothing": 0.03})
    other = BaseModel(base.origin, config, base.tokenizers, base.weights)
    assert continued_settings(given(), other).train.label_smoothing == 0.03
    assert continued_settings(given(train__label_smoothing=0.2), other).train.label_smoothing == 0.2


def test_the_bundles_search_and_languages_are_kept(base: BaseModel) -> None:
    config = base.config.replace(
        decode={"beam_size": 7, "forced_first_id": 5}, languages={"tgt_tag": "deu_Latn"}
    )
    other = BaseModel(base.origin, config, base.tokenizers, base.weights)
    found = continued_settings(given(decode__length_penalty=0.1), other)
    assert (found.decode.beam_size, found.decode.forced_first_id) == (7, 5)
    assert found.decode.length_penalty == 0.1
    assert found.languages.tgt_tag == "deu_Latn"


@pytest.mark.parametrize(
    ("preset", "key", "value", "message"),
    [
        (None, "model.d_model", 64, r"^model\.d_model=64"),
        (None, "model.norm", "pre", r'^model\.norm="pre": \S+ has "post"'),
        (None, "model.num_kv_heads", 2, r"^model\.num_kv_heads=2: \S+ has null"),
        (None, "tokenizer.vocab_size", 100, r"^tokenizer\.vocab_size=100: \S+ has 60"),
        (None, "tokenizer.kind", "char", r'^tokenizer\.kind="char"'),
        ("tiny", "train.seed", 1, r"^model\.d_model=128"),
        ("base", "train.seed", 1, r"^model\.d_model=512"),
    ],
)
def test_another_architecture_or_vocabulary_is_refused_by_name(
    base: BaseModel, preset: str | None, key: str, value: object, message: str
) -> None:
    config = load_config(preset=preset, overrides=[(key, value), ("train.init", "bundle")])
    with pytest.raises(ConfigError, match=message) as caught:
        continued_settings(config, base)
    assert "\n" not in str(caught.value)


def test_the_bundles_own_values_may_be_repeated_and_written_to_a_file(
    base: BaseModel, tmp_path: Path
) -> None:
    first = continued_settings(given(model__d_model=32, model__dropout=0.25), base)
    (tmp_path / "config.toml").write_text(to_toml(first), encoding="utf-8")
    assert continued_settings(load_config(tmp_path / "config.toml"), base) == first


def test_who_changes_a_setting_from_python_has_not_set_the_others(base: BaseModel) -> None:
    config = given().replace(train={"init": "bundle", "seed": 3})
    assert continued_settings(config, base).model == memorised().config.model
