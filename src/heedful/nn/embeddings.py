"""Input embedding: token embedding times sqrt(d_model) (3.4) plus positions (3.5), then dropout (5.4)."""

import math

from torch import Tensor, nn

from heedful.nn.positions import LearnedPositions, NoPositions, SinusoidalPositions


class InputEmbedding(nn.Module):
    """The input of the first layer of a stack. The token embedding may be shared with another stack.

    Not in the paper: a norm after the dropout; and word dropout (Gal & Ghahramani, 2016), which in training
    zeroes whole token embeddings, each occurrence independently, and leaves only the position. The others are
    scaled by 1 / (1 - p), so that the mean stays, as in Nematus, with which Sennrich & Zhang (2019) found it
    to help where data is scarce.
    """

    def __init__(
        self,
        tokens: nn.Embedding,
        positions: SinusoidalPositions | LearnedPositions | NoPositions,
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

    def forward(self, ids: Tensor, start: int = 0) -> Tensor:
        """Embed ids (B, L), from position `start` on: (B, L, D)."""
        x = self.word_dropout(self.tokens(ids) * self.scale) + self.positions(start, ids.shape[1])
        return self.norm(self.dropout(x))  # type: ignore[no-any-return]
