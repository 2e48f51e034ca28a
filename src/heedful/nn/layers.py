"""One encoder layer and one decoder layer (3.1): sub-layers, each with a residual connection and a norm."""

from collections.abc import Callable
from functools import partial

from torch import Tensor, nn

from heedful.nn.attention import MultiHeadAttention
from heedful.nn.cache import LayerCache
from heedful.nn.dropout import Dropout
from heedful.nn.feed_forward import FeedForward
from heedful.nn.fused import residual_norm


class ResidualLayer(nn.Module):
    """What both kinds of layer share: how a sub-layer is wrapped."""

    def __init__(self, dropout: float, *, norm_first: bool) -> None:
        super().__init__()
        self.residual_dropout = Dropout(dropout)
        self.norm_first = norm_first

    def wrap(self, x: Tensor, norm: nn.Module, sublayer: Callable[[Tensor], Tensor]) -> Tensor:
        """Return LayerNorm(x + Dropout(Sublayer(x))) (3.1, 5.4), or x + Dropout(Sublayer(LayerNorm(x)))."""
        if self.norm_first:
            return x + self.residual_dropout(sublayer(norm(x)))  # type: ignore[no-any-return]
        return residual_norm(x, sublayer(x), self.residual_dropout, norm)


class EncoderLayer(ResidualLayer):
    """Self-attention, then feed-forward."""

    def __init__(
        self,
        self_attention: MultiHeadAttention,
        feed_forward: FeedForward,
        *,
        d_model: int,
        dropout: float,
        norm_first: bool = False,
        rms_norm: bool = False,
        eps: float = 1e-5,
    ) -> None:
        super().__init__(dropout, norm_first=norm_first)
        norm = partial(nn.RMSNorm if rms_norm else nn.LayerNorm, d_model, eps)
        self.self_attention = self_attention
        self.self_attention_norm = norm()
        self.feed_forward = feed_forward
        self.feed_forward_norm = norm()

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        """Transform source states: (B, S, D) to (B, S, D)."""
        x = self.wrap(x, self.self_attention_norm, lambda x: self.self_attention(x, x, mask))
        return self.wrap(x, self.feed_forward_norm, self.feed_forward)


class DecoderLayer(ResidualLayer):
    """Masked self-attention, attention over the encoder's output, then feed-forward."""

    def __init__(
        self,
        self_attention: MultiHeadAttention,
        cross_attention: MultiHeadAttention,
        feed_forward: FeedForward,
        *,
        d_model: int,
        dropout: float,
        norm_first: bool = False,
        rms_norm: bool = False,
        eps: float = 1e-5,
    ) -> None:
        super().__init__(dropout, norm_first=norm_first)
        norm = partial(nn.RMSNorm if rms_norm else nn.LayerNorm, d_model, eps)
        self.self_attention = self_attention
        self.self_attention_norm = norm()
        self.cross_attention = cross_attention
        self.cross_attention_norm = norm()
        self.feed_forward = feed_forward
        self.feed_forward_norm = norm()

    def forward(self, x: Tensor, memory: Tensor, memory_mask: Tensor) -> Tensor:
        """Transform target states (B, T, D), all positions at once, given source states (B, S, D)."""
        x = self.wrap(x, self.self_attention_norm, lambda x: self.self_attention(x, x, None, causal=True))
        x = self.wrap(x, self.cross_attention_norm, lambda x: self.cross_attention(x, memory, memory_mask))
        return self.wrap(x, self.feed_forward_norm, self.feed_forward)

    def step(self, x: Tensor, cache: LayerCache, memory_mask: Tensor) -> Tensor:
        """Transform the newest target position alone (B, 1, D), given the cache of the earlier ones."""

        def attend_to_past(x: Tensor) -> Tensor:
            start = cache.length
            past = cache.extend(*self.self_attention.keys_and_values(x, start))
            return self.self_attention.attend(x, *past, None, start)

        def attend_to_memory(x: Tensor) -> Tensor:
            return self.cross_attention.attend(x, cache.memory_keys, cache.memory_values, memory_mask)

        x = self.wrap(x, self.self_attention_norm, attend_to_past)
        x = self.wrap(x, self.cross_attention_norm, attend_to_memory)
        return self.wrap(x, self.feed_forward_norm, self.feed_forward)
