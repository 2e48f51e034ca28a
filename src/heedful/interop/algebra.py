"""Convert weights of other implementations so that the outputs stay the same."""

import math
from collections.abc import Sequence

import torch
from torch import Tensor


def stacked(parts: Sequence[Tensor]) -> Tensor:
    """Concatenate the matrices (or biases) of all heads: rows are grouped by head here."""
    return torch.cat(list(parts))


def shared_by_heads(weight: Tensor, num_heads: int) -> Tensor:
    """Return the block-diagonal matrix that applies one small matrix to every head."""
    return torch.block_diag(*[weight] * num_heads)  # type: ignore[no-untyped-call,no-any-return]


def gain_of_unbiased_norm(alpha: Tensor, d_model: int) -> Tensor:
    """Return the gain of a layer norm that is equal to one with the unbiased standard deviation (n - 1).

    The unbiased deviation is sqrt(d / (d - 1)) times the biased one. `alpha` may be one number for all
    dimensions.
    """
    if alpha.numel() == 1:
        alpha = alpha.reshape(1).expand(d_model)
    return alpha * math.sqrt((d_model - 1) / d_model)


def one_number_for_all(beta: Tensor, d_model: int) -> Tensor:
    """Expand one number to a vector; a vector is returned unchanged."""
    return beta.reshape(1).repeat(d_model) if beta.numel() == 1 else beta


def eps_inside_the_root(eps: float) -> float:
    """Return the epsilon for sqrt(variance + eps) that corresponds to one added to the deviation.

    Both are equal for a constant row; otherwise they agree to eps / deviation.
    """
    return eps * eps
