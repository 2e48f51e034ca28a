import re
from typing import Any, get_args

import pytest

from heedful.errors import ConfigError
from heedful.settings.model import ModelConfig
from heedful.settings.presets import preset
from heedful.settings.run import Config, ScheduleConfig

TEXT = {"src": "a", "tgt": "b"}
CLASHES: list[tuple[dict[str, dict[str, Any]], str]] = [
    ({"model": {"num_heads": 7}}, "model.num_heads=7"),
    ({"model": {"num_heads": 7, "d_k": 3}}, "model.num_heads=7"),
    ({"model": {"num_kv_heads": 3}}, "model.num_kv_heads=3"),
    ({"model": {"num_kv_heads": 16}}, "model.num_kv_heads=16"),
    ({"model": {"positions": "rotary", "d_k": 5}}, "model.d_k=5"),
    ({"model": {"positions": "rotary", "d_model": 24}}, "model.d_k=3"),
    *(
        ({"model": {"positions": positions, "d_model": 9, "num_heads": 3}}, "model.d_model=9")
        for positions in ("sinusoidal", "concatenated", "fairseq", "marian")
    ),
    (
        {"model": {"positions": "relative", "relative_max_distance": 16}},
        "model.relative_max_distance=16 .* model.relative_buckets=32",
    ),
    ({"model": {"full_attention_every": 2}}, "model.full_attention_every=2"),
    ({"model": {"positions": "rotary", "decoder_window": 3}}, "model.encoder_window and decoder_window"),
    ({"model": {"src_vocab_size": 5}}, 'model.tied="all" .* model.src_vocab'),
    ({"tokenizer": {"joint": False}}, 'model.tied="all" .* tokenizer.joint=true'),
    ({"data": {"src": "a"}}, "data.src and data.tgt"),
    ({"data": {"valid_tgt": "a"}}, "data.valid_src and data.valid_tgt"),
    ({"data": TEXT | {"pairs": "c"}}, "data.pairs"),
    ({"data": {"valid_src": "a", "valid_tgt": "b", "valid_pairs": "c"}}, "data.valid_pairs"),
    ({"batch": {"ramp_from": 30_000}}, "batch.ramp_from=30000 .* batch.tokens=25000"),
    ({"schedule": {"name": "cosine"}}, "schedule.peak"),
    ({"schedule": {"warmup_steps": 0}}, "schedule.warmup_steps"),
    ({"schedule": {"warmup_fraction": 0.1}}, "schedule.warmup_fraction=0.1"),
    (
        {"schedule": {"name": "constant", "peak": 1e-3, "warmup_steps": 5, "warmup_fraction": 0.1}},
        "schedule.warmup_steps=5 .* schedule.warmup_fraction=0.1",
    ),
    (
        {"schedule": {"name": "linear", "peak": 1e-3, "warmup_fraction": 0.25, "decay_fraction": 0.8}},
        "schedule.warmup_fraction=0.25 .* schedule.decay_fraction=0.8 .* 0.75",
    ),
    ({"train": {"max_steps": None}}, "train.max_steps, train.max_epochs, train.max_minutes"),
    ({"train": {"keep_checkpoints": 4}}, "train.keep_checkpoints=4 .* train.average"),
    ({"valid": {"metric": "bleu", "decode_sentences": 0}}, "valid.decode"),
]
UNKNOWN: list[tuple[str, object, str]] = [
    ("modle", {}, "'modle'; did you mean 'model'?"),
    ("model.num_head", 8, "'model.num_head'; did you mean 'num_heads'?"),
    ("lora.rang", 3, "'lora.rang'; did you mean 'rank'?"),
    ("languages.tag", "x", "'languages.tag'; "),
    ("decode.xyzzy", 1, "'decode.xyzzy'; there are: beam_size, "),
    ("model.a.b", 8, "'model.a.b'; there are: d_model, num_heads, "),
]
# Of another type, not in the range, not among the values, and more than a computation can hold.
WRONG: list[tuple[str, object, str]] = [
    ("model.d_model", "big", 'model.d_model="big"'),
    ("model.d_model", 2.5, "model.d_model=2.5"),
    ("model.num_heads", True, "model.num_heads=true"),
    ("model.attention_bias", 1, "model.attention_bias=1"),
    ("model.gated", 1, "model.gated=1"),
    ("train.max_steps", True, "train.max_steps=true"),
    ("data.src_key", False, "data.src_key=false"),
    ("model", 3, "model=3"),
    ("train.freeze", 3, "train.freeze=3"),
    ("train.freeze", [3], "train.freeze.0=3"),
    ("lora.targets", False, "lora.targets=false"),
    ("decode.suppressed_ids", 3, "decode.suppressed_ids=3"),
    ("decode.suppressed_ids", [3, -1], "decode.suppressed_ids.1=-1"),
    ("decode.suppressed_ids", [True], "decode.suppressed_ids.0=true"),
    ("decode.max_length", 0, "decode.max_length=0"),
    ("decode.early_stopping", True, "decode.early_stopping=true"),
    ("model.d_ff", 0, "model.d_ff=0"),
    ("model.dropout", 1, "model.dropout=1.0"),
    ("model.dropout", -0.1, "model.dropout=-0.1"),
    ("model.dropout", float("nan"), "model.dropout=NaN"),
    ("model.num_kv_heads", 0, "model.num_kv_heads=0"),
    ("model.relative_buckets", 3, "model.relative_buckets=3"),
    ("model.decoder_start_id", -1, "model.decoder_start_id=-1"),
    ("model.norm", "sandwich", 'model.norm="sandwich"'),
    ("model.norm_kind", "RMS", 'model.norm_kind="RMS"'),
    ("model.positions", "rope", 'model.positions="rope"'),
    ("model.activation", "silu", 'model.activation="silu"'),
    ("batch.tokens", "many", 'batch.tokens="many"'),
    ("tokenizer.character_coverage", 0.95, "tokenizer.character_coverage=0.95"),
    ("tokenizer.vocab_size", 3_000_000_000, "tokenizer.vocab_size=3000000000"),
    ("data.max_length", 2**63 - 1, f"data.max_length={2**63 - 1}"),
    ("batch.bucket_width", 3_000_000_000, "batch.bucket_width=3000000000"),
    ("lora.rank", 100_000, "lora.rank=100000"),
    ("schedule.floor", 1.1, "schedule.floor=1.1"),
    ("train.r_drop", 1e39, "train.r_drop=1e+39"),
    *(
        (key, 1e308, f"{key}=1e+308")
        for key in (
            "optimizer.eps",
            "optimizer.weight_decay",
            "schedule.peak",
            "schedule.scale",
            "lora.alpha",
        )
    ),
]


def refusal(settings: dict[str, Any]) -> str:
    with pytest.raises(ConfigError) as caught:
        Config(**settings)
    assert "\n" not in str(caught.value)
    assert caught.value.exit_code == 2
    return str(caught.value)


def nested(key: str, value: object) -> dict[str, Any]:
    section, _, name = key.partition(".")
    return {section: {name: value} if name else value}


@pytest.mark.parametrize(("settings", "keys"), CLASHES)
def test_values_that_clash_name_their_keys(settings: dict[str, Any], keys: str) -> None:
    assert re.search(keys, refusal(settings))


@pytest.mark.parametrize(("key", "value", "answer"), UNKNOWN)
def test_an_unknown_key_is_answered_with_the_closest_or_with_all(
    key: str, value: object, answer: str
) -> None:
    assert refusal(nested(key, value)).startswith(f"unknown key {answer}")


@pytest.mark.parametrize(("key", "value", "shown"), WRONG)
def test_a_wrong_value_names_its_key_and_is_shown(key: str, value: object, shown: str) -> None:
    assert refusal(nested(key, value)).startswith(f"{shown}: ")


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


def test_odd_sizes_are_accepted_where_they_fit() -> None:
    model = ModelConfig(num_heads=7, d_k=3, d_v=5)
    assert (model.head_key_size, model.head_value_size) == (3, 5)
    assert ModelConfig(d_k=16).head_value_size == 64
    assert ModelConfig(d_model=9, num_heads=3, positions="learned").d_model == 9
    assert ScheduleConfig(name="linear", peak=1e-3).peak == 1e-3


def test_a_copy_with_changes_is_validated_and_the_original_is_frozen() -> None:
    model = ModelConfig()
    assert model.replace(d_model=256).d_model == 256
    assert model.d_model == 512
    with pytest.raises(ConfigError, match=r"model\.num_heads"):
        model.replace(num_heads=7)
    with pytest.raises(ConfigError, match="d_model"):
        model.d_model = 3  # type: ignore[misc]


def test_a_preset_that_does_not_exist_is_answered_with_the_closest() -> None:
    with pytest.raises(ConfigError, match=r"'smal'.*'small'"):
        preset("smal")


def test_only_none_may_be_left_out() -> None:
    """Each value that may be None is one that a file can leave out or set to false."""
    for section, values in Config().model_dump().items():
        fields = type(getattr(Config(), section)).model_fields
        for key, value in values.items():
            assert (value is None) <= (type(None) in get_args(fields[key].annotation))
