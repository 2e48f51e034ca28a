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
from typing import NamedTuple, cast

import numpy as np

from heedful.decoding.steps import Bools, Floats, Ints
from heedful.text.tokenizer import pad

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
    continues: Bools = field(compare=False, repr=False)


class _Node(NamedTuple):
    """A state of a term's automaton; numbers of other nodes are within the automaton.

    Attributes:
        children: the tokens that continue a form.
        needs: the fewest tokens to the end of a form.
        is_done: whether a form ends here, if its word does.
        is_open: whether the word may continue.
        is_within: whether it is in the middle of a form.
        parent: the node before it in its form; MET has none.
        as_parent: the node that its children name as their parent: for the beginning, the root.
    """

    children: Sequence[int] = ()
    needs: int = 0
    is_done: bool = False
    is_open: bool = False
    is_within: bool = False
    parent: int = MET
    as_parent: int = MET


class _Table(NamedTuple):
    """A term as a finite automaton (Aho and Corasick, 1975).

    Any token ends the word of an open form.

    Attributes:
        nodes: the nodes from 1 on: 1 is the root, 2 the beginning. 0, MET, is not among them.
        edges: the next node by node and token; all other tokens lead to the root.
    """

    nodes: list[_Node]
    edges: dict[tuple[int, int], int]


_Path = tuple[bool, tuple[int, ...]]  # whether only for the beginning of an output, and the ids so far
_ROOT, _BEGINNING = 1, 2


def _suffixes(path: _Path) -> list[_Path]:
    """Return the paths that a path ends with, the longest first; the last is the root's."""
    is_first, ids = path
    within = [(False, ids[start:]) for start in range(len(ids) + 1)]
    return [path, *within] if is_first else within


@lru_cache(maxsize=8192)
def _table_of(forms: tuple[Form, ...]) -> _Table:
    """Return the automaton of a term."""
    paths: dict[_Path, int] = {(False, ()): _ROOT, (True, ()): _BEGINNING}
    for form in forms:
        for end in range(1, len(form.ids) + 1):
            paths.setdefault((form.is_first, form.ids[:end]), len(paths) + 1)
    ends = {(form.is_first, form.ids): form.may_continue for form in forms}
    alphabet = sorted({token for form in forms for token in form.ids})
    nodes: list[_Node] = []
    edges: dict[tuple[int, int], int] = {}
    for path, node in paths.items():
        is_first, ids = path
        ended = [ends[suffix] for suffix in _suffixes(path) if suffix in ends]
        continued = [
            form.ids[len(ids) :]
            for form in forms
            if form.ids[: len(ids)] == ids and (form.is_first == is_first or node == _BEGINNING)
        ]
        parent = _ROOT if ids else MET
        if len(ids) > 1:
            parent = paths[is_first, ids[:-1]]
        nodes.append(
            _Node(
                children=sorted({rest[0] for rest in continued if rest}),
                needs=0 if ended else min(map(len, continued)),
                is_done=bool(ended),
                is_open=any(ended),
                is_within=bool(ids) and not ended,
                parent=parent,
                as_parent=node if ids else _ROOT,
            )
        )
        for token in alphabet:
            following = _suffixes((is_first, (*ids, token)))
            reached = next(paths[suffix] for suffix in following if suffix in paths)
            if reached != _ROOT:
                edges[node, token] = reached
    return _Table(nodes, edges)


class TermAutomata:
    """The terms of a batch's sentences, as automata in a few arrays: at most M terms in a sentence.

    A row has a node for each term of its sentence, (rows, M); for fewer terms, the rest is MET.

    Attributes:
        beginnings: the nodes of each sentence before its first token, (B, M).
    """

    def __init__(self, terms: Sequence[Sequence[Term]]) -> None:
        """Take the terms of each sentence; at least one sentence has one."""
        all_terms = [term for of_sentence in terms for term in of_sentence]
        self._num_terms = np.asarray([*map(len, terms)])
        self._depth = max(len(form.ids) for term in all_terms for form in term.forms)
        self._continues = all_terms[0].continues
        nodes, shifts, edges, beginnings = [_Node()], [0], {0: MET}, list[int]()
        for term in all_terms:
            table, shift = _table_of(term.forms), len(nodes) - 1  # the first node is MET for all
            beginnings.append(shift + _BEGINNING)
            nodes += table.nodes
            shifts += [shift] * len(table.nodes)
            for (node, token), target in table.edges.items():
                edges[(shift + node << _FIRST_ID_BITS) + token] = shift + target
        columns = np.arange(self._num_terms.max())
        self.beginnings = np.full((len(terms), len(columns)), MET, dtype=np.int64)
        self.beginnings[columns < self._num_terms[:, None]] = beginnings
        keys = sorted(edges)
        self._keys, self._targets = np.asarray(keys), np.asarray([edges[key] for key in keys])
        children, *flags_and_numbers = zip(*nodes, strict=True)
        self._children = pad(children, NO_TOKEN)
        self._needs, self._is_done, self._is_open, self._is_within, parents, as_parent = map(
            np.asarray, flags_and_numbers
        )
        shift_of_node, is_met = np.asarray(shifts), np.arange(len(nodes)) == MET
        self._roots = np.where(is_met, MET, shift_of_node + _ROOT)
        self._parents = np.where(parents == MET, MET, shift_of_node + parents)
        self._as_parent = np.where(is_met, MET, shift_of_node + as_parent)
        self._best = np.full(len(nodes), -np.inf)  # log-probability of a step to each node; -inf: not seen
        self.estimates = np.zeros(len(nodes))  # of each node, the log-probability of the rest of its term

    def widths(self, beam_size: int) -> Ints:
        """Return the slots of each sentence's beam, (B,): with terms, at least one for each bank."""
        least = np.minimum(2 * self._num_terms, _LAST_BANK) + 1
        return np.where(self._num_terms > 0, np.maximum(beam_size, least), beam_size)

    def step(self, nodes: Ints, ids: Ints) -> Ints:
        """Return the nodes (N, M) after one more token of each row, (N,)."""
        keys = (nodes << _FIRST_ID_BITS) + ids[:, None]
        at = np.minimum(self._keys.searchsorted(keys), len(self._keys) - 1)
        following = np.where(self._keys[at] == keys, self._targets[at], self._roots[nodes])
        is_met = self._is_done[nodes] & (self.ends_words(ids)[:, None] | self._is_open[nodes])
        return np.where(is_met, MET, following)

    def see(self, before: Ints, after: Ints, scores: Floats) -> None:
        """Update the estimates with the costs of the next tokens of terms.

        Args:
            before: the nodes of each row, (N, M).
            after: the nodes after each candidate, (N, C, M).
            scores: the scores of the candidates, (N, C).
        """
        is_next = (self._parents[after] == self._as_parent[before][:, None]) & (after != MET)
        is_next &= (scores > -np.inf)[..., None]
        reached, costs = after[is_next], np.broadcast_to(scores[..., None], after.shape)[is_next]
        np.maximum.at(self._best, reached, costs)
        best = np.where(np.isneginf(self._best), 0.0, self._best)
        estimates = np.full(len(best), -np.inf)
        for _ in range(self._depth):
            of_ends = np.where(self._is_done, 0.0, estimates)
            np.maximum.at(estimates, self._parents, best + of_ends)
        estimates[self._is_done | (self._roots == MET)] = 0.0
        self.estimates = estimates[self._as_parent].clip(_LEAST)

    def ends_words(self, ids: Ints) -> Bools:
        """Return which tokens end the word before them: all tokens that do not continue it."""
        is_known = ids < len(self._continues)
        return ~(is_known & self._continues[np.where(is_known, ids, 0)])

    def is_pending(self, nodes: Ints) -> Bools:
        """Return which rows (N,) have a finished form with a word that must end now."""
        return cast(Bools, (self._is_done[nodes] & ~self._is_open[nodes]).any(axis=1))

    def needs(self, nodes: Ints) -> Ints:
        """Return the number of tokens, (...), that is enough to write all missing terms of nodes (..., M).

        Terms are written one by one. A form in progress is finished first, if that is shorter; it may
        continue the word of a finished form, which then is missing again.
        """
        from_root = self._needs[self._roots[nodes]]
        anew: Ints = np.where(self._is_done[nodes], 0, from_root).sum(axis=-1)
        saved = np.where(self._is_within[nodes], from_root - self._needs[nodes], -anew[..., None])
        needed: Ints = np.minimum(anew, from_root.sum(axis=-1) - saved.max(axis=-1))
        return needed

    def next_ids(self, nodes: Ints, *, all_terms: Bools) -> Ints:
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

    def banks(self, nodes: Ints, sentences: Ints) -> Ints:
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
        shared: Ints = np.minimum(2 * num_terms, _LAST_BANK) * done // np.maximum(2 * num_terms, 1)
        return shared


def in_turn(totals: Floats, banks: Ints) -> Ints:
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
