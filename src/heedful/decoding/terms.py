"""Terms that outputs must contain: automata that follow all rows token by token.

The search is by Post and Vilar (2018), with alternatives as in Hu et al. (2019): the candidates of a
hypothesis include the next tokens of its missing terms, and the slots of a beam are divided into banks by the
number of terms that are met, and by whether another one has begun. Without a bank of its own, a hypothesis in
the middle of an improbable term would always lose to those that put the term off, up to the length limit. A
bank compares hypotheses with different terms. So the cost of missing terms is estimated, as in A* search: a
term costs what it cost at its best place in the sentence so far.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

MET = 0  # the node of a term that has been written
NO_TOKEN = -1
_LAST_BANK = 10
_FIRST_ID_BITS = 32  # a node and a token in one number
_LEAST = -1e4  # of an estimate


class Form(NamedTuple):
    """One way to write a term.

    Attributes:
        ids: at least one id.
        may_continue: whether the last word may continue after the form; otherwise a word must end there.
        is_first: whether the form is only for the beginning of an output.
    """

    ids: tuple[int, ...]
    may_continue: bool = False
    is_first: bool = False


@dataclass(frozen=True)
class Term:
    """A term that an output must contain, in one of several forms.

    Attributes:
        forms: the alternatives, at least one.
        continues: for each token, (V,), whether it continues the word before it.
    """

    forms: tuple[Form, ...]
    continues: NDArray[np.bool_] = field(compare=False, repr=False)


class _Table(NamedTuple):
    """A term as a finite automaton (Aho and Corasick, 1975); node 0 is MET, 1 the root, 2 the beginning.

    Any token ends the word of an open form.
    """

    edges: dict[tuple[int, int], int]  # (node, token): next node; all other tokens lead to the root
    children: list[list[int]]  # for each node, the tokens that continue a form
    needs: list[int]  # for each node, the fewest tokens to the end of a form
    is_done: list[bool]  # whether a form ends here, if its word does
    is_open: list[bool]  # whether the word may continue
    parents: list[int]  # for each node, the one before it in its form; MET has none


_Path = tuple[bool, tuple[int, ...]]  # whether only for the beginning of an output, and the ids so far
_ROOT, _BEGINNING = 1, 2


@lru_cache(maxsize=8192)
def _table_of(forms: tuple[Form, ...]) -> _Table:
    """Return the automaton of a term."""
    paths: dict[_Path, int] = {(False, ()): _ROOT, (True, ()): _BEGINNING}
    for form in forms:
        for end in range(1, len(form.ids) + 1):
            paths.setdefault((form.is_first, form.ids[:end]), len(paths) + 1)
    ends = {(form.is_first, form.ids): form.may_continue for form in forms}

    def suffixes(path: _Path) -> list[_Path]:
        is_first, ids = path
        return [path] * is_first + [(False, ids[start:]) for start in range(len(ids) + 1)]

    edges: dict[tuple[int, int], int] = {}
    children: list[list[int]] = [[] for _ in range(len(paths) + 1)]
    needs, is_done = [0] * (len(paths) + 1), [False] * (len(paths) + 1)
    is_open, parents = is_done.copy(), [MET] * (len(paths) + 1)
    alphabet = sorted({token for form in forms for token in form.ids})
    for path, node in paths.items():
        is_first, ids = path
        is_open[node] = any(ends.get(each) for each in suffixes(path))
        is_done[node] = is_open[node] or any(each in ends for each in suffixes(path))
        parents[node] = paths.get((is_first, ids[:-1]), _ROOT) if len(ids) > 1 else _ROOT if ids else MET
        rest = [
            form.ids[len(ids) :]
            for form in forms
            if form.ids[: len(ids)] == ids and (form.is_first == is_first or node == _BEGINNING)
        ]
        children[node] = sorted({each[0] for each in rest if each})
        needs[node] = 0 if is_done[node] else min(map(len, rest))
        for token in alphabet:
            following = suffixes((is_first, (*ids, token)))
            reached = next((paths[each] for each in following if each in paths), _ROOT)
            if reached != _ROOT:
                edges[node, token] = reached
    return _Table(edges, children, needs, is_done, is_open, parents)


class TermAutomata:
    """The terms of a batch's sentences, as automata in a few arrays: at most M terms in a sentence.

    A row has a node for each term of its sentence, (rows, M); for fewer terms, the rest is MET.

    Attributes:
        beginnings: the nodes of each sentence before its first token, (B, M).
    """

    def __init__(self, terms: Sequence[Sequence[Term]]) -> None:
        """Take the terms of each sentence; at least one sentence has one."""
        num_terms = max(map(len, terms))
        self.beginnings = np.full((len(terms), num_terms), MET, dtype=np.int64)
        self._num_terms = np.asarray([len(each) for each in terms])
        self._depth = max(len(form.ids) for of_one in terms for each in of_one for form in each.forms)
        self._continues = next(each.continues for of_one in terms for each in of_one)
        keys, targets, roots, needs, parents = [0], [0], [0], [0], [0]
        is_done, is_open, children = [False], [False], list[list[int]]([[]])
        for sentence, of_one in enumerate(terms):
            for column, term in enumerate(of_one):
                table, shift = _table_of(term.forms), len(roots) - 1  # the first node is MET for all
                self.beginnings[sentence, column] = shift + _BEGINNING
                for (node, token), target in table.edges.items():
                    keys.append((shift + node << _FIRST_ID_BITS) + token)
                    targets.append(shift + target)
                roots += [shift + _ROOT] * (len(table.needs) - 1)
                needs += table.needs[1:]
                is_done += table.is_done[1:]
                is_open += table.is_open[1:]
                parents += [shift + parent if parent else MET for parent in table.parents[1:]]
                children += table.children[1:]
        order = np.argsort(keys)
        self._keys, self._targets = np.asarray(keys)[order], np.asarray(targets)[order]
        self._roots, self._needs, self._is_done = np.asarray(roots), np.asarray(needs), np.asarray(is_done)
        self._children = np.full((len(children), max(map(len, children))), NO_TOKEN)
        for node, tokens in enumerate(children):
            self._children[node, : len(tokens)] = tokens
        is_at_start = np.isin(np.arange(len(roots)), [self._roots, self._roots + _BEGINNING - _ROOT])
        self._is_within = ~is_at_start & ~self._is_done  # in the middle of a form
        self._is_within[MET] = False
        self._is_open, self._parents = np.asarray(is_open), np.asarray(parents)
        is_beginning = np.isin(np.arange(len(roots)), self.beginnings) & (self._roots != MET)
        self._as_parent = np.where(is_beginning, self._roots, np.arange(len(roots)))
        self._best = np.zeros(len(roots))  # log-probability of a step to each node; 0: not seen yet
        self._is_seen = np.zeros(len(roots), dtype=bool)
        self.estimates = np.zeros(len(roots))  # of each node, the log-probability of the rest of its term

    def widths(self, beam_size: int) -> NDArray[np.int64]:
        """Return the slots of each sentence's beam, (B,): with terms, at least one for each bank."""
        least = np.minimum(2 * self._num_terms, _LAST_BANK) + 1
        return np.where(self._num_terms > 0, np.maximum(beam_size, least), beam_size)

    def step(self, nodes: NDArray[np.int64], ids: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the nodes (N, M) after one more token of each row, (N,)."""
        keys = (nodes << _FIRST_ID_BITS) + ids[:, None]
        at = np.minimum(self._keys.searchsorted(keys), len(self._keys) - 1)
        following = np.where(self._keys[at] == keys, self._targets[at], self._roots[nodes])
        is_met = self._is_done[nodes] & (self.ends_words(ids)[:, None] | self._is_open[nodes])
        return np.where(is_met, MET, following)

    def see(self, before: NDArray[np.int64], after: NDArray[np.int64], scores: NDArray[np.float64]) -> None:
        """Update the estimates with the costs of the next tokens of terms.

        Args:
            before: the nodes of each row, (N, M).
            after: the nodes after each candidate, (N, C, M).
            scores: the scores of the candidates, (N, C).
        """
        is_next = (self._parents[after] == self._as_parent[before][:, None]) & (after != MET)
        is_next &= (scores > -np.inf)[..., None]
        reached, costs = after[is_next], np.broadcast_to(scores[..., None], after.shape)[is_next]
        best = np.full(len(self._best), -np.inf)
        np.maximum.at(best, reached, costs)
        is_seen = best > -np.inf
        best = np.where(self._is_seen, np.maximum(best, self._best), best)
        self._best = np.where(is_seen, best, self._best)
        self._is_seen |= is_seen
        estimates = np.full(len(self._best), -np.inf)
        for _ in range(self._depth):
            of_ends = np.where(self._is_done, 0.0, estimates)
            np.maximum.at(estimates, self._parents, self._best + of_ends)
        estimates[self._is_done | (self._roots == MET)] = 0.0
        self.estimates = estimates[self._as_parent].clip(_LEAST)

    def ends_words(self, ids: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Return which tokens end the word before them: all tokens that do not continue it."""
        is_known = ids < len(self._continues)
        ends: NDArray[np.bool_] = ~(is_known & self._continues[np.where(is_known, ids, 0)])
        return ends

    def is_pending(self, nodes: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Return which rows (N,) have a finished form with a word that must end now."""
        pending: NDArray[np.bool_] = (self._is_done[nodes] & ~self._is_open[nodes]).any(axis=1)
        return pending

    def needs(self, nodes: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the number of tokens, (...), that is enough to write all missing terms of nodes (..., M).

        Terms are written one by one. A form in progress is finished first, if that is shorter; it may
        continue the word of a finished form, which then is missing again.
        """
        from_root = self._needs[self._roots[nodes]]
        anew: NDArray[np.int64] = np.where(self._is_done[nodes], 0, from_root).sum(axis=-1)
        saved = np.where(self._is_within[nodes], from_root - self._needs[nodes], -anew[..., None])
        needed: NDArray[np.int64] = np.minimum(anew, from_root.sum(axis=-1) - saved.max(axis=-1))
        return needed

    def next_ids(self, nodes: NDArray[np.int64], *, all_terms: NDArray[np.bool_]) -> NDArray[np.int64]:
        """Return the tokens that continue missing terms, (N, K), padded with NO_TOKEN.

        In the middle of a form, only that form is continued, unless `all_terms`.

        Args:
            nodes: (N, M).
            all_terms: (N,), which rows may begin another term in the middle of one.
        """
        is_within = self._is_within[nodes]
        is_missing = (nodes != MET) & ~self._is_done[nodes]
        may_begin = (all_terms | ~is_within.any(axis=1))[:, None]
        following = np.where(
            (is_missing & (is_within | may_begin))[..., None], self._children[nodes], NO_TOKEN
        )
        again = np.where((is_within & may_begin)[..., None], self._children[self._roots[nodes]], NO_TOKEN)
        offered = np.sort(np.concatenate((following, again), axis=1).reshape(len(nodes), -1), axis=1)
        offered[:, 1:][offered[:, 1:] == offered[:, :-1]] = NO_TOKEN
        offered = np.sort(offered, axis=1)
        return offered[:, int((offered == NO_TOKEN).sum(axis=1).min(initial=offered.shape[1])) :]

    def banks(self, nodes: NDArray[np.int64], sentences: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the bank of each row: rows that are equally far with their terms share slots of the beam.

        Args:
            nodes: (N, M).
            sentences: (N,), the sentence of each row.

        Returns:
            (N,): from 0; two for each met term, and one if another term has begun. With more than five terms,
                neighbouring banks are merged.
        """
        num_terms = self._num_terms[sentences]
        num_missing = ((nodes != MET) & ~self._is_done[nodes]).sum(axis=1)
        done = 2 * (num_terms - num_missing) + self._is_within[nodes].any(axis=1)
        shared: NDArray[np.int64] = (
            np.minimum(2 * num_terms, _LAST_BANK) * done // np.maximum(2 * num_terms, 1)
        )
        return shared


def in_turn(totals: NDArray[np.float64], banks: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return an order of each sentence's extensions, (B, N): the best of each bank, then the second best.

    Args:
        totals: (B, N), the search scores, estimates included; impossible extensions, -inf, come last.
        banks: (B, N), the bank of each extension; of equal ranks, the higher bank comes first.
    """
    by_total = (-totals).argsort(axis=1, kind="stable")
    banks = np.take_along_axis(banks, by_total, axis=1)
    ranks = np.zeros_like(banks)
    for bank in range(int(banks.min(initial=0)), int(banks.max(initial=0)) + 1):
        is_of_bank = banks == bank
        ranks += np.where(is_of_bank, is_of_bank.cumsum(axis=1), 0)
    ranks[np.isneginf(np.take_along_axis(totals, by_total, axis=1))] = totals.shape[1] + 1
    return np.take_along_axis(by_total, np.lexsort((-banks, ranks), axis=1), axis=1)
