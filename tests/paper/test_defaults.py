"""What nobody sets is as in the paper."""

from typing import Any

import pytest
from tolerances import FLOAT64, close

from heedful.decoding.options import SearchOptions
from heedful.decoding.strategies.beam import BeamSearch
from heedful.settings.presets import preset
from heedful.settings.run import Config


@pytest.mark.parametrize(
    ("section", "wanted"),
    [
        (
            "model",
            {
                "d_model": 512, "num_heads": 8, "d_ff": 2048, "num_encoder_layers": 6,
                "num_decoder_layers": 6, "dropout": 0.1, "attention_dropout": 0.0,
                "activation_dropout": 0.0, "activation": "relu",
                "norm": "post", "positions": "sinusoidal", "tied": "all", "scale_embeddings": True,
                "feed_forward_bias": True, "output_bias": False,
            },
        ),  # 3.1 to 3.5, 5.4
        ("tokenizer", {"kind": "bpe", "joint": True}),  # 5.1
        ("batch", {"tokens": 25_000}),  # 5.1
        ("optimizer", {"beta1": 0.9, "beta2": 0.98, "eps": 1e-9, "weight_decay": 0, "clip_norm": 0}),  # 5.3
        ("schedule", {"name": "paper", "warmup_steps": 4000, "scale": 1.0}),  # 5.3
        ("train", {"max_steps": 100_000, "label_smoothing": 0.1, "average_checkpoints": 5}),  # 5.2, 5.4, 6.1
        ("decode", {"beam_size": 4, "length_penalty": 0.6, "max_length_offset": 50}),  # 6.1
    ],
)  # fmt: skip
def test_the_defaults_of_a_section_are_the_papers(section: str, wanted: dict[str, Any]) -> None:
    defaults = Config().model_dump()[section]
    assert {key: defaults[key] for key in wanted} == wanted


def test_each_head_is_d_model_over_h_wide_by_default() -> None:
    model = Config().model
    assert model.head_key_size == model.head_value_size == 64
    assert (model.d_k, model.d_v) == (None, None)


def test_the_default_configuration_is_the_preset_called_base() -> None:
    assert preset("base") == Config()


def test_checkpoints_to_average_lie_ten_minutes_apart_at_the_papers_speed() -> None:
    """6.1: every 10 minutes; 5.2: 0.4 seconds a step."""
    assert Config().train.checkpoint_every_steps * 0.4 == close(600, FLOAT64.ELEMENT)


def test_the_defaults_of_search_are_those_of_the_configuration() -> None:
    decode, search = Config().decode, SearchOptions()
    assert search.strategy == BeamSearch(beam_size=decode.beam_size, early_stopping=decode.early_stopping)
    assert search.length_penalty == decode.length_penalty
    assert (search.max_length_offset, search.n_best) == (decode.max_length_offset, decode.n_best)


@pytest.mark.parametrize(
    ("length", "alpha", "wanted"),
    [(1, 0.6, 1.0), (7, 0.6, 2**0.6), (19, 0.5, 2.0), (25, 1.0, 5.0), (9, 0.0, 1.0)],
)
def test_the_length_penalty_is_gnmts(length: int, alpha: float, wanted: float) -> None:
    """6.1: ((5 + |Y|) / 6)^alpha."""
    assert SearchOptions(length_penalty=alpha).penalty(length) == close(wanted, FLOAT64.ELEMENT)
