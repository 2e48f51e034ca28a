"""Scaled dot-product attention (3.2.1), multi-head attention (3.2.2), and caches of its keys and values."""

import math
from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn
from typing_extensions import override

from heedful.model.positions import AttentionPositions


def padding_mask(ids_BS: Tensor, pad_id: int) -> Tensor:
    """Allow attention to every position that is not padding: (B, S) ids to (B, 1, 1, S) (3.2.3).

    >>> padding_mask(torch.tensor([[5, 6, 0]]), pad_id=0)
    tensor([[[[ True,  True, False]]]])
    """
    return (ids_BS != pad_id)[:, None, None, :]


def causal_mask(length: int, *, past: int = 0, device: torch.device | None = None) -> Tensor:
    """Allow each position to attend to itself and those before it (3.1, 3.2.3): (1, 1, T, past + T).

    >>> causal_mask(3)[0, 0].int()
    tensor([[1, 0, 0],
            [1, 1, 0],
            [1, 1, 1]], dtype=torch.int32)

    Args:
        length: T, the number of queries.
        past: the number of keys before the first query's own; all may be attended to.
        device: the device of the mask.
    """
    return torch.ones(length, past + length, dtype=torch.bool, device=device).tril(past)[None, None]


def attention_weights(
    queries_BHTK: Tensor,
    keys_BHSK: Tensor,
    mask: Tensor | None,
    bias: Tensor | None = None,
    *,
    cap: float | None = None,
) -> Tensor:
    """Return softmax(Q Kᵀ / sqrt(d_k)), with zero weight where the mask is False (3.2.1).

    A query that may attend to nothing gets zeros, and zero gradients.

    Args:
        queries_BHTK: (B, H, T, d_k).
        keys_BHSK: (B, H, S, d_k).
        mask: bool, True = may attend, broadcastable to (B, H, T, S); None allows everything.
        bias: added to the scaled scores, broadcastable to the same; not in the paper.
        cap: turns a scaled score s into cap * tanh(s / cap); not in the paper. None: leaves it.

    Returns:
        Weights (B, H, T, S); the softmax is computed in float32 at least.
    """
    dtype = queries_BHTK.dtype
    at_least_float32 = torch.promote_types(dtype, torch.float32)
    scores_BHTS = (queries_BHTK @ keys_BHSK.transpose(-2, -1)).to(at_least_float32)
    scores_BHTS = scores_BHTS / math.sqrt(queries_BHTK.shape[-1])
    if cap is not None:
        scores_BHTS = cap * torch.tanh(scores_BHTS / cap)
    if bias is not None:
        scores_BHTS = scores_BHTS + bias
    if mask is None:
        return scores_BHTS.softmax(dim=-1).to(dtype)
    # The lowest finite number acts like -inf, but gives no NaN in a row that is masked throughout. Adding it
    # takes about half the time of masked_fill on all scores, because a mask is broadcast.
    lowest = torch.finfo(at_least_float32).min
    forbidden = torch.zeros_like(mask, dtype=at_least_float32).masked_fill_(~mask, lowest)
    weights_BHTS = (scores_BHTS + forbidden).softmax(dim=-1).to(dtype)
    return weights_BHTS * mask.any(dim=-1, keepdim=True)


class ScaledDotProductAttention(nn.Module):
    """Attention(Q, K, V) = softmax(Q Kᵀ / sqrt(d_k)) V (3.2.1); the paper has no dropout on the weights."""

    def __init__(self, dropout: float = 0.0) -> None:
        super().__init__()
        self.dropout = nn.Dropout(dropout)  # its input is the attention map, for hooks

    def forward(
        self,
        queries_BHTK: Tensor,
        keys_BHSK: Tensor,
        values_BHSV: Tensor,
        mask: Tensor | None,
        *,
        causal: bool = False,
        bias: Tensor | None = None,
    ) -> Tensor:
        """Return the weighted sums of the values, (B, H, T, d_v); see `attention_weights`.

        `causal` instead of a mask: the queries are the last T of S positions, and see no later key.
        """
        length, num_keys = queries_BHTK.shape[2], keys_BHSK.shape[2]
        if causal and length > 1:  # the last position alone sees all keys
            mask = causal_mask(length, past=num_keys - length, device=queries_BHTK.device)
        weights_BHTS = self.weights(queries_BHTK, keys_BHSK, mask, bias)
        heads_BHTV: Tensor = self.dropout(weights_BHTS) @ values_BHSV
        return heads_BHTV

    def weights(
        self, queries_BHTK: Tensor, keys_BHSK: Tensor, mask: Tensor | None, bias: Tensor | None
    ) -> Tensor:
        """Return `attention_weights`, (B, H, T, S)."""
        return attention_weights(queries_BHTK, keys_BHSK, mask, bias)


class MultiHeadAttention(nn.Module):
    """MultiHead(Q, K, V) = Concat(head_1, ..., head_h) W_O (3.2.2).

    head_i = Attention(Q W_Q_i, K W_K_i, V W_V_i). The h projections of queries are one matrix with rows
    grouped by head, and so for keys and values. Not in the paper: fewer heads of keys and values, positions.
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
        self.positions = positions or AttentionPositions()
        self.attention = ScaledDotProductAttention(dropout)

    def forward(
        self,
        x: Tensor,
        context: Tensor,
        mask: Tensor | None,
        *,
        causal: bool = False,
        cache: "KeyValueCache | None" = None,
    ) -> Tensor:
        """Let each position of x attend to the context.

        Args:
            x: (B, T, D), projected to the queries.
            context: (B, S, D), projected to the keys and values; x in self-attention.
            mask: bool, True = may attend, broadcastable to (B, H, T, S); None allows everything.
            causal: instead of a mask: each position sees itself and those before it.
            cache: in incremental decoding, the keys and values of earlier calls.

        Returns:
            (B, T, D).
        """
        start = 0 if cache is None else cache.length  # the position of x's first query
        if cache is None:
            keys_BHSK, values_BHSV = self.keys_and_values(context)
        else:
            keys_BHSK, values_BHSV = cache.update(self.keys_and_values, context)
            mask = mask if cache.mask is None else cache.mask
        bias = self.positions.bias(start, x.shape[1], keys_BHSK.shape[2], keys_BHSK)
        return self.attend(self.queries(x, start), keys_BHSK, values_BHSV, mask, causal=causal, bias=bias)

    def queries(self, x: Tensor, start: int = 0) -> Tensor:
        """Project (B, T, D), from position `start` on, to (B, H, T, d_k)."""
        return self.positions.rotate(self.split_heads(self.query(x), self.num_heads), start)

    def keys_and_values(self, context: Tensor, start: int = 0) -> tuple[Tensor, Tensor]:
        """Project (B, S, D), from position `start` on, to (B, H, S, d_k) and (B, H, S, d_v)."""
        keys_BHSK = self.split_heads(self.key(context), self.num_kv_heads)
        values_BHSV = self.split_heads(self.value(context), self.num_kv_heads)
        return self.positions.rotate(keys_BHSK, start), values_BHSV

    def attend(
        self,
        queries_BHTK: Tensor,
        keys_BHSK: Tensor,
        values_BHSV: Tensor,
        mask: Tensor | None,
        *,
        causal: bool = False,
        bias: Tensor | None = None,
    ) -> Tensor:
        """Return Concat(head_1, ..., head_h) W_O, (B, T, D)."""
        if self.num_kv_heads < self.num_heads:  # each group of queries shares a head of keys and values
            keys_BHSK = keys_BHSK.repeat_interleave(self.num_heads // self.num_kv_heads, dim=1)
            values_BHSV = values_BHSV.repeat_interleave(self.num_heads // self.num_kv_heads, dim=1)
        heads_BHTV = self.attention(queries_BHTK, keys_BHSK, values_BHSV, mask, causal=causal, bias=bias)
        return self.output(heads_BHTV.transpose(1, 2).flatten(2))  # type: ignore[no-any-return]

    @staticmethod
    def split_heads(x: Tensor, num_heads: int) -> Tensor:
        """Reshape (B, L, H * K) to (B, H, L, K)."""
        rows, length, width = x.shape
        return x.view(rows, length, num_heads, width // num_heads).transpose(1, 2)


# `MultiHeadAttention.keys_and_values`: states (B, L, D) and the position of the first of them.
Projection = Callable[[Tensor, int], tuple[Tensor, Tensor]]


class KeyValueCache:
    """The keys (B, H, S, d_k) and values (B, H, S, d_v) of earlier calls; here, the first call's stay."""

    length = 0  # the position of the next query
    tensors: tuple[Tensor, ...] = ()
    mask: Tensor | None = None  # of the keys to attend to, (1, 1, 1, S); None: the caller's

    def update(self, project: Projection, context: Tensor) -> tuple[Tensor, Tensor]:
        """Return the keys and values to attend to, including those of the context (B, S, D)."""
        if not self.tensors:
            self.tensors = project(context, 0)
        keys, values = self.tensors
        return keys, values

    def reorder(self, rows: Tensor) -> None:
        """Replace row i by row `rows[i]`."""
        self.tensors = tuple(each.index_select(0, rows) for each in self.tensors)


class GrowingCache(KeyValueCache):
    """The keys and values of all positions so far, for self-attention: each call adds its context's."""

    @override
    def update(self, project: Projection, context: Tensor) -> tuple[Tensor, Tensor]:
        added = project(context, self.length)
        start, self.length = self.length, self.length + context.shape[1]
        if not self.tensors:
            self.tensors = tuple(each.new_empty(*each.shape[:2], 16, each.shape[3]) for each in added)
        while self.length > self.tensors[0].shape[2]:
            self.tensors = tuple(torch.cat([each, torch.empty_like(each)], dim=2) for each in self.tensors)
        for each, new in zip(self.tensors, added, strict=True):
            each[:, :, start : self.length] = new
        keys, values = (each[:, :, : self.length] for each in self.tensors)
        return keys, values


@dataclass(frozen=True)
class Memory:
    """The encoder's output: states (B, S, D) and the padding mask (B, 1, 1, S), True = real token."""

    states: Tensor
    mask: Tensor


@dataclass
class LayerCache:
    """The caches of a decoder layer's attention over the target and over the memory."""

    target: KeyValueCache = field(default_factory=GrowingCache)
    memory: KeyValueCache = field(default_factory=KeyValueCache)


class DecoderCache:
    """The caches of all layers, the encoder's output, and the number of decoded positions."""

    def __init__(self, layers: list[LayerCache], memory: Memory) -> None:
        self.layers = layers
        self.memory = memory
        self.length: int | Tensor = 0  # or (1,), on the device
        self._sentences = torch.arange(memory.mask.shape[0])  # on the CPU, where they are compared

    def reorder(self, rows: Tensor) -> None:
        """Replace row i by row `rows[i]`; rows may be repeated or dropped.

        Args:
            rows: int64 (new number of rows,), each below the old number; on the CPU, to avoid a GPU
                synchronisation. If every row stays with its sentence, as between two steps of a beam search,
                the memory is not copied.
        """
        sentences = self._sentences.index_select(0, rows)
        same_sentences = torch.equal(sentences, self._sentences)
        rows = rows.to(self.memory.mask.device, non_blocking=True)
        for layer in self.layers:
            layer.target.reorder(rows)
        if same_sentences:
            return
        for layer in self.layers:
            layer.memory.reorder(rows)
        self.memory = Memory(self.memory.states.index_select(0, rows), self.memory.mask.index_select(0, rows))
        self._sentences = sentences
