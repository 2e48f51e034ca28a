"""A source, and the task of a strategy: sources and options."""

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
        ids: the ids that the encoder reads, special tokens included; none for an empty text, which is not
            searched.
        prefix: the ids at the beginning of its outputs, after `SharedOptions.forced_first_id` if there is
            one.
        limit: the maximum number of tokens in an output, the end token included.
        terms: the terms that its outputs must contain.
    """

    ids: Sequence[int]
    prefix: Sequence[int]
    limit: int
    terms: Sequence[Term] = ()

    @property
    def target_ids(self) -> list[int]:
        """The ids that its outputs need: the prefix, and all forms of the terms."""
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
            ids: the ids that the encoder reads.
            options: the options of the search.
            prefix: the ids at the beginning of its outputs.
            longest: the number of learned positions; None: no limit.
            terms: the terms that its outputs must contain.
        """
        limit = options.length_limit(len(ids))
        return cls(ids, prefix, limit if longest is None else min(limit, longest), terms)


@dataclass(frozen=True, kw_only=True)
class SearchTask:
    """The B sentences of a batch, and the options of their search.

    Attributes:
        max_lengths: for each sentence, the maximum number of tokens, the end token included; at least 1.
        start_id: the first input id; never generated, unless the options allow it or it is the end token.
        eos_id: the end token; impossible below the minimum length of the options.
        pad_id: the padding token; never generated, like `start_id`.
        options: the options that all strategies share.
        sources: the ids of each sentence: sampling hashes them into its seeds, and the options may forbid
            their n-grams.
        prefixes: for each sentence the ids at the beginning of its outputs, after `options.forced_first_id`
            if there is one, and up to its length limit. None: no prefixes.
        vocab_size: the size of the target vocabulary, by which sampling bounds its memory; None: unknown.
        terms: for each sentence the terms that its outputs must contain, if its length limit allows; None:
            no terms.
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
