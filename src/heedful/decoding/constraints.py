"""Which tokens may come next: suppressed, penalised and forced ones."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np
from array_api_compat import array_namespace
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from heedful.decoding.steps import (
    Array,
    Bools,
    Floats,
    Ints,
    NextTokens,
    check_numbers,
    copy_of,
    like,
    log_softmax,
    on_host,
)
from heedful.decoding.task import SearchTask
from heedful.decoding.terms import NO_TOKEN, TermAutomata
from heedful.errors import InputError
from heedful.text.special_tokens import suppressed_ids
from heedful.text.tokenizer import pad

_Number = TypeVar("_Number", np.int64, np.float64)
FREE = -1  # instead of an id: the search may choose
_ANY_END = -2  # instead of an id: the best token that ends a word


@dataclass(frozen=True)
class Candidates:
    """Tokens that may come next, best first; each array is (rows, C).

    Attributes:
        scores: the scores of the search: log-probabilities minus all penalties; -inf is impossible.
        log_probs: the log-probabilities before penalties: the model's own, renormalised if the options say
            so; the same array as `scores` if there is no penalty.
        ids: the tokens.
        nodes: with terms, the automaton node of each term after each token, (rows, C, M).
        banks: with terms, the bank of each token, (rows, C): see `TermAutomata.banks`.
        estimates: with terms, the estimated log-probability of the missing ones, (rows, C).
    """

    scores: Floats
    log_probs: Floats
    ids: Ints
    nodes: Ints | None = None
    banks: Ints | None = None
    estimates: Floats | None = None


class Constraints:
    """Constraints on the next token, from the options of a search and the prefixes of its sentences.

    A suppressed token is impossible, and so is a token that would repeat an n-gram of the output or the
    source. The probabilities of the others do not change, unless the options renormalise them. A repetition
    penalty changes the scores of the search, but no log-probability.

    A forced token is the only possible one, even if another option forbids it. A prefix forces its tokens,
    with the model's log-probability; `forced_first_id` and `forced_last_id` have log-probability 0, because
    they are no choice. All forced tokens count in the length.

    If an output must contain terms, the candidates include the next tokens of missing terms. A token that
    leaves no space for them, for example the end token, is impossible.
    """

    def __init__(self, task: SearchTask) -> None:
        """Prepare for a batch of sentences."""
        self._options = options = task.options
        self._eos_id, self._start_id = task.eos_id, task.start_id
        self._suppressed_ids = suppressed_ids(
            options.suppressed_ids, start_id=task.start_id, pad_id=task.pad_id, eos_id=task.eos_id
        )
        self._limits = np.asarray(task.max_lengths, dtype=np.int64)
        before = [] if options.forced_first_id is None else [FREE]
        prefixes = task.prefixes or [()] * len(task.max_lengths)
        self._prefixes = pad([[*before, *prefix] for prefix in prefixes], FREE)  # the id by position
        forced = {
            "prefix with the id": int(self._prefixes.max(initial=FREE)),
            "forced_first_id": options.forced_first_id,
            "forced_last_id": options.forced_last_id,
        }
        self._highest_forced = max((i, name) for name, i in forced.items() if i is not None)
        # Whether a step needs more log-probabilities than the best few.
        self._needs_all = (
            options.repetition_penalty != 1
            or options.no_repeat_ngram_size > 0
            or options.encoder_no_repeat_ngram_size > 0
        )
        size = options.encoder_no_repeat_ngram_size
        self._after_ngrams = [_next_ids(source, size) for source in task.sources] if size else []
        self.terms = TermAutomata(task.terms) if task.terms and any(task.terms) else None

    def candidates(
        self,
        tokens: NextTokens,
        count: int,
        *,
        written: Ints,
        sentences: Ints,
        penalties: Floats | None = None,
        nodes: Ints | None = None,
    ) -> Candidates:
        """Return the `count` best tokens that may come next.

        Args:
            tokens: the model's log-probabilities of each row.
            count: the number of tokens; at most V are returned.
            written: (rows, T), the tokens of each row so far, without the start token.
            sentences: (rows,), the sentence of each row.
            penalties: (rows, V), a penalty of each token, subtracted from the scores of the search only.
            nodes: (rows, M), the nodes of the M terms from the previous candidates; None: at the first token.

        Raises:
            InputError: log-probabilities that are not numbers, or a forced token that does not exist.
        """
        suppressed = self._suppressed(written)
        is_prefix = written.shape[1] < self._prefixes.shape[1]
        if penalties is None and not (self._needs_all or is_prefix):
            values, ids = tokens.top(count, suppressed, renormalize=self._options.renormalize)
            own_values = values
        else:
            tokens = tokens.with_log_probs(tokens.log_probs())  # computed once
            scores, own = self._scores(tokens.log_probs(), written, sentences, penalties=penalties)
            values, ids = tokens.with_log_probs(scores).top(count, suppressed)
            own_values = values if own is scores else _values_of(own, ids)
        is_free = np.ones(len(written), dtype=bool)
        if is_prefix or self._options.forced_last_id is not None:
            rows, forced_ids, forced_log_probs = self._forced(tokens, written, sentences)
            values[rows] = -np.inf
            values[rows, 0] = own_values[rows, 0] = forced_log_probs
            ids[rows, 0] = forced_ids
            is_free[rows] = False
        candidates = Candidates(values, own_values, ids)
        if self.terms is None:
            return candidates
        nodes = self.terms.beginnings[sentences] if nodes is None else nodes
        return self._with_terms(candidates, tokens, written, sentences, penalties, nodes, is_free)

    def _with_terms(
        self,
        candidates: Candidates,
        tokens: NextTokens,
        written: Ints,
        sentences: Ints,
        penalties: Floats | None,
        nodes: Ints,
        is_free: Bools,
    ) -> Candidates:
        """Return candidates with the next tokens of missing terms, as far as these have space.

        The arguments are as for `candidates`; `is_free` says which rows have no forced token, (rows,).
        """
        assert self.terms is not None
        ids = candidates.ids
        if not nodes.any():  # all terms are there
            return replace(candidates, nodes=np.zeros((*ids.shape, nodes.shape[1]), dtype=np.int64))
        space = self._limits[sentences] - written.shape[1] - (self._options.forced_last_id is not None)
        added = _added_ids(self.terms, nodes, candidates, space)
        added[~is_free] = NO_TOKEN
        rows = np.flatnonzero((added != NO_TOKEN).any(axis=1))
        if len(rows):
            costs = None if penalties is None else penalties[rows]
            of_rows = self._scores(tokens[rows].log_probs(), written[rows], sentences[rows], penalties=costs)
            candidates = self._with_added(candidates, rows, added[rows], of_rows, written)
        if written.shape[1] == 0 and self._options.forced_first_id is not None:
            after = np.repeat(nodes[:, None], candidates.ids.shape[1], axis=1)
        else:
            after = _nodes_after(self.terms, nodes, candidates.ids)
        left = np.where(candidates.ids == self._eos_id, 0, (space - 1).clip(0)[:, None])
        num_reserved = 1 if self._options.forced_last_id is None else 0
        scores = _with_space(self.terms, candidates, after, left, is_free, num_reserved=num_reserved)
        banks = self.terms.banks(after.reshape(-1, nodes.shape[1]), sentences.repeat(candidates.ids.shape[1]))
        self.terms.see(nodes, after, candidates.scores)
        return replace(
            candidates,
            scores=scores,
            nodes=after,
            banks=banks.reshape(scores.shape),
            estimates=self.terms.estimates[after].sum(axis=2),
        )

    def _with_added(
        self,
        candidates: Candidates,
        rows: Ints,
        added: Ints,
        scores_and_own: tuple[Array, Array],
        written: Ints,
    ) -> Candidates:
        """Return candidates with more tokens in some rows: `added`, (rows, K), or the best to end a word."""
        assert self.terms is not None
        scores, own = scores_and_own
        suppressed = [*self._suppressed(written), self._eos_id]
        ending = np.flatnonzero(added[:, -1] == _ANY_END)
        if len(ending):
            best = on_host(scores[like(ending, scores)]).astype(np.float64)
            best[:, ~self.terms.ends_words(np.arange(best.shape[1]))] = -np.inf
            best[:, [i for i in suppressed if i < best.shape[1]]] = -np.inf
            added[ending, -1] = best.argmax(axis=1)
        is_added = added != NO_TOKEN
        ids = np.where(is_added, added, 0)
        is_possible = is_added & ~np.isin(ids, suppressed)
        values = [np.where(is_possible, _values_of(each, ids), -np.inf) for each in (scores, own)]
        return Candidates(
            _extended(candidates.scores, rows, values[0], -np.inf),
            _extended(candidates.log_probs, rows, values[1], -np.inf),
            _extended(candidates.ids, rows, ids, 0),
        )

    def distribution(self, tokens: NextTokens, *, written: Ints, sentences: Ints) -> tuple[Array, Array]:
        """Return all tokens that may come next; for the arguments, see `candidates`.

        Returns:
            The scores of the search and the model's log-probabilities, as in `Candidates`, each (rows, V).

        Raises:
            InputError: a forced token that does not exist.
        """
        tokens = tokens.with_log_probs(tokens.log_probs())
        scores, own = self._scores(tokens.log_probs(), written, sentences)
        scores = _without(self._suppressed(written), scores)
        rows, ids, values = self._forced(tokens, written, sentences)
        if len(rows):
            own, forced = copy_of(own), like(rows, own)
            scores[forced] = -math.inf
            scores[forced, like(ids, own)] = own[forced, like(ids, own)] = array_namespace(own).astype(
                like(values, own), own.dtype
            )
        return scores, own

    def log_probs_of(
        self,
        ids: Ints,
        tokens: NextTokens,
        *,
        written: Ints,
        sentences: Ints,
    ) -> tuple[Floats, Floats]:
        """Return the log-probabilities of one token of each row.

        Args:
            ids: (rows,), the tokens.
            tokens: the model's log-probabilities of each row.
            written: (rows, T), the tokens of each row so far, without the start token.
            sentences: (rows,), the sentence of each row.

        Returns:
            The log-probabilities of a search, as in `Candidates`, -inf for an impossible token; and the
            model's own, independent of the options. Each is (rows,).

        Raises:
            InputError: log-probabilities that are not numbers, or a forced token that does not exist.
        """
        log_probs = tokens.log_probs()
        tokens = tokens.with_log_probs(log_probs)
        possible = self._possible(log_probs, written, sentences)
        values, model_values = (_values_of(array, ids[:, None])[:, 0] for array in (possible, log_probs))
        check_numbers(model_values)
        is_out = np.isnan(values) | np.isin(ids, self._suppressed(written))  # NaN: none is possible
        values = np.where(is_out, -np.inf, values)
        rows, forced_ids, forced_log_probs = self._forced(tokens, written, sentences)
        values[rows] = np.where(ids[rows] == forced_ids, forced_log_probs, -np.inf)
        return values, model_values

    def _scores(
        self,
        log_probs: Array,
        written: Ints,
        sentences: Ints,
        *,
        penalties: Floats | None = None,
    ) -> tuple[Array, Array]:
        """Return the scores of the search and the model's log-probabilities, each (rows, V); often equal."""
        own, penalised = self._possible(log_probs, written, sentences), log_probs
        if self._options.repetition_penalty != 1:
            ids = like(np.insert(written, 0, self._start_id, axis=1), log_probs)
            rows = like(np.arange(len(written))[:, None], log_probs)
            penalised = copy_of(log_probs)
            penalised[rows, ids] = self._options.repetition_penalty * log_probs[rows, ids]
        if penalties is not None:
            xp = array_namespace(log_probs)
            penalised = penalised - xp.astype(like(penalties, log_probs), log_probs.dtype)
        if penalised is log_probs:
            return own, own
        return self._possible(penalised, written, sentences), own

    def _possible(self, log_probs: Array, written: Ints, sentences: Ints) -> Array:
        """Return log-probabilities with -inf for repeated n-grams, renormalised if the options say so."""
        if self._options.encoder_no_repeat_ngram_size:
            so_far = np.insert(written, 0, self._start_id, axis=1)  # the start token counts
            latest = so_far[:, max(so_far.shape[1] + 1 - self._options.encoder_no_repeat_ngram_size, 0) :]
            pairs: list[tuple[int, int]] = []
            for row, (sentence, ngram) in enumerate(zip(sentences, latest.tolist(), strict=True)):
                following = self._after_ngrams[sentence].get(tuple(ngram), ())
                pairs += [(row, token) for token in following if token < log_probs.shape[-1]]
            rows, ids = np.asarray(pairs, dtype=np.int64).reshape(-1, 2).T
            log_probs = copy_of(log_probs)
            log_probs[like(rows, log_probs), like(ids, log_probs)] = -math.inf
        size = self._options.no_repeat_ngram_size
        if 0 < size <= written.shape[1]:
            ngrams = sliding_window_view(written, size, axis=1)
            latest = written[:, None, written.shape[1] - size + 1 :]
            rows, starts = np.nonzero((ngrams[..., :-1] == latest).all(axis=-1))
            log_probs = copy_of(log_probs)
            log_probs[like(rows, log_probs), like(ngrams[rows, starts, -1], log_probs)] = -math.inf
        if self._options.renormalize:
            log_probs = log_softmax(_without(self._suppressed(written), log_probs))
        return log_probs

    def _suppressed(self, written: Ints) -> Sequence[int]:
        """Return the tokens that no row may have next."""
        is_too_short = written.shape[1] < self._options.min_length
        return (*self._suppressed_ids, self._eos_id) if is_too_short else self._suppressed_ids

    def _forced(self, tokens: NextTokens, written: Ints, sentences: Ints) -> tuple[Ints, Ints, Floats]:
        """Return the rows with a forced token, the token, and its log-probability."""
        length, options = written.shape[1], self._options
        highest, name = self._highest_forced
        if highest >= tokens.vocab_size:
            raise InputError(f"{name}={highest}: the model has {tokens.vocab_size:,} tokens")
        ids = np.full(len(sentences), FREE)
        if length == 0 and options.forced_first_id is not None:
            ids[:] = options.forced_first_id
        if options.forced_last_id is not None:
            ids[self._limits[sentences] == length + 1] = options.forced_last_id
        values = np.zeros(len(sentences))
        if length < self._prefixes.shape[1]:
            prefixed = self._prefixes[sentences, length]
            rows = np.flatnonzero(prefixed != FREE)
            ids[rows] = prefixed[rows]
            values[rows] = _values_of(tokens[rows].log_probs(), ids[rows, None])[:, 0]
        rows = np.flatnonzero(ids != FREE)
        return rows, ids[rows], values[rows]


def _next_ids(source: Sequence[int], size: int) -> dict[tuple[int, ...], set[int]]:
    """Return the tokens that follow each sequence of size - 1 tokens in a source.

    >>> _next_ids([5, 6, 5, 7], 2)
    {(5,): {6, 7}, (6,): {5}}
    """
    after: dict[tuple[int, ...], set[int]] = {}
    for i in range(len(source) - size + 1):
        *before, last = source[i : i + size]
        after.setdefault(tuple(before), set()).add(last)
    return after


def _added_ids(terms: TermAutomata, nodes: Ints, candidates: Candidates, space: Ints) -> Ints:
    """Return the tokens of missing terms that are not among the candidates, (rows, K); NO_TOKEN fills up.

    The last is _ANY_END if a word must end and no candidate ends it.
    """
    has_terms = np.flatnonzero(nodes.any(axis=1))
    some, ids = nodes[has_terms], candidates.ids[has_terms]
    offered = terms.next_ids(some, all_terms=terms.needs(some) + 2 >= space[has_terms])
    offered[(offered[:, :, None] == ids[:, None, :]).any(axis=2)] = NO_TOKEN
    ends = terms.ends_words(ids.ravel()).reshape(ids.shape) & (candidates.scores[has_terms] > -np.inf)
    must_end = terms.is_pending(some) & ~ends.any(axis=1)
    added = np.full((len(nodes), offered.shape[1] + 1), NO_TOKEN)
    added[has_terms, :-1] = offered
    added[has_terms[must_end], -1] = _ANY_END
    return added


def _extended(array: NDArray[_Number], rows: Ints, more: NDArray[_Number], fill: float) -> NDArray[_Number]:
    """Return an array, (all rows, C), with K more values in some rows; the other rows are filled up."""
    added = np.full((len(array), more.shape[1]), fill, dtype=array.dtype)
    added[rows] = more
    return np.concatenate((array, added), axis=1)


def _nodes_after(terms: TermAutomata, nodes: Ints, ids: Ints) -> Ints:
    """Return the nodes after each candidate, (rows, C, M)."""
    num_rows, count = ids.shape
    after = np.zeros((num_rows, count, nodes.shape[1]), dtype=np.int64)
    has_terms = np.flatnonzero(nodes.any(axis=1))
    of_each = terms.step(nodes[has_terms].repeat(count, axis=0), ids[has_terms].ravel())
    after[has_terms] = of_each.reshape(len(has_terms), count, -1)
    return after


def _with_space(
    terms: TermAutomata,
    candidates: Candidates,
    nodes: Ints,
    left: Ints,
    is_free: Bools,
    *,
    num_reserved: int,
) -> Floats:
    """Return the scores, -inf for tokens after which the missing terms no longer fit.

    `left` are the positions that are left after each candidate. The ones reserved for the end token are used
    only if the terms need them. If the terms do not fit at all, no token is impossible.
    """
    needs, scores = terms.needs(nodes), candidates.scores
    is_possible = scores > -np.inf
    fits = (needs <= left - np.minimum(left, num_reserved)) & is_possible
    barely = (needs <= left) & is_possible
    fits |= barely & ~fits.any(axis=1, keepdims=True)
    fits |= ~fits.any(axis=1, keepdims=True) | ~is_free[:, None]
    return np.where(fits, scores, -np.inf)


def _without(suppressed: Sequence[int], log_probs: Array) -> Array:
    """Return log-probabilities (rows, V), -inf for suppressed tokens."""
    known = [i for i in suppressed if i < log_probs.shape[-1]]
    log_probs = copy_of(log_probs)
    log_probs[:, like(np.asarray(known, dtype=np.int64), log_probs)] = -math.inf
    return log_probs


def _values_of(log_probs: Array, ids: Ints) -> Floats:
    """Return the values (rows, K) of some ids of each row."""
    values = array_namespace(log_probs).take_along_axis(log_probs, like(ids, log_probs), axis=-1)
    return on_host(values).astype(np.float64)
