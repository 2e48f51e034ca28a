import json
from typing import Any, get_args

import pytest

from heedful.errors import ConfigError
from heedful.settings.model import ModelConfig
from heedful.settings.presets import preset
from heedful.settings.run import Config, ScheduleConfig


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"model": {"num_heads": 7}}, "model.num_heads=7 must divide model.d_model=512, or model.d_k and"),
        ({"model": {"num_heads": 7, "d_k": 3}}, "model.num_heads=7 must divide model.d_model=512, or"),
        ({"model": {"d_model": 9, "num_heads": 3}}, "model.d_model=9 must be even for sinusoidal positions"),
        ({"model": {"src_vocab_size": 5}}, 'model.tied="all" needs one vocabulary, but model.src_vocab'),
        ({"tokenizer": {"joint": False}}, 'model.tied="all" .* needs tokenizer.joint=true'),
        ({"data": {"src": "a"}}, "data.src and data.tgt must both be set"),
        ({"data": {"valid_tgt": "a"}}, "data.valid_src and data.valid_tgt must both be set"),
        ({"data": {"src": "a", "tgt": "b", "pairs": "c"}}, "data.pairs, not both"),
        ({"data": {"valid_src": "a", "valid_tgt": "b", "valid_pairs": "c"}}, "data.valid_pairs, not both"),
        ({"batch": {"ramp_from": 30_000}}, "batch.ramp_from=30000 must be at most batch.tokens=25000"),
        ({"schedule": {"name": "cosine"}}, 'schedule.name="cosine" needs schedule.peak'),
        ({"schedule": {"warmup_steps": 0}}, 'schedule.name="paper" needs schedule.warmup_steps of'),
        (
            {"schedule": {"warmup_fraction": 0.1}},
            "schedule.warmup_fraction=0.1",
        ),
        (
            {"schedule": {"name": "constant", "peak": 1e-3, "warmup_steps": 5, "warmup_fraction": 0.1}},
            "give schedule.warmup_steps=5 or schedule.warmup_fraction=0.1, not both",
        ),
        (
            {"schedule": {"name": "linear", "peak": 1e-3, "warmup_fraction": 0.25, "decay_fraction": 0.8}},
            "schedule.warmup_fraction=0.25 and schedule.decay_fraction=0.8 are more than the run; "
            "lower schedule.decay_fraction to 0.75",
        ),
        (
            {"tokenizer": {"character_coverage": 0.95}},
            "tokenizer.character_coverage=0.95",
        ),
        ({"train": {"max_steps": None}}, "one of train.max_steps, train.max_epochs, train.max_minutes must"),
        ({"train": {"keep_checkpoints": 4}}, "train.keep_checkpoints=4 must be at least train.average"),
        ({"valid": {"metric": "bleu", "decode_sentences": 0}}, 'valid.metric="bleu" needs valid.decode'),
    ],
)  # fmt: skip
def test_values_that_clash_name_their_keys(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        Config(**settings)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"modle": {}}, "unknown key 'modle'; did you mean 'model'?"),
        ({"model": {"num_head": 8}}, "unknown key 'model.num_head'; did you mean 'num_heads'?"),
        ({"model": {"a.b": 8}}, "unknown key 'model.a.b'; there are: d_model, num_heads, "),
        ({"decode": {"xyzzy": 1}}, "unknown key 'decode.xyzzy'; there are: beam_size, "),
    ],
)
def test_an_unknown_key_is_answered_with_the_closest_or_with_all(
    settings: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        Config(**settings)
    assert str(caught.value).startswith(message)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"model": {"d_model": "big"}}, 'model.d_model="big": input should be a valid integer'),
        ({"model": {"d_model": 2.5}}, "model.d_model=2.5: input should be a valid integer"),
        ({"model": {"num_heads": True}}, "model.num_heads=true: input should be a valid integer"),
        ({"model": {"d_ff": 0}}, "model.d_ff=0: input should be greater than 0"),
        ({"model": {"dropout": 1}}, "model.dropout=1.0: input should be less than 1"),
        ({"model": {"dropout": -0.1}}, "model.dropout=-0.1: input should be greater than or equal to 0"),
        ({"model": {"dropout": float("nan")}}, "model.dropout=NaN: input should be a finite number"),
        ({"model": {"full_attention_every": 2}}, "model.full_attention_every=2 needs"),
        ({"model": {"positions": "rotary", "decoder_window": 3}}, "model.encoder_window and decoder_window"),
        ({"model": {"norm": "sandwich"}}, 'model.norm="sandwich": input should be'),
        ({"model": {"attention_bias": 1}}, "model.attention_bias=1: input should be a valid boolean"),
        ({"train": {"max_steps": True}}, "train.max_steps=true: input should be a valid integer"),
        ({"data": {"src_key": False}}, "data.src_key=false: input should be a valid string"),
        ({"model": 3}, "model=3: input should be a table, [model]"),
        ({"train": {"freeze": 3}}, "train.freeze=3: input should be a list"),
    ],
)
def test_a_wrong_type_or_range_names_the_key_and_shows_the_value(
    settings: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        Config(**settings)
    assert str(caught.value).startswith(message)
    assert "\n" not in str(caught.value)
    assert caught.value.exit_code == 2


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("tokenizer.vocab_size", 3_000_000_000),
        ("data.max_length", 2**63 - 1),
        ("batch.bucket_width", 3_000_000_000),
        ("lora.rank", 100_000),
        ("optimizer.eps", 1e308),
        ("optimizer.weight_decay", 1e308),
        ("schedule.peak", 1e308),
        ("schedule.scale", 1e308),
        ("schedule.floor", 1.1),
        ("train.r_drop", 1e39),
        ("lora.alpha", 1e308),
    ],
)
def test_a_number_that_no_computation_can_hold_is_refused(key: str, value: float) -> None:
    section, name = key.split(".")
    with pytest.raises(ConfigError) as caught:
        Config(**{section: {name: value}})
    assert str(caught.value).startswith(f"{key}={json.dumps(value)}: input should be less than or equal to ")


def test_false_means_no_limit_and_a_whole_number_may_stand_for_a_float() -> None:
    config = Config(**{
        "train": {"max_steps": False, "max_minutes": 20, "checkpoint_every_minutes": False},
        "model": {"attention_bias": False, "d_k": False},
    })  # fmt: skip
    assert config.train.max_steps is None
    assert config.train.checkpoint_every_minutes is None
    assert config.train.max_minutes == 20.0
    assert isinstance(config.train.max_minutes, float)
    assert config.model.attention_bias is False
    assert config.model.d_k is None


def test_heads_need_not_divide_the_width_when_their_sizes_are_given() -> None:
    model = ModelConfig(num_heads=7, d_k=3, d_v=5)
    assert (model.head_key_size, model.head_value_size) == (3, 5)
    assert ModelConfig(d_k=16).head_value_size == 64


def test_odd_widths_go_with_learned_positions() -> None:
    assert ModelConfig(d_model=9, num_heads=3, positions="learned").d_model == 9


def test_a_copy_with_changes_is_validated_and_the_original_is_frozen() -> None:
    model = ModelConfig()
    assert model.replace(d_model=256).d_model == 256
    assert model.d_model == 512
    with pytest.raises(ConfigError, match=r"model\.num_heads"):
        model.replace(num_heads=7)
    with pytest.raises(ConfigError, match="d_model"):
        model.d_model = 3  # type: ignore[misc]


def test_a_schedule_with_a_peak_is_accepted() -> None:
    assert ScheduleConfig(name="linear", peak=1e-3).peak == 1e-3


def test_a_preset_that_does_not_exist_is_answered_with_the_closest() -> None:
    with pytest.raises(ConfigError, match=r"'smal'.*'small'"):
        preset("smal")


def test_only_none_may_be_left_out() -> None:
    """Each value that may be None is one that a file can leave out or set to false."""
    for section, values in Config().model_dump().items():
        fields = type(getattr(Config(), section)).model_fields
        for key, value in values.items():
            assert (value is None) <= (type(None) in get_args(fields[key].annotation))
