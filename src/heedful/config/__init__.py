"""The configuration: one schema with the paper's defaults, presets, and errors that name the key."""

from heedful.config.architecture import ModelConfig
from heedful.config.loading import load_config, parse_override, to_toml
from heedful.config.presets import PRESETS, preset
from heedful.config.schema import (
    BatchConfig,
    Config,
    DataConfig,
    DecodeConfig,
    LanguageConfig,
    LoraConfig,
    OptimizerConfig,
    ScheduleConfig,
    TokenizerConfig,
    TrainConfig,
    ValidConfig,
)

__all__ = [
    "PRESETS",
    "BatchConfig",
    "Config",
    "DataConfig",
    "DecodeConfig",
    "LanguageConfig",
    "LoraConfig",
    "ModelConfig",
    "OptimizerConfig",
    "ScheduleConfig",
    "TokenizerConfig",
    "TrainConfig",
    "ValidConfig",
    "load_config",
    "parse_override",
    "preset",
    "to_toml",
]
