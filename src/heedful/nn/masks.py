"""Attention masks: bool, True = may attend, 4-D, broadcastable to (B, H, T, S).

They are built only in `model.py` and `attention.py`, for later target positions (3.1) and for padding.
"""

import torch
from torch import Tensor


def padding_mask(ids_BS: Tensor, pad_id: int) -> Tensor:
    """Allow attention to every position that is not padding: (B, S) ids to (B, 1, 1, S)."""
    return (ids_BS != pad_id)[:, None, None, :]


def causal_mask(length: int, *, past: int = 0, device: torch.device | None = None) -> Tensor:
    """Allow each position to attend to itself and those before it (3.1): (1, 1, T, past + T).

    Args:
        length: T, the number of queries.
        past: the number of keys before that of the first query; all may be attended to.
        device: of the mask.
    """
    return torch.ones(length, past + length, dtype=torch.bool, device=device).tril(past)[None, None]
