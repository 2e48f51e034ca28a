"""The position of a token: sinusoids (3.5), or learned vectors (Table 3, row E).

Positions that enter in attention, and other sinusoids, are in `variants.py`.
"""

from collections.abc import Callable

import torch
from torch import Tensor, nn

from heedful.errors import InputError


def sinusoids(length: int, d_model: int) -> Tensor:
    """Return PE (length, d_model) in float32, sine and cosine interleaved (3.5).

    PE(pos, 2i) = sin(pos / 10000^(2i / d_model)) and PE(pos, 2i + 1) = cos of the same angle. The angles are
    computed in float64: at position 5,000 a bfloat16 angle would be off by more than a turn.

    >>> heedful.sinusoids(50, 512).shape
    torch.Size([50, 512])
    """
    positions = torch.arange(length, dtype=torch.float64)[:, None]
    even_dimensions = torch.arange(0, d_model, 2, dtype=torch.float64)
    angles = positions / 10_000 ** (even_dimensions / d_model)
    return torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(1).float()


class AttentionPositions(nn.Module):
    """Positions that enter in attention, as rotations or biases do; here, as in the paper, none."""

    def rotate(self, heads_BHLK: Tensor, start: int) -> Tensor:
        """Return rotated queries or keys (B, H, L, d_k), the first at position `start`."""
        return heads_BHLK

    def bias(self, start: int, num_queries: int, num_keys: int, like: Tensor) -> Tensor | None:
        """Return what is added to the scores, (H, T, S), for queries from position `start` on; None: nothing.

        Keys stand at positions 0..S-1; `like` gives dtype and device.
        """
        return None


class NoPositions(nn.Module):
    """Adds nothing to the embedding: positions enter in attention."""

    def forward(self, start: int | Tensor, length: int) -> float:
        """Return zero."""
        return 0.0


class SinusoidalPositions(nn.Module):
    """The sinusoids of 3.5. They have no end: the table grows when a longer sequence comes."""

    table: Tensor

    def __init__(self, d_model: int, formula: Callable[[int, int], Tensor] = sinusoids) -> None:
        super().__init__()
        self.formula = formula
        self.register_buffer("table", torch.empty(0, d_model), persistent=False)

    def forward(self, start: int | Tensor, length: int) -> Tensor:
        """Return the vectors (length, D) of positions start, start + 1, ...

        In CUDA graphs (decoding/backends/cuda_graphs.py) `start` is a tensor (1,), for one position in
        the table.
        """
        if isinstance(start, Tensor):
            return self.table[start]
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

    def forward(self, start: int | Tensor, length: int) -> Tensor:
        """Return the vectors (length, D) of positions start, start + 1, ...

        In CUDA graphs `start` is a tensor (1,), for one position that was learned.

        Raises:
            InputError: the sequence is longer than the positions that were learned.
        """
        if isinstance(start, Tensor):
            return self.weight[start]
        max_positions = self.weight.shape[0]
        if start + length > max_positions:
            raise InputError(
                f"a sequence of {start + length} tokens is longer than the {max_positions} learned positions "
                "of this model; split it, or train with a larger model.max_positions"
            )
        return self.weight[start : start + length]
