"""Models of a size for the native engine, and engines of them at any level of the instruction set."""

import torch
from machine_class import level_with, need_level
from torch import Tensor

from heedful.decoding.backends.engine import Engine
from heedful.decoding.backends.native import weight_of
from heedful.decoding.steps import NextTokens
from heedful.model.transformer import Transformer
from heedful.runtime.native import functions_of
from heedful.settings.model import ModelConfig
from heedful.settings.options import Precision


def model_with(options: dict[str, object]) -> Transformer:
    torch.manual_seed(1)
    sizes = {"d_model": 64, "num_heads": 2, "d_ff": 96, "num_encoder_layers": 2, "num_decoder_layers": 2}
    vocabularies = {"src_vocab_size": 41, "tgt_vocab_size": 41}
    model = Transformer.from_config(ModelConfig.model_validate(sizes | vocabularies | options)).eval()
    with torch.no_grad():
        for weight in model.parameters():
            weight.add_(0.15 * torch.randn_like(weight))
    return model


def engine_of(model: Transformer, precision: Precision, level: str | None = None) -> Engine:
    """Pack a model at a level, by default at one that has the precision; what is not here skips the test."""
    level = level or level_with(precision)
    need_level(level)
    return Engine(model.config, weight_of(model), precision, functions=functions_of(level))


def log_probs_of(tokens: NextTokens) -> Tensor:
    return torch.as_tensor(tokens.log_probs())


def padded(sources: list[list[int]]) -> Tensor:
    src = torch.zeros(len(sources), max(map(len, sources)), dtype=torch.int64)
    for row, ids in enumerate(sources):
        src[row, : len(ids)] = torch.tensor(ids)
    return src
