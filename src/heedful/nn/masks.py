"""The one mask convention: bool, True = may attend, 4-D, broadcastable to (B, H, T, S).

Nobody outside `model.py` and `attention.py` builds a mask. What is masked: the future (3.1) and, since
sentences of several lengths share a batch, padding.
"""

import torch
from torch import Tensor


def padding_mask(ids_BS: Tensor, pad_id: int) -> Tensor:
    """Allow attention to every position that holds a token: (B, S) ids to (B, 1, 1, S)."""
    return (ids_BS != pad_id)[:, None, None, :]


def causal_mask(length: int, *, past: int = 0, device: torch.device | None = None) -> Tensor:
    """Allow each position to attend to itself and those before it (3.1): (1, 1, T, past + T).

    Args:
        length: T, the number of queries.
        past: how many keys come before that of the first query; all may be attended to.
        device: of the mask.
    """
    return torch.ones(length, past + length, dtype=torch.bool, device=device).tril(past)[None, None]
