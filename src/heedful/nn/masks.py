"""The one mask convention: bool, True = may attend, 4-D, broadcastable to (B, H, T, S).

Nobody outside `model.py` and `attention.py` builds a mask. What is masked: the future (3.1) and, since
sentences of several lengths share a batch, padding.
"""

import torch
from torch import Tensor


def padding_mask(ids_BS: Tensor, pad_id: int) -> Tensor:
    """Allow attention to every position that holds a token: (B, S) ids to (B, 1, 1, S)."""
    return (ids_BS != pad_id)[:, None, None, :]


def causal_mask(length: int, device: torch.device | None = None) -> Tensor:
    """Allow position t to attend to positions 0..t (3.1): (1, 1, T, T)."""
    return torch.ones(length, length, dtype=torch.bool, device=device).tril()[None, None]
