"""Presets: the paper's base, big and Table 3, two for small data, five published systems."""

from typing import Any

from heedful.errors import ConfigError, suggestion
from heedful.settings.parsing import shown
from heedful.settings.run import Config

BASE: dict[str, Any] = {}  # the defaults are the base model

# Rows of Table 3, as changes of base; a name has the row's letter and the value that differs.
TABLE_3: dict[str, dict[str, Any]] = {
    "base-a-1-head": {"model": {"num_heads": 1, "d_k": 512, "d_v": 512}},
    "base-a-4-heads": {"model": {"num_heads": 4, "d_k": 128, "d_v": 128}},
    "base-a-16-heads": {"model": {"num_heads": 16, "d_k": 32, "d_v": 32}},
    "base-a-32-heads": {"model": {"num_heads": 32, "d_k": 16, "d_v": 16}},
    "base-b-dk16": {"model": {"d_k": 16}},
    "base-b-dk32": {"model": {"d_k": 32}},
    "base-c-2-layers": {"model": {"num_encoder_layers": 2, "num_decoder_layers": 2}},
    "base-c-4-layers": {"model": {"num_encoder_layers": 4, "num_decoder_layers": 4}},
    "base-c-8-layers": {"model": {"num_encoder_layers": 8, "num_decoder_layers": 8}},
    "base-c-d256": {"model": {"d_model": 256, "d_k": 32, "d_v": 32}},
    "base-c-d1024": {"model": {"d_model": 1024, "d_k": 128, "d_v": 128}},
    "base-c-ff1024": {"model": {"d_ff": 1024}},
    "base-c-ff4096": {"model": {"d_ff": 4096}},
    "base-d-dropout0": {"model": {"dropout": 0.0}},
    "base-d-dropout0.2": {"model": {"dropout": 0.2}},
    "base-d-smoothing0": {"train": {"label_smoothing": 0.0}},
    "base-d-smoothing0.2": {"train": {"label_smoothing": 0.2}},
    "base-e-learned": {"model": {"positions": "learned"}},
}

BIG: dict[str, Any] = {  # Table 3, last row; 6.1: the last 20 checkpoints averaged
    "model": {"d_model": 1024, "d_ff": 4096, "num_heads": 16, "dropout": 0.3},
    "train": {"max_steps": 300_000, "average_checkpoints": 20, "keep_checkpoints": 20},
}

# For small data on one machine, the demo and the recipes: what docs/results.md and docs/log.md favour. Small
# batches, Muon, a warm-up and a decay in proportion to the run, a moving average, a search by means over the
# length.
SMALL_DATA: dict[str, Any] = {
    "batch": {"tokens": 2048},
    "optimizer": {"name": "muon"},
    "schedule": {"name": "linear", "warmup_fraction": 0.1, "peak": 3e-3, "decay_fraction": 0.7},
    "train": {"max_steps": 20_000, "ema_decay": 0.999, "average_checkpoints": 1},
    "valid": {"every_steps": 500},
    "decode": {
        "beam_size": 5,
        "length_penalty": 1.0,
        "length_normalization": "power",
        "early_stopping": "estimate",
    },
}

TINY: dict[str, Any] = SMALL_DATA | {
    "schedule": SMALL_DATA["schedule"] | {"peak": 4e-3},
    "model": {
        "d_model": 128,
        "num_heads": 4,
        "d_ff": 256,
        "num_encoder_layers": 4,
        "num_decoder_layers": 4,
        "dropout": 0.1,
    },
}

SMALL: dict[str, Any] = SMALL_DATA | {
    "model": {
        "d_model": 256,
        "num_heads": 4,
        "d_ff": 1024,
        "num_encoder_layers": 3,
        "num_decoder_layers": 3,
        "dropout": 0.2,
    }
}

# Published from-scratch implementations, as changes of base; docs/systems.md compares them.
_EMBEDDED_AS_IS: dict[str, Any] = {
    "positions": "learned",
    "scale_embeddings": False,
    "tied": "none",
    "output_bias": True,
}
PUBLISHED: dict[str, dict[str, Any]] = {
    "abhishek-thread": {"model": _EMBEDDED_AS_IS | {"dropout": 0.3}, "tokenizer": {"joint": False}},
    "nptel-lecture": {
        "model": _EMBEDDED_AS_IS | {"attention_bias": False, "max_positions": 100},
        "tokenizer": {"joint": False},
        "data": {"max_length": 100},
    },
    "kaggle-notebook": {
        "model": _EMBEDDED_AS_IS | {"d_model": 256, "d_ff": 1024, "dropout": 0.0, "max_positions": 100},
        "tokenizer": {"kind": "word", "joint": False},
        "data": {"max_length": 100},
    },
    "adeveloperdiary": {
        "model": {
            "norm": "pre",
            "attention_bias": False,
            "attention_dropout": 0.1,
            "activation_dropout": 0.1,
            "tied": "none",
            "output_bias": True,
            "layer_norm_eps": 1e-16,
        },
        "tokenizer": {"joint": False},
    },
    "jadore": {
        "model": {
            "attention_bias": False,
            "attention_dropout": 0.1,
            "embedding_norm": True,
            "layer_norm_eps": 1e-6,
            "tied": "target",
        },
        "tokenizer": {"joint": False},
        "decode": {"beam_size": 5},
    },
}

PRESETS: dict[str, dict[str, Any]] = (
    {"tiny": TINY, "small": SMALL, "base": BASE, "big": BIG} | TABLE_3 | PUBLISHED
)


def preset(name: str) -> Config:
    """Return the named configuration.

    Raises:
        ConfigError: there is no preset of that name.
    """
    return Config(**preset_settings(name))


def preset_settings(name: str) -> dict[str, Any]:
    """Return the settings of a preset that differ from the defaults; raises as `preset`."""
    if name not in PRESETS:
        raise ConfigError(f"preset {shown(name)} does not exist{suggestion(name, PRESETS)}")
    return PRESETS[name]
