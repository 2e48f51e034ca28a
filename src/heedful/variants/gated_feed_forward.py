"""Gated feed-forward networks (GLU); not in the paper."""

from torch import Tensor, nn

from heedful.nn.feed_forward import FeedForward


class GatedFeedForward(FeedForward):
    """GLU variants (Shazeer, 2020): (f(x W_g) * x W_1) W_2, where f is the activation."""

    def __init__(
        self, d_model: int, d_ff: int, *, activation: str, dropout: float = 0.0, bias: bool = True
    ) -> None:
        super().__init__(d_model, d_ff, activation=activation, dropout=dropout, bias=bias)
        self.gate = nn.Linear(d_model, d_ff, bias=bias)

    def hidden(self, x: Tensor) -> Tensor:
        """Return f(x W_g) * x W_1: (B, L, D) to (B, L, F)."""
        inner: Tensor = self.inner(x)
        return self.activation(self.gate(x)) * inner
