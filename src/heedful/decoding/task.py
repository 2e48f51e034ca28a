"""A source, and the task that a strategy gets of sources and options."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Self

import numpy as np
from numpy.typing import NDArray

from heedful.decoding.terms import Term
from heedful.settings.options import SharedOptions


@dataclass(frozen=True)
class Source:
    """A sentence to be translated.

    Attributes:
        ids: as the encoder reads them, with special tokens; none for an empty text, which is not searched.
        prefix: the ids that its outputs begin with, after `SharedOptions.forced_first_id` where there is one.
        limit: the most tokens of an output, the end token included.
        terms: what its outputs must contain.
    """

    ids: Sequence[int]
    prefix: Sequence[int]
    limit: int
    terms: Sequence[Term] = ()

    @property
    def target_ids(self) -> list[int]:
        """The ids that its outputs need: those of the prefix and of all forms of the terms."""
        of_terms = (form.ids for term in self.terms for form in term.forms)
        return [*self.prefix, *chain.from_iterable(of_terms)]

    @classmethod
    def of(
        cls,
        ids: Sequence[int],
        options: SharedOptions,
        *,
        prefix: Sequence[int] = (),
        longest: int | None,
        terms: Sequence[Term] = (),
    ) -> Self:
        """Return a source with its limit (see `SharedOptions.length_limit`).

        Section 6.1 limits outputs to the length of their inputs + 50.

        Args:
            ids: as the encoder reads them.
            options: of the search.
            prefix: of its outputs.
            longest: what the positions of the model allow; None sets no limit.
            terms: what its outputs must contain.
        """
        limit = options.length_limit(len(ids))
        return cls(ids, prefix, limit if longest is None else min(limit, longest), terms)


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
        sources: for each sentence its ids, which sampling hashes into its seeds, and whose n-grams the
            options may forbid; no other search asks for them.
        prefixes: for each sentence the ids that its outputs begin with, after `options.forced_first_id` where
            there is one; what goes beyond its length limit is not written. None: no outputs begin with any.
        vocab_size: of the outputs, by which sampling bounds its memory; None: unknown.
        terms: for each sentence what its outputs must contain, as far as their length limits allow it; None:
            nothing.
    """

    max_lengths: Sequence[int]
    start_id: int
    eos_id: int
    pad_id: int
    options: SharedOptions
    sources: Sequence[Sequence[int]] = ()
    prefixes: Sequence[Sequence[int]] | None = None
    vocab_size: int | None = None
    terms: Sequence[Sequence[Term]] | None = None

    def start_ids(self) -> NDArray[np.int64]:
        """Return the first input ids, (B,)."""
        return np.full(len(self.max_lengths), self.start_id, dtype=np.int64)
