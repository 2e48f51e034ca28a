"""The task of a strategy, with its sources and options; hypotheses, and outputs under construction."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Self

import numpy as np

from heedful.decoding.steps import Bools, Floats, Ids, Ints
from heedful.decoding.terms import Term
from heedful.errors import InputError
from heedful.settings.options import SharedOptions
from heedful.storage.adapter import Adapter

_FIRST_POSITIONS = 64  # the capacity of an output at first
NO_CONTINUATION = "search: the model gives no possible continuation any probability"


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
        adapter: what changes the model for this sentence; None: nothing.
    """

    ids: Sequence[int]
    prefix: Sequence[int]
    limit: int
    terms: Sequence[Term] = ()
    adapter: Adapter | None = None

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

        Section 6.1 limits outputs to the length of their inputs + 50. Another limit is the number of learned
        positions, `longest`; None: there is none.
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
    sources: Ids = ()
    prefixes: Ids | None = None
    vocab_size: int | None = None
    terms: Sequence[Sequence[Term]] | None = None

    @property
    def has_terms(self) -> Bools:
        """Which sentences have terms, (B,)."""
        return np.asarray([bool(terms) for terms in self.terms or [()] * len(self.max_lengths)], dtype=bool)

    def with_n_best(self, n_best: int) -> Self:
        """Return the same task with another number of hypotheses."""
        return replace(self, options=replace(self.options, n_best=n_best))

    def start_ids(self) -> Ints:
        """Return the first input ids, (B,)."""
        return np.full(len(self.max_lengths), self.start_id, dtype=np.int64)


@dataclass(frozen=True)
class Hypothesis:
    """One output of a search.

    Attributes:
        ids: the output without its start and end tokens.
        log_prob: the sum of `token_log_probs`, in float64.
        score: `log_prob` divided by the length penalty for the number of tokens, plus the coverage penalty.
        token_log_probs: the log-probability of each token before all penalties: the model's own, renormalised
            if the options say so, and 0 for a forced token. A finished output has the end token last.
        finished: whether the output has its end token; otherwise the length limit truncated it.
    """

    ids: tuple[int, ...]
    log_prob: float
    score: float
    token_log_probs: tuple[float, ...] = field(repr=False)
    finished: bool


def hypothesis_of(
    tokens: Sequence[int],
    token_log_probs: Sequence[float],
    *,
    eos_id: int,
    penalty: float,
    coverage: float = 0.0,
) -> Hypothesis:
    """Return a hypothesis with its score: log-probability over length penalty, plus coverage penalty.

    It is finished if its last token is the end token.
    """
    assert len(token_log_probs) == len(tokens)
    log_prob = float(sum(token_log_probs))
    finished = tokens[-1] == eos_id
    ids = tuple(tokens[:-1] if finished else tokens)
    return Hypothesis(ids, log_prob, log_prob / penalty + coverage, tuple(token_log_probs), finished)


class PartialOutputs:
    """Outputs that grow token by token until their end token or length limit.

    For searches with one hypothesis for each output; a beam does its own bookkeeping.
    """

    def __init__(self, max_lengths: Sequence[int], *, eos_id: int) -> None:
        self._eos_id = eos_id
        self._limits = np.asarray(max_lengths, dtype=np.int64)
        shape = (len(max_lengths), 0)  # it grows: limits may be far higher than lengths
        self._ids_BT: Ints = np.zeros(shape, dtype=np.int64)
        self._log_probs_BT: Floats = np.zeros(shape)
        self._lengths = np.zeros(len(max_lengths), dtype=np.int64)
        self.length = 0  # of the live outputs
        self.live = np.arange(len(max_lengths))  # the outputs that have not ended, a row each

    @property
    def written(self) -> Ints:
        """The tokens of each live output so far, (live, T)."""
        return self._ids_BT[self.live, : self.length]

    def append(self, ids: Ints, log_probs: Floats) -> Ints:
        """Add a token to each live output; return the rows that live on, (live afterwards,).

        Raises:
            InputError: an impossible token.
        """
        if np.isneginf(log_probs).any():
            raise InputError(NO_CONTINUATION)
        if self.length == self._ids_BT.shape[1]:
            more = ((0, 0), (0, max(self.length, _FIRST_POSITIONS)))
            self._ids_BT, self._log_probs_BT = np.pad(self._ids_BT, more), np.pad(self._log_probs_BT, more)
        self._ids_BT[self.live, self.length] = ids
        self._log_probs_BT[self.live, self.length] = log_probs
        self.length += 1
        self._lengths[self.live] = self.length
        rows = np.flatnonzero((ids != self._eos_id) & (self.length < self._limits[self.live]))
        self.live = self.live[rows]
        return rows

    def hypotheses(self, penalty: Callable[[int], float]) -> list[Hypothesis]:
        """Return all outputs in their order; `penalty` is the length penalty of a number of tokens."""
        rows = zip(self._ids_BT.tolist(), self._log_probs_BT.tolist(), self._lengths.tolist(), strict=True)
        return [
            hypothesis_of(ids[:n], log_probs[:n], eos_id=self._eos_id, penalty=penalty(n))
            for ids, log_probs, n in rows
        ]
