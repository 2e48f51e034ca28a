"""The sinusoids of other systems, for models that were trained with them."""

import math

import torch
from torch import Tensor

from heedful.nn.positions import sinusoids


def concatenated_sinusoids(length: int, d_model: int) -> Tensor:
    """Return the paper's sinusoids (length, d_model) in Marian's order: all sines, then all cosines."""
    interleaved = sinusoids(length, d_model)
    return torch.cat([interleaved[:, 0::2], interleaved[:, 1::2]], dim=1)


def fairseq_sinusoids(length: int, d_model: int) -> Tensor:
    """Return fairseq's sinusoids (length, d_model): all sines, then all cosines.

    The i-th of d_model / 2 angles is (pos + 2) / 10000^(i / (d_model / 2 - 1)): the wavelengths reach
    10000 * 2 pi, and positions count from 2, after those of padding. The angles are computed in float32, as
    in training: the rounding error is 7e-5 at position 1,000.
    """
    positions = torch.arange(2, length + 2, dtype=torch.float32)[:, None]
    count = d_model // 2
    step = math.log(10_000) / max(1, count - 1)
    angles = positions * torch.exp(torch.arange(count, dtype=torch.float32) * -step)
    return torch.cat([angles.sin(), angles.cos()], dim=1)
