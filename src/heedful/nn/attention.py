"""Scaled dot-product attention (3.2.1) and multi-head attention (3.2.2)."""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal

import torch
from torch import Tensor, nn

from heedful.nn.dropout import Dropout
from heedful.nn.fused import attend_at_once, can_weigh, weigh
from heedful.nn.masks import causal_mask
from heedful.nn.relative_positions import AttentionPositions, NoPositions


def attention_weights(
    queries_BHTK: Tensor, keys_BHSK: Tensor, mask: Tensor | None, bias: Tensor | None = None
) -> Tensor:
    """Return softmax(Q Kᵀ / sqrt(d_k)), with no weight where the mask forbids it (3.2.1).

    A query that may attend to nothing gets zeros, and passes zero gradients back.

    Args:
        queries_BHTK: (B, H, T, d_k).
        keys_BHSK: (B, H, S, d_k).
        mask: bool, True = may attend, broadcastable to (B, H, T, S); None allows everything.
        bias: added to the scaled scores, broadcastable likewise; the paper has none.

    Returns:
        Weights (B, H, T, S); the softmax is computed in float32 at least.
    """
    dtype = queries_BHTK.dtype
    at_least_float32 = torch.promote_types(dtype, torch.float32)
    scores_BHTS = (queries_BHTK @ keys_BHSK.transpose(-2, -1)).to(at_least_float32)
    scores_BHTS = scores_BHTS / math.sqrt(queries_BHTK.shape[-1])
    if bias is not None:
        scores_BHTS = scores_BHTS + bias
    if mask is None:
        return scores_BHTS.softmax(dim=-1).to(dtype)
    # The lowest finite number acts as -inf, but leaves no NaN in a row that is masked throughout.
    lowest = torch.finfo(at_least_float32).min
    forbidden = torch.zeros_like(mask, dtype=at_least_float32).masked_fill_(~mask, lowest)
    weights_BHTS = (scores_BHTS + forbidden).softmax(dim=-1).to(dtype)
    return weights_BHTS * mask.any(dim=-1, keepdim=True)


# Weights, then their product with the values, as in the formula; or both at once (`fused.attend_at_once`).
# "auto" is at once on a GPU only: on a processor the two products are faster (docs/log.md).
Way = Literal["auto", "by weights", "at once"]


class MultiHeadAttention(nn.Module):
    """Concat(head_1, ..., head_h) W_O, where head_i = Attention(Q W_Q_i, K W_K_i, V W_V_i) (3.2.2).

    The h projections of one kind are one matrix whose rows are grouped by head. The paper has as many keys
    and values as queries, and no positions in the attention.
    """

    def __init__(
        self,
        d_model: int,
        num_heads: int,
        *,
        d_k: int | None = None,
        d_v: int | None = None,
        num_kv_heads: int | None = None,
        positions: AttentionPositions | None = None,
        dropout: float = 0.0,
        bias: bool = True,
    ) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.num_kv_heads = num_kv_heads or num_heads
        d_k = d_k or d_model // num_heads
        d_v = d_v or d_model // num_heads
        self.query = nn.Linear(d_model, num_heads * d_k, bias=bias)
        self.key = nn.Linear(d_model, self.num_kv_heads * d_k, bias=bias)
        self.value = nn.Linear(d_model, self.num_kv_heads * d_v, bias=bias)
        self.output = nn.Linear(num_heads * d_v, d_model, bias=bias)
        self.positions = positions or NoPositions()
        self.weights_dropout = Dropout(dropout)  # its input is the attention map: `recorder.py` listens here
        self.way: Way = "auto"

    def forward(self, x: Tensor, context: Tensor, mask: Tensor | None, *, causal: bool = False) -> Tensor:
        """Let each position of x attend to the context.

        Args:
            x: (B, T, D), where the queries come from.
            context: (B, S, D), where the keys and values come from; x itself in self-attention.
            mask: see `masks.py`.
            causal: in place of a mask, that each position sees itself and those before it, no later one.

        Returns:
            (B, T, D).
        """
        return self.attend(x, *self.keys_and_values(context), mask, causal=causal)

    def keys_and_values(self, context: Tensor, start: int = 0) -> tuple[Tensor, Tensor]:
        """Project (B, S, D), the first position being `start`, to (B, H, S, d_k) and (B, H, S, d_v)."""
        keys_BHSK = self._split_heads(self.key(context), self.num_kv_heads)
        values_BHSV = self._split_heads(self.value(context), self.num_kv_heads)
        return self.positions.rotate(keys_BHSK, start), values_BHSV

    def attend(
        self,
        x: Tensor,
        keys_BHSK: Tensor,
        values_BHSV: Tensor,
        mask: Tensor | None,
        start: int = 0,
        *,
        causal: bool = False,
    ) -> Tensor:
        """Attend from x (B, T, D), the first position being `start`, to projected keys and values."""
        queries_BHTK = self.positions.rotate(self._split_heads(self.query(x), self.num_heads), start)
        if self.num_kv_heads < self.num_heads:  # each group of queries shares a head of keys and values
            keys_BHSK = keys_BHSK.repeat_interleave(self.num_heads // self.num_kv_heads, dim=1)
            values_BHSV = values_BHSV.repeat_interleave(self.num_heads // self.num_kv_heads, dim=1)
        bias = self.positions.bias(start, x.shape[1], keys_BHSK.shape[2], queries_BHTK)
        if bias is None and (self.way == "at once" or (self.way == "auto" and x.is_cuda)):
            dropout = self.weights_dropout.p if self.training else 0.0
            heads_BHTV = attend_at_once(
                queries_BHTK, keys_BHSK, values_BHSV, mask, causal=causal, dropout=dropout
            )
        else:
            mask = causal_mask(x.shape[1], x.device) if causal else mask
            if mask is not None and can_weigh(queries_BHTK, keys_BHSK, mask, bias):
                weights_BHTS = weigh(queries_BHTK, keys_BHSK, mask)
            else:
                weights_BHTS = attention_weights(queries_BHTK, keys_BHSK, mask, bias)
            heads_BHTV = self.weights_dropout(weights_BHTS) @ values_BHSV
        return self.output(heads_BHTV.transpose(1, 2).flatten(2))  # type: ignore[no-any-return]

    @staticmethod
    def _split_heads(x: Tensor, num_heads: int) -> Tensor:
        """(B, L, H * K) to (B, H, L, K)."""
        rows, length, width = x.shape
        return x.view(rows, length, num_heads, width // num_heads).transpose(1, 2)


@contextmanager
def attending(model: nn.Module, way: Way) -> Iterator[None]:
    """Have a model attend in one way inside the block: "by weights" for those who want to see them."""
    parts = [part for part in model.modules() if isinstance(part, MultiHeadAttention)]
    before = [part.way for part in parts]
    for part in parts:
        part.way = way
    try:
        yield
    finally:
        for part, usual in zip(parts, before, strict=True):
            part.way = usual
