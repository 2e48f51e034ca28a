"""What a search is asked for, as one frozen value."""

import math
from dataclasses import dataclass
from typing import Literal

from heedful.config import DecodeConfig
from heedful.errors import InputError

EarlyStopping = Literal["optimal", "first"]


@dataclass(frozen=True, kw_only=True)
class SearchOptions:
    """How outputs are searched; the defaults are the paper's (section 6.1).

    Lengths count the end-of-sequence token on both sides, as the model does.

    Attributes:
        beam_size: hypotheses of one sentence, live and finished together; 1 is greedy search.
        n_best: how many finished hypotheses to return, at most `beam_size`.
        length_penalty: alpha of the GNMT penalty ((5 + |Y|) / 6) ** alpha, at least 0.
        max_length_offset: an output is at most this much longer than its input.
        min_length: the fewest tokens before the end of the output.
        early_stopping: "optimal" ends a sentence when no live hypothesis can still enter its n-best list;
            "first" ends it as soon as `n_best` hypotheses are finished.
    """

    beam_size: int = 4
    n_best: int = 1
    length_penalty: float = 0.6
    max_length_offset: int = 50
    min_length: int = 0
    early_stopping: EarlyStopping = "optimal"

    def __post_init__(self) -> None:
        if self.beam_size < 1:
            raise InputError(f"beam_size={self.beam_size}: must be at least 1")
        if not 1 <= self.n_best <= self.beam_size:
            raise InputError(f"n_best={self.n_best}: must lie between 1 and beam_size={self.beam_size}")
        if not (math.isfinite(self.length_penalty) and self.length_penalty >= 0):
            raise InputError(f"length_penalty={self.length_penalty}: must be a number of at least 0")
        if self.max_length_offset < 0:
            raise InputError(f"max_length_offset={self.max_length_offset}: must be at least 0")
        if self.min_length < 0:
            raise InputError(f"min_length={self.min_length}: must be at least 0")
        if self.early_stopping not in ("optimal", "first"):
            raise InputError(f"early_stopping={self.early_stopping!r}: must be 'optimal' or 'first'")

    @classmethod
    def from_config(cls, config: DecodeConfig) -> "SearchOptions":
        """The search that a configuration asks for."""
        return cls(
            beam_size=config.beam_size,
            n_best=config.n_best,
            length_penalty=config.length_penalty,
            max_length_offset=config.max_length_offset,
        )
