"""The vectors that are added to embedded tokens, for the native engine: those of `nn/`, without torch."""

import math

import numpy as np
from numpy.typing import NDArray

Table = NDArray[np.float32]


def sinusoids(length: int, d_model: int) -> Table:
    """Return the paper's sinusoids (length, d_model): see `nn.positions.sinusoids` (3.5)."""
    sines, cosines = _sines_and_cosines(length, d_model)
    return np.stack([sines, cosines], axis=-1).reshape(length, -1)


def concatenated_sinusoids(length: int, d_model: int) -> Table:
    """Return them in Marian's order: see `variants.sinusoids.concatenated_sinusoids`."""
    return np.concatenate(_sines_and_cosines(length, d_model), axis=1)


def fairseq_sinusoids(length: int, d_model: int) -> Table:
    """Return fairseq's: see `variants.sinusoids.fairseq_sinusoids`.

    Angles are rounded to float32 where torch rounds them; its exponentials, which it computes in float32, may
    differ by one unit in the last place, as they do between machines.
    """
    count = d_model // 2
    step = math.log(10_000) / max(1, count - 1)
    exponents = np.arange(count, dtype=np.float32) * np.float32(-step)
    frequencies = np.exp(exponents.astype(np.float64)).astype(np.float32)
    angles = (np.arange(2, length + 2, dtype=np.float32)[:, None] * frequencies).astype(np.float64)
    return np.concatenate([np.sin(angles), np.cos(angles)], axis=1).astype(np.float32)


SINUSOIDS = {"sinusoidal": sinusoids, "concatenated": concatenated_sinusoids, "fairseq": fairseq_sinusoids}


def _sines_and_cosines(length: int, d_model: int) -> tuple[Table, Table]:
    positions = np.arange(length, dtype=np.float64)[:, None]
    angles = positions / 10_000 ** (np.arange(0, d_model, 2, dtype=np.float64) / d_model)
    return np.sin(angles).astype(np.float32), np.cos(angles).astype(np.float32)
