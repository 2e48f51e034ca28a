"""One encoder layer and one decoder layer (3.1): sub-layers, each with a residual connection and a norm."""

from collections.abc import Callable
from functools import partial

from torch import Tensor, nn

from heedful.nn.attention import MultiHeadAttention
from heedful.nn.cache import LayerCache
from heedful.nn.feed_forward import FeedForward


class Residual(nn.Module):
    """LayerNorm(x + Dropout(Sublayer(x))) (3.1, 5.4), "Add & Norm" in Figure 1.

    With `norm_first` it is x + Dropout(Sublayer(LayerNorm(x))) (Xiong et al., 2020).
    """

    def __init__(self, dropout: float, *, norm_first: bool = False) -> None:
        super().__init__()
        self.dropout = nn.Dropout(dropout)
        self.norm_first = norm_first

    def forward(self, x: Tensor, sublayer: Callable[[Tensor], Tensor], norm: nn.Module) -> Tensor:
        """Wrap a sub-layer: (B, L, D) to (B, L, D)."""
        if self.norm_first:
            return x + self.dropout(sublayer(norm(x)))  # type: ignore[no-any-return]
        return norm(x + self.dropout(sublayer(x)))  # type: ignore[no-any-return]


class EncoderLayer(nn.Module):
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
        super().__init__()
        norm = partial(nn.RMSNorm if rms_norm else nn.LayerNorm, d_model, eps)
        self.residual = Residual(dropout, norm_first=norm_first)
        self.self_attention = self_attention
        self.self_attention_norm = norm()
        self.feed_forward = feed_forward
        self.feed_forward_norm = norm()

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        """Transform source states: (B, S, D) to (B, S, D)."""
        x = self.residual(x, lambda x: self.self_attention(x, x, mask), self.self_attention_norm)
        return self.residual(x, self.feed_forward, self.feed_forward_norm)  # type: ignore[no-any-return]


class DecoderLayer(nn.Module):
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
        super().__init__()
        norm = partial(nn.RMSNorm if rms_norm else nn.LayerNorm, d_model, eps)
        self.residual = Residual(dropout, norm_first=norm_first)
        self.self_attention = self_attention
        self.self_attention_norm = norm()
        self.cross_attention = cross_attention
        self.cross_attention_norm = norm()
        self.feed_forward = feed_forward
        self.feed_forward_norm = norm()

    def forward(
        self, x: Tensor, memory: Tensor, memory_mask: Tensor, cache: LayerCache | None = None
    ) -> Tensor:
        """Transform target states (B, T, D), given source states (B, S, D); no position sees a later one.

        With a cache, x has only the new positions, which also attend to those of earlier calls.
        """
        past, source = (None, None) if cache is None else (cache.target, cache.memory)
        x = self.residual(
            x, lambda x: self.self_attention(x, x, None, causal=True, cache=past), self.self_attention_norm
        )
        x = self.residual(
            x, lambda x: self.cross_attention(x, memory, memory_mask, cache=source), self.cross_attention_norm
        )
        return self.residual(x, self.feed_forward, self.feed_forward_norm)  # type: ignore[no-any-return]
