"""Ways to write the arithmetic of other implementations as this one's, with the same outputs."""

import math
from collections.abc import Sequence

import torch
from torch import Tensor


def stacked(parts: Sequence[Tensor]) -> Tensor:
    """One matrix (or bias) of all heads from one of each: rows are grouped by head here."""
    return torch.cat(list(parts))


def shared_by_heads(weight: Tensor, num_heads: int) -> Tensor:
    """The block-diagonal matrix that applies one small matrix to every head."""
    return torch.block_diag(*[weight] * num_heads)  # type: ignore[no-untyped-call,no-any-return]


def gain_of_unbiased_norm(alpha: Tensor, d_model: int) -> Tensor:
    """The gain of an ordinary layer norm that equals one with the deviation over n - 1.

    The unbiased deviation is sqrt(d / (d - 1)) times the ordinary one. `alpha` may be one number for all
    dimensions.
    """
    if alpha.numel() == 1:
        alpha = alpha.reshape(1).expand(d_model)
    return alpha * math.sqrt((d_model - 1) / d_model)


def one_number_for_all(beta: Tensor, d_model: int) -> Tensor:
    """A vector from one number; a vector stays as it is."""
    return beta.reshape(1).repeat(d_model) if beta.numel() == 1 else beta


def eps_inside_the_root(eps: float) -> float:
    """The epsilon of an ordinary layer norm, sqrt(variance + eps), for one that is added to the deviation.

    Both have the same floor where a row is constant; elsewhere they agree to eps / deviation.
    """
    return eps * eps
