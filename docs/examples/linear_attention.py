"""A layer: linear attention (Katharopoulos et al., 2020), with a trained temperature for each head.

    heedful train ... --plugin linear_attention.py --set model.attention=linear_attention:LinearAttention

It is made with the arguments of `MultiHeadAttention`.
"""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import elu

from heedful.model.attention import MultiHeadAttention, ScaledDotProductAttention, causal_mask


class LinearAttention(MultiHeadAttention):
    """Multi-head attention with other weights than a softmax's."""

    def __init__(self, d_model: int, num_heads: int, **settings: Any) -> None:
        super().__init__(d_model, num_heads, **settings)
        self.attention = LinearWeights(num_heads)


class LinearWeights(ScaledDotProductAttention):
    """Weights in proportion to f(Q) f(K), where f(x) = elu(x) + 1."""

    def __init__(self, num_heads: int) -> None:
        super().__init__()
        self.temperature = nn.Parameter(torch.ones(num_heads, 1, 1))

    def forward(self, q, k, v, mask, *, causal=False, bias=None) -> Tensor:  # type: ignore[no-untyped-def]
        """Return the weighted means of the values, (B, H, T, d_v)."""
        scores = (elu(q * self.temperature) + 1) @ (elu(k) + 1).mT  # (B, H, T, S)
        if causal:
            mask = causal_mask(q.shape[2], past=k.shape[2] - q.shape[2], device=q.device)
        scores = scores if mask is None else scores * mask
        weights = scores / scores.sum(-1, keepdim=True).clamp_min(1e-6)
        return self.dropout(weights) @ v  # attention maps record the input of dropout
