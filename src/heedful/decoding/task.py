"""The task of searching one batch, as one frozen value."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from heedful.decoding.options import SearchOptions


@dataclass(frozen=True, kw_only=True)
class SearchTask:
    """The sentences of a batch, B of them, and how their outputs are searched.

    Attributes:
        max_lengths: for each sentence, the most tokens to generate, the end token included; at least 1.
        start_id: the first input id; never generated, unless the options say otherwise or it is the end
            token.
        eos_id: ends an output; waits for the minimal length of the options.
        pad_id: never generated, like `start_id`.
        options: of the search; its algorithm is that of the strategy.
        sources: for each sentence its ids, which sampling hashes into its seeds; no other search asks for
            them.
        prefixes: for each sentence the ids that its outputs begin with, after `options.forced_first_id` where
            there is one; what goes beyond its length limit is not written. None: no outputs begin with any.
        vocab_size: of the outputs, by which sampling bounds its memory; None: unknown.
    """

    max_lengths: Sequence[int]
    start_id: int
    eos_id: int
    pad_id: int
    options: "SearchOptions"
    sources: Sequence[Sequence[int]] = ()
    prefixes: Sequence[Sequence[int]] | None = None
    vocab_size: int | None = None

    def start_ids(self) -> NDArray[np.int64]:
        """Return the first input ids, (B,)."""
        return np.full(len(self.max_lengths), self.start_id, dtype=np.int64)
