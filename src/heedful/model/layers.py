"""One encoder layer and one decoder layer (3.1): sub-layers, each with a residual connection and a norm."""

import math
from collections.abc import Callable
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from heedful.model.attention import LayerCache, MultiHeadAttention

Activation = Callable[[Tensor], Tensor]
ACTIVATIONS: dict[str, Activation] = {
    "relu": torch.relu,
    "gelu": F.gelu,
    "gelu_tanh": partial(F.gelu, approximate="tanh"),
    "swish": F.silu,
}


class FeedForward(nn.Module):
    """FFN(x) = max(0, x W_1 + b_1) W_2 + b_2, the same at every position (3.3, equation 2)."""

    def __init__(
        self,
        d_model: int,
        d_ff: int,
        *,
        activation: str | Activation = "relu",
        dropout: float = 0.0,
        bias: bool = True,
    ) -> None:
        super().__init__()
        self.inner = nn.Linear(d_model, d_ff, bias=bias)
        self.outer = nn.Linear(d_ff, d_model, bias=bias)
        self.activation = ACTIVATIONS[activation] if isinstance(activation, str) else activation
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        """Return FFN(x): (B, L, D) to (B, L, D)."""
        y: Tensor = self.outer(self.dropout(self.hidden(x)))
        return y

    def hidden(self, x: Tensor) -> Tensor:
        """Return f(x W_1 + b_1), with f(x) = max(0, x) in the paper: (B, L, D) to (B, L, F)."""
        return self.activation(self.inner(x))


class InputEmbedding(nn.Module):
    """The input of a stack's first layer: scaled embeddings (3.4) plus positions (3.5), with dropout (5.4).

    The token embedding may be shared with another stack.

    Not in the paper: a norm after the dropout; and word dropout (Gal & Ghahramani, 2016), which in training
    zeroes whole token embeddings, each occurrence independently, and leaves only the position. The others are
    scaled by 1 / (1 - p), so that the mean stays, as in Nematus, with which Sennrich & Zhang (2019) found it
    to help where data is scarce.
    """

    def __init__(
        self,
        tokens: nn.Embedding,
        positions: nn.Module,
        *,
        dropout: float,
        word_dropout: float = 0.0,
        scale: bool = True,
        norm: nn.Module | None = None,
    ) -> None:
        super().__init__()
        self.tokens = tokens
        self.positions = positions
        self.scale = math.sqrt(tokens.embedding_dim) if scale else 1.0
        self.word_dropout = nn.Dropout1d(word_dropout)
        self.dropout = nn.Dropout(dropout)
        self.norm = norm or nn.Identity()

    def forward(self, ids: Tensor, start: int | Tensor = 0) -> Tensor:
        """Embed ids (B, L), from position `start` on: (B, L, D)."""
        x = self.word_dropout(self.tokens(ids) * self.scale) + self.positions(start, ids.shape[1])
        return self.norm(self.dropout(x))  # type: ignore[no-any-return]


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
    """Self-attention, then feed-forward (3.1)."""

    def __init__(
        self,
        self_attention: MultiHeadAttention,
        feed_forward: FeedForward,
        *,
        norm: Callable[[], nn.Module],
        residual: Callable[[], Residual],
    ) -> None:
        super().__init__()
        self.residual = residual()
        self.self_attention = self_attention
        self.self_attention_norm = norm()
        self.feed_forward = feed_forward
        self.feed_forward_norm = norm()

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        """Transform source states: (B, S, D) to (B, S, D)."""
        x = self.residual(x, lambda x: self.self_attention(x, x, mask), self.self_attention_norm)
        return self.residual(x, self.feed_forward, self.feed_forward_norm)  # type: ignore[no-any-return]


class DecoderLayer(nn.Module):
    """Masked self-attention, attention over the encoder's output, then feed-forward (3.1).

    Not in the paper: a recurrent unit in the place of self-attention, with the same arguments.
    """

    def __init__(
        self,
        self_attention: nn.Module,
        cross_attention: MultiHeadAttention,
        feed_forward: FeedForward,
        *,
        norm: Callable[[], nn.Module],
        residual: Callable[[], Residual],
    ) -> None:
        super().__init__()
        self.residual = residual()
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

        With a cache, x has only the new positions, which also attend to the positions of earlier calls.
        """
        past, source = (None, None) if cache is None else (cache.target, cache.memory)
        x = self.residual(
            x, lambda x: self.self_attention(x, x, None, causal=True, cache=past), self.self_attention_norm
        )
        x = self.residual(
            x, lambda x: self.cross_attention(x, memory, memory_mask, cache=source), self.cross_attention_norm
        )
        return self.residual(x, self.feed_forward, self.feed_forward_norm)  # type: ignore[no-any-return]
