"""Where a token stands: sinusoids (3.5), or learned vectors (Table 3, row E).

Two other orders of sinusoids are for models that were trained with them. Positions that only attention sees
are in `relative_positions.py`.
"""

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn

from heedful.errors import InputError


def sinusoids(length: int, d_model: int) -> Tensor:
    """Return PE (length, d_model) in float32, sine and cosine interleaved (3.5).

    PE(pos, 2i) = sin(pos / 10000^(2i / d_model)) and PE(pos, 2i + 1) = cos of the same angle. The angles are
    computed in float64: at position 5,000 a bfloat16 angle would be off by more than a turn.
    """
    positions = torch.arange(length, dtype=torch.float64)[:, None]
    even_dimensions = torch.arange(0, d_model, 2, dtype=torch.float64)
    angles = positions / 10_000 ** (even_dimensions / d_model)
    return torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(1).float()


def concatenated_sinusoids(length: int, d_model: int) -> Tensor:
    """Return the paper's sinusoids (length, d_model) in Marian's order: all sines, then all cosines."""
    interleaved = sinusoids(length, d_model)
    return torch.cat([interleaved[:, 0::2], interleaved[:, 1::2]], dim=1)


def fairseq_sinusoids(length: int, d_model: int) -> Tensor:
    """Return fairseq's sinusoids (length, d_model): all sines, then all cosines.

    The i-th of d_model / 2 angles is (pos + 2) / 10000^(i / (d_model / 2 - 1)): the wavelengths reach
    10000 * 2 pi, and positions count from 2, after those of padding. The angles are computed in float32, for
    models were trained with that rounding: it reaches 7e-5 at position 1,000.
    """
    positions = torch.arange(2, length + 2, dtype=torch.float32)[:, None]
    count = d_model // 2
    step = math.log(10_000) / max(1, count - 1)
    angles = positions * torch.exp(torch.arange(count, dtype=torch.float32) * -step)
    return torch.cat([angles.sin(), angles.cos()], dim=1)


class NoPositions(nn.Module):
    """Nothing is added to the embedding: attention sees positions by itself."""

    def forward(self, start: int, length: int) -> float:
        """Return zero."""
        return 0.0


class SinusoidalPositions(nn.Module):
    """The sinusoids of 3.5. They have no end: the table grows when a longer sequence comes."""

    table: Tensor

    def __init__(self, d_model: int, formula: Callable[[int, int], Tensor] = sinusoids) -> None:
        super().__init__()
        self.formula = formula
        self.register_buffer("table", torch.empty(0, d_model), persistent=False)

    def forward(self, start: int, length: int) -> Tensor:
        """Return the vectors (length, D) of positions start, start + 1, ..."""
        end, table = start + length, self.table
        if end > table.shape[0]:
            # Threads share the module: another may put a shorter table there at any time, but not here.
            table = self.formula(max(512, 2 * end), table.shape[1]).to(table)
            self.table = table
        return table[start:end]


class LearnedPositions(nn.Module):
    """A trained vector for each of a fixed number of positions (Table 3, row E)."""

    def __init__(self, d_model: int, max_positions: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(max_positions, d_model))

    def forward(self, start: int, length: int) -> Tensor:
        """Return the vectors (length, D) of positions start, start + 1, ...

        Raises:
            InputError: the sequence is longer than the positions that were learned.
        """
        max_positions = self.weight.shape[0]
        if start + length > max_positions:
            raise InputError(
                f"a sequence of {start + length} pieces is longer than the {max_positions} learned positions "
                "of this model; split it, or train with a larger model.max_positions"
            )
        return self.weight[start : start + length]
