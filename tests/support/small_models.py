"""Models of a few hundred parameters for tests of what is done with weights, not of what they compute."""

from typing import Any

import torch

from heedful.model.transformer import Transformer
from heedful.settings.model import ModelConfig
from heedful.settings.run import Config
from heedful.training.execution import Execution


def small_config(**changes: Any) -> ModelConfig:  # noqa: ANN401
    sizes = ModelConfig(
        d_model=8, num_heads=2, d_ff=8, num_encoder_layers=1, num_decoder_layers=1,
        src_vocab_size=11, tgt_vocab_size=11,
    )  # fmt: skip
    return sizes.replace(**changes)


def small_model(seed: int = 1, **changes: Any) -> Transformer:  # noqa: ANN401
    """Queries, keys, values and feed-forward matrices are all 8 x 8: a mix-up is no error of shapes."""
    torch.manual_seed(seed)
    return Transformer.from_config(small_config(**changes))


def prepared(model: Transformer, config: Config) -> Execution:
    """How a process trains with these settings, which has been applied to its model."""
    execution = Execution.of(config.train, next(model.parameters()).device)
    execution.apply(model)
    return execution


def assert_same_weights(one: torch.nn.Module, other: torch.nn.Module) -> None:
    for (name, a), (_, b) in zip(one.named_parameters(), other.named_parameters(), strict=True):
        assert torch.equal(a, b), name
