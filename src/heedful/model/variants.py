"""Departures from the paper: other orders of its sinusoids, relative positions, gated feed-forward, SSRU.

Relative positions are seen by self-attention: rotary (RoPE), ALiBi, and T5's buckets. The paper adds absolute
positions to the input instead (3.5). Options of the Gemma family: windows, capped scores and logits, norms of
queries and keys, two norms for each sub-layer, and one attention over source and target.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from typing_extensions import override

from heedful.model.attention import (
    KeyValueCache,
    LayerCache,
    MultiHeadAttention,
    ScaledDotProductAttention,
    attention_weights,
    causal_mask,
)
from heedful.model.layers import Activation, EncoderLayer, FeedForward, Residual
from heedful.model.positions import AttentionPositions, sinusoids


def concatenated_sinusoids(length: int, d_model: int) -> Tensor:
    """Return the paper's sinusoids (length, d_model), all sines, then all cosines: transformers' MarianMT."""
    interleaved = sinusoids(length, d_model)
    return torch.cat([interleaved[:, 0::2], interleaved[:, 1::2]], dim=1)


@dataclass(frozen=True)
class OffsetSinusoids:
    """The sinusoids of tensor2tensor, all sines, then all cosines, and of the toolkits that took them over.

    The i-th of d_model / 2 angles is (pos + offset) / 10000^(i / (d_model / 2 - 1)): the wavelengths reach
    10000 * 2 pi. Positions count from the offset: 0 in Marian and OpenNMT-py's SinusoidalConcat, 1 in
    OpenNMT-tf and in CTranslate2 for files without positions, 2 in fairseq, FSMT and M2M100.
    """

    offset: int

    def __call__(self, length: int, d_model: int) -> Tensor:
        """Return the sinusoids (length, d_model) in float32.

        The angles are computed in float32, as in training: the rounding error is 7e-5 at position 1,000.
        """
        positions = torch.arange(self.offset, length + self.offset, dtype=torch.float32)[:, None]
        angles = positions * self.rates(d_model)
        return torch.cat([angles.sin(), angles.cos()], dim=1)

    @staticmethod
    def rates(d_model: int) -> Tensor:
        """Return what a position is multiplied by, for each angle, (d_model / 2,)."""
        count = d_model // 2
        step = math.log(10_000) / max(1, count - 1)
        return torch.exp(torch.arange(count, dtype=torch.float32) * -step)


class RotaryPositions(AttentionPositions):
    """RoPE (Su et al., 2021): pairs of dimensions are rotated by an angle proportional to the position.

    The pair (i, i + d_k / 2) is rotated by position / base^(2i / d_k), so the product of a query and a key
    depends on their distance. For longer sequences, positions may be divided by `scale` (Chen et al., 2023).
    With a window (before, after), a query sees only that many keys on each side (Beltagy et al., 2020).
    """

    def __init__(
        self, *, base: float = 10_000, scale: float = 1.0, window: tuple[int, int] | None = None
    ) -> None:
        super().__init__()
        self.base, self.scale, self.window = base, scale, window

    @override
    def rotate(self, heads_BHLK: Tensor, start: int) -> Tensor:
        """The angles are computed in float64."""
        length, d_k = heads_BHLK.shape[-2:]
        positions = torch.arange(start, start + length, dtype=torch.float64, device=heads_BHLK.device)
        pairs = torch.arange(0, d_k, 2, dtype=torch.float64, device=heads_BHLK.device)
        angles_LK = positions[:, None] / self.scale / self.base ** (pairs / d_k)
        cos_LK, sin_LK = angles_LK.cos().type_as(heads_BHLK), angles_LK.sin().type_as(heads_BHLK)
        first, second = heads_BHLK.chunk(2, dim=-1)
        return torch.cat([first * cos_LK - second * sin_LK, second * cos_LK + first * sin_LK], dim=-1)

    @override
    def bias(self, start: int, num_queries: int, num_keys: int, like: Tensor) -> Tensor | None:
        if self.window is None or num_keys <= min(self.window) + 1:
            return None
        before, after = self.window
        distances_TS = relative_distances(start, num_queries, num_keys, like.device)
        outside_TS = (distances_TS < -before) | (distances_TS > after)
        return torch.zeros_like(outside_TS, dtype=like.dtype).masked_fill_(
            outside_TS, torch.finfo(like.dtype).min
        )


class LinearBiases(AttentionPositions):
    """ALiBi (Press et al., 2022): a score falls by a slope, one for each head, times the distance.

    Head h of H, a power of two, has the slope 2^(-8 (h + 1) / H); for other H, first the slopes of the power
    of two below, then every other one of the power above. Distances are absolute.
    """

    def __init__(self, num_heads: int) -> None:
        super().__init__()
        self.slopes = alibi_slopes(num_heads)

    @override
    def bias(self, start: int, num_queries: int, num_keys: int, like: Tensor) -> Tensor:
        distances_TS = relative_distances(start, num_queries, num_keys, like.device).abs()
        slopes_H11 = torch.tensor(self.slopes, device=like.device)[:, None, None]
        return (-slopes_H11 * distances_TS).type_as(like)


class BucketedBiases(AttentionPositions):
    """T5's relative positions (Raffel et al., 2020): a trained number for each head and bucket of distances.

    Half of the buckets hold one distance each, the others grow logarithmically up to `max_distance`. In an
    encoder half of all buckets are for keys to the right; a decoder has no such keys.
    """

    def __init__(
        self, num_heads: int, *, num_buckets: int = 32, max_distance: int = 128, bidirectional: bool
    ) -> None:
        super().__init__()
        self.num_buckets = num_buckets
        self.max_distance = max_distance
        self.bidirectional = bidirectional
        self.weight = nn.Parameter(torch.empty(num_buckets, num_heads))

    @override
    def bias(self, start: int, num_queries: int, num_keys: int, like: Tensor) -> Tensor:
        distances_TS = relative_distances(start, num_queries, num_keys, like.device)
        return self.weight[self.buckets(distances_TS)].permute(2, 0, 1).type_as(like)

    def buckets(self, distances: Tensor) -> Tensor:
        """Return the bucket of each distance, key position minus query position: int64, same shape."""
        num_buckets, offset = self.num_buckets, torch.zeros_like(distances)
        if self.bidirectional:
            num_buckets //= 2
            offset = (distances > 0) * num_buckets
            distances = distances.abs()
        else:
            distances = (-distances).clamp(min=0)
        num_exact = num_buckets // 2
        # In float32, as in T5: a distance between two buckets must be rounded in the same way.
        logarithm = torch.log(distances.clamp(min=1).float() / num_exact)
        steps = logarithm / math.log(self.max_distance / num_exact) * (num_buckets - num_exact)
        far = (num_exact + steps.long()).clamp(max=num_buckets - 1)
        return offset + torch.where(distances < num_exact, distances, far)


def relative_distances(start: int, num_queries: int, num_keys: int, device: torch.device) -> Tensor:
    """Return key position minus query position, (T, S) int64, for queries from `start` on, keys from 0."""
    queries = torch.arange(start, start + num_queries, device=device)
    return torch.arange(num_keys, device=device)[None, :] - queries[:, None]


def alibi_slopes(num_heads: int) -> list[float]:
    """Return the slope of each head; see `LinearBiases`."""
    power = 2 ** int(math.log2(num_heads))
    slopes = [2.0 ** (-8 * (head + 1) / power) for head in range(power)]
    between = [2.0 ** (-4 * (head + 1) / power) for head in range(0, 2 * power, 2)]
    return slopes + between[: num_heads - power]


class CappedAttention(ScaledDotProductAttention):
    """Attention with scores between -cap and cap (Gemma 2; see `attention_weights`)."""

    def __init__(self, dropout: float, cap: float) -> None:
        super().__init__(dropout)
        self.cap = cap

    @override
    def weights(
        self, queries_BHTK: Tensor, keys_BHSK: Tensor, mask: Tensor | None, bias: Tensor | None
    ) -> Tensor:
        return attention_weights(queries_BHTK, keys_BHSK, mask, bias, cap=self.cap)


class CappedLinear(nn.Linear):
    """A linear layer with outputs y between -cap and cap: cap * tanh(y / cap) (Bello et al., 2016)."""

    def __init__(self, in_features: int, out_features: int, *, bias: bool, cap: float) -> None:
        super().__init__(in_features, out_features, bias=bias)
        self.cap = cap

    @override
    def forward(self, input: Tensor) -> Tensor:
        return self.cap * torch.tanh(super().forward(input) / self.cap)


class NormalisedAttention(MultiHeadAttention):
    """Multi-head attention with an RMSNorm over each head's query and key (Henry et al., 2020)."""

    def __init__(self, d_model: int, num_heads: int, *, eps: float = 1e-6, **settings: Any) -> None:  # noqa: ANN401
        super().__init__(d_model, num_heads, **settings)
        d_k = self.query.out_features // num_heads
        self.query_norm, self.key_norm = nn.RMSNorm(d_k, eps), nn.RMSNorm(d_k, eps)

    @override
    def queries(self, x: Tensor, start: int = 0) -> Tensor:
        heads_BHTK = self.split_heads(self.query(x), self.num_heads)
        return self.positions.rotate(self._normalised(heads_BHTK, self.query_norm), start)

    @override
    def keys_and_values(self, context: Tensor, start: int | None = 0) -> tuple[Tensor, Tensor]:
        """As `MultiHeadAttention`'s; `start` None: the keys have no positions."""
        keys_BHSK, values_BHSV = (
            self.split_heads(project(context), self.num_kv_heads) for project in (self.key, self.value)
        )
        keys_BHSK = self._normalised(keys_BHSK, self.key_norm)
        return keys_BHSK if start is None else self.positions.rotate(keys_BHSK, start), values_BHSV

    @staticmethod
    def _normalised(heads_BHLK: Tensor, norm: nn.RMSNorm) -> Tensor:
        """Return normalised heads, of their own type, computed in the norm's: float32 under autocast."""
        return norm(heads_BHLK.type_as(norm.weight)).type_as(heads_BHLK)  # type: ignore[no-any-return]


class MergedDecoderLayer(EncoderLayer):
    """One attention over the source and the target so far, then feed-forward (T5Gemma 2).

    Keys of the source, which come first, have no positions, and no window hides them.
    """

    self_attention: NormalisedAttention

    @property
    def cross_attention(self) -> NormalisedAttention:
        """The attention whose first S weights are on the source."""
        return self.self_attention

    @override
    def forward(  # type: ignore[override]
        self, x: Tensor, memory: Tensor, memory_mask: Tensor, cache: LayerCache | None = None
    ) -> Tensor:
        """Transform target states: (B, T, D) to (B, T, D); the arguments are as for `DecoderLayer`."""
        x = self.residual(x, lambda x: self._attend(x, memory, memory_mask, cache), self.self_attention_norm)
        return self.residual(x, self.feed_forward, self.feed_forward_norm)  # type: ignore[no-any-return]

    def _attend(self, x: Tensor, memory: Tensor, memory_mask: Tensor, cache: LayerCache | None) -> Tensor:
        attention, start = self.self_attention, 0
        if cache is None:
            source, target = attention.keys_and_values(memory, None), attention.keys_and_values(x)
        else:
            start = cache.target.length
            source = cache.memory.update(lambda states, _: attention.keys_and_values(states, None), memory)
            target = cache.target.update(attention.keys_and_values, x)
        keys_BHSK, values_BHSV = (torch.cat(each, dim=2) for each in zip(source, target, strict=True))
        length, num_targets = x.shape[1], target[0].shape[2]
        past = causal_mask(length, past=start, device=x.device)
        mask = torch.cat([memory_mask.expand(-1, -1, length, -1), past.expand(len(x), -1, -1, -1)], dim=-1)
        bias = attention.positions.bias(start, length, num_targets, keys_BHSK)
        if bias is not None:
            bias = nn.functional.pad(bias, (memory.shape[1], 0))
        return attention.attend(attention.queries(x, start), keys_BHSK, values_BHSV, mask, bias=bias)


class NormPair(nn.Module):
    """The norms before and after one sub-layer."""

    def __init__(self, norm: Callable[[], nn.Module]) -> None:
        super().__init__()
        self.before, self.after = norm(), norm()


class SandwichResidual(Residual):
    """x + Dropout(Norm(Sublayer(Norm(x)))), with two norms for each sub-layer (Ding et al., 2021)."""

    @override
    def forward(self, x: Tensor, sublayer: Callable[[Tensor], Tensor], norm: nn.Module) -> Tensor:
        """The norm is a `NormPair`."""
        return x + self.dropout(norm.after(sublayer(norm.before(x)).type_as(x)))  # type: ignore[no-any-return, operator]


class GatedFeedForward(FeedForward):
    """GLU variants (Shazeer, 2020): (f(x W_g) * x W_1) W_2, where f is the activation."""

    def __init__(
        self,
        d_model: int,
        d_ff: int,
        *,
        activation: str | Activation = "relu",
        dropout: float = 0.0,
        bias: bool = True,
    ) -> None:
        super().__init__(d_model, d_ff, activation=activation, dropout=dropout, bias=bias)
        self.gate = nn.Linear(d_model, d_ff, bias=bias)

    def hidden(self, x: Tensor) -> Tensor:
        """Return f(x W_g) * x W_1: (B, L, D) to (B, L, F)."""
        inner: Tensor = self.inner(x)
        return self.activation(self.gate(x)) * inner


class SSRU(nn.Module):
    """A simpler simple recurrent unit in the place of a decoder's self-attention (Kim et al., 2019).

    f_t = sigmoid(W_f x_t + b_f), c_t = f_t * c_(t-1) + (1 - f_t) * W x_t, and the output is relu(c_t). A
    cache has the latest c alone, (B, 1, D).
    """

    def __init__(self, d_model: int) -> None:
        super().__init__()
        self.input = nn.Linear(d_model, d_model, bias=False)
        self.forget = nn.Linear(d_model, d_model)

    def forward(
        self,
        x: Tensor,
        context: Tensor,
        mask: Tensor | None,
        *,
        causal: bool = True,
        cache: KeyValueCache | None = None,
    ) -> Tensor:
        """Return relu(c), (B, T, D); the arguments are as for `MultiHeadAttention`."""
        forget = torch.sigmoid(self.forget(x).float())
        added = (1 - forget) * self.input(x)
        if cache is not None and cache.tensors:
            added = torch.cat([added[:, :1] + forget[:, :1] * cache.tensors[0], added[:, 1:]], dim=1)
        states = linear_recurrence(forget, added)
        if cache is not None:
            cache.tensors = (states[:, -1:],)
        return torch.relu(states).type_as(x)


def linear_recurrence(factors: Tensor, added: Tensor) -> Tensor:
    """Return c_t = factors_t * c_(t-1) + added_t, with c_(-1) = 0, all (B, T, D).

    After each of log2(T) rounds a position has the sum of twice as many terms (Hillis & Steele, 1986).
    """
    step = 1
    while step < added.shape[1]:
        added = added + factors * nn.functional.pad(added[:, :-step], (0, 0, step, 0))
        factors = factors * nn.functional.pad(factors[:, :-step], (0, 0, step, 0))
        step *= 2
    return added
