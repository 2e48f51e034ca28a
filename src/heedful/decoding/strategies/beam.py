"""Beam search: a beam of constant width, finished hypotheses apart from it; and diverse groups of beams."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import ClassVar

import numpy as np
from typing_extensions import override

from heedful.decoding.constraints import Candidates, Constraints
from heedful.decoding.scoring import coverage_penalties
from heedful.decoding.steps import Bools, Floats, Ints, Start, StepFunction
from heedful.decoding.strategies.options import DiverseBeamOptions
from heedful.decoding.strategies.protocol import Greedy, Strategy
from heedful.decoding.task import NO_CONTINUATION, Hypothesis, SearchTask, hypothesis_of
from heedful.decoding.terms import MET, TermAutomata, in_turn
from heedful.errors import InputError, OptionError
from heedful.settings.options import BeamOptions, SharedOptions

Finished = list[list[tuple[float, Hypothesis]]]  # of each sentence, with their search scores


@dataclass(frozen=True, kw_only=True)
class BeamSearch(BeamOptions, Strategy):
    """Beam search with `BeamOptions`; a beam of one is greedy search.

    At each step, a sentence considers the 2 * beam_size most probable one-token extensions of its live
    hypotheses. An extension by the end token is finished if it is among the first beam_size. The best
    beam_size of the others stay live. At the length limit, the first beam_size extensions all end, finished
    or truncated. Live hypotheses are compared by log-probability, ended ones by score. Of equal
    log-probabilities, the better parent and then the lower id come first.

    "optimal" is exact: for alpha >= 0, a continuation of a hypothesis of log-probability p scores at most
    p / penalty(limit). A coverage penalty, at most 0, is added when a hypothesis ends, so the bound still
    holds. A beam of one ends with its first finished hypothesis. Sentences that ended leave the batch.

    With terms, the best extension of each bank comes first, then the second of each (see
    `TermAutomata.banks`). The beam has at least one slot for each bank, and no hypothesis ends without its
    terms. Ended hypotheses of such a sentence are compared by log-probability, without the length penalty:
    divided by the length, an improbable term would cost less in a longer output, which then rambles.
    """

    supports_terms: ClassVar[bool] = True

    @override
    def check(self, options: SharedOptions) -> None:
        if options.n_best > self.beam_size:
            raise OptionError(
                f"n_best={options.n_best}: must be at most beam_size={self.beam_size}; more can be sampled"
            )

    def search(self, start: Start, task: SearchTask) -> list[list[Hypothesis]]:
        """Search the best outputs of each sentence: see `Strategy`.

        The hypotheses have the model's own numbers; with a repetition penalty, the order of the search.
        """
        if self.beam_size == 1 and not task.options.coverage_penalty and task.terms is None:
            return Greedy().search(start, task)
        with start() as step:
            return self.search_beam(step, task)

    def search_beam(self, step: StepFunction, task: SearchTask) -> list[list[Hypothesis]]:
        """Search with the algorithm of a wide beam, also for a beam of one."""
        constraints = Constraints(task)
        beam = Beam(task, self, constraints.terms)
        last_ids = task.start_ids()
        while len(beam.sentences):
            task.options.check_cancelled()
            # One candidate of a row may be the end token: with one more, beam_size others are left.
            candidates = constraints.candidates(
                step(last_ids), self.beam_size + 1, written=beam.written,
                sentences=beam.sentences_of_rows(), nodes=beam.nodes,
            )  # fmt: skip
            coverage: Floats = np.zeros(len(last_ids))
            if task.options.coverage_penalty:
                coverage = coverage_penalties(step, task.options, len(last_ids))
            rows, next_ids = beam.advance(candidates, coverage)
            if len(rows) and not np.array_equal(rows, np.arange(len(candidates.ids))):
                step.reorder(rows)
            last_ids = next_ids
        return best_of(beam.finished, task.options.n_best)


def best_of(finished: Finished, n_best: int) -> list[list[Hypothesis]]:
    """Return the n-best list of each sentence from its ended hypotheses, best first.

    Raises:
        InputError: a sentence without an ended hypothesis.
    """
    if not all(finished):
        raise InputError(NO_CONTINUATION)
    return [[hypothesis for _, hypothesis in of_sentence[:n_best]] for of_sentence in finished]


def by_search_score(finished: tuple[float, Hypothesis]) -> tuple[float, tuple[int, ...]]:
    """Return the sort key of hypotheses: best search score first, ties broken by lower ids."""
    search_score, hypothesis = finished
    return -search_score, hypothesis.ids


@dataclass(frozen=True)
class _Extensions:
    """The best one-token extensions of each sentence's hypotheses, best first; each array is (B, E)."""

    totals: Floats  # the search score of the whole hypothesis
    ids: Ints  # the last token
    indices: Ints  # the flat index of the last token in the candidates
    expected: Floats  # the totals plus the estimates for missing terms


class Beam:
    """The hypotheses of all sentences, on the host: B live sentences with at most W live hypotheses.

    Row b * W + w of the step function is hypothesis w of live sentence b. The total of a hypothesis is the
    sum of the scores of its tokens (see `Candidates`): its log-probability, if nothing is penalised. An empty
    slot has the total -inf. The search score of an ended hypothesis is the total, over the length penalty if
    the sentence has no terms, plus the coverage penalty. Keep the n best ended hypotheses of a sentence; the
    worst is the pruning threshold.
    """

    def __init__(self, task: SearchTask, strategy: BeamSearch, terms: TermAutomata | None) -> None:
        options, num_sentences = task.options, len(task.max_lengths)
        self.nodes: Ints | None = None  # (B * W, M), of the terms of each row
        self._widths = np.full(num_sentences, strategy.beam_size)  # the number of slots of each sentence
        if terms is not None:
            self._widths = terms.widths(strategy.beam_size)
        self._has_terms = task.has_terms
        self.written = np.zeros((num_sentences, 0), dtype=np.int64)  # (B * W, T), of each row
        self._log_probs = np.zeros((num_sentences, 0))  # of those tokens
        self._eos_id = task.eos_id
        self._options, self._strategy = options, strategy
        self.sentences = np.arange(num_sentences)
        self._totals_BW = np.zeros((num_sentences, 1))
        self._limits = np.asarray(task.max_lengths, dtype=np.int64)
        self._limit_penalties = np.asarray([options.penalty(limit) for limit in task.max_lengths])
        self._limit_penalties[self._has_terms] = 1
        self._num_kept = options.n_best if strategy.early_stopping == "optimal" else strategy.beam_size
        self._thresholds = np.full(num_sentences, -np.inf)  # -inf: fewer than num_kept have ended
        self.finished: Finished = [[] for _ in task.max_lengths]

    def sentences_of_rows(self) -> Ints:
        """Return the sentence of each row, (B * W,)."""
        return np.repeat(self.sentences, self._totals_BW.shape[1])

    def is_live(self) -> Bools:
        """Return which rows (B * W,) have a hypothesis; the others are empty slots."""
        return self._totals_BW.ravel() > -np.inf

    def advance(self, candidates: Candidates, coverage: Floats) -> tuple[Ints, Ints]:
        """Extend each hypothesis by one token.

        Args:
            candidates: the best next tokens of each row, (B * W, C).
            coverage: the coverage penalty of each row if it ends now, (B * W,).

        Returns:
            For each row of the next step, its row in this one and its input id.
        """
        best = self._best_extensions(candidates)
        count, log_probs = candidates.ids.shape[1], candidates.log_probs.ravel()
        length = self.written.shape[1] + 1
        ends_BE = (best.ids == self._eos_id) | (self._limits[self.sentences] == length)[:, None]
        self._add_finished(best, ends_BE, candidates, coverage)
        is_live_BE = ~ends_BE & (best.totals > -np.inf)
        is_live_BE &= is_live_BE.cumsum(axis=1) <= self._widths[self.sentences][:, None]
        is_missing_BE = best.expected != best.totals
        best_live_B = best.totals.max(axis=1, initial=-np.inf, where=is_live_BE & ~is_missing_BE)
        best_missing_B = best.expected.max(axis=1, initial=-np.inf, where=is_live_BE & is_missing_BE)
        is_going_on_B = self._is_going_on(best_live_B, best_missing_B, length)
        self.sentences = self.sentences[is_going_on_B]
        # Live hypotheses to the left, in their order; the fullest sentence decides the number of columns.
        lives_on_BE = is_live_BE[is_going_on_B]
        width = int(lives_on_BE.sum(axis=1).max(initial=0))
        columns_BW = (~lives_on_BE).argsort(axis=1, kind="stable")[:, :width]
        flat_BW = columns_BW + np.flatnonzero(is_going_on_B)[:, None] * is_live_BE.shape[1]
        is_live_BW, indices = is_live_BE.take(flat_BW), best.indices.take(flat_BW).ravel()
        self._totals_BW = np.where(is_live_BW, best.totals.take(flat_BW), -np.inf)
        rows, next_ids = indices // count, np.where(is_live_BW, best.ids.take(flat_BW), self._eos_id).ravel()
        self.written = np.column_stack((self.written.take(rows, axis=0), next_ids))
        self._log_probs = np.column_stack((self._log_probs.take(rows, axis=0), log_probs.take(indices)))
        if candidates.nodes is not None:
            nodes = candidates.nodes.reshape(-1, candidates.nodes.shape[2]).take(indices, axis=0)
            self.nodes = np.where(is_live_BW.reshape(-1, 1), nodes, MET)
        return rows, next_ids

    def _best_extensions(self, candidates: Candidates) -> _Extensions:
        """Return the best 2 * beam_size extensions of each sentence, best first; with terms, by banks."""
        num_sentences, width = self._totals_BW.shape
        num_each = width * candidates.ids.shape[1]
        totals_BN = (self._totals_BW.reshape(-1, 1) + candidates.scores).reshape(num_sentences, num_each)
        expected_BN = totals_BN
        if candidates.banks is None or candidates.estimates is None:
            order_BN = (-totals_BN).argsort(axis=1, kind="stable")
        else:
            expected_BN = totals_BN + candidates.estimates.reshape(totals_BN.shape)
            order_BN = in_turn(expected_BN, candidates.banks.reshape(totals_BN.shape))
        order_BE = order_BN[:, : 2 * int(self._widths.max())]
        indices_BE = order_BE + num_each * np.arange(num_sentences)[:, None]
        return _Extensions(
            totals_BN.take(indices_BE),
            candidates.ids.take(indices_BE),
            indices_BE,
            expected_BN.take(indices_BE),
        )

    def _add_finished(
        self,
        best: _Extensions,
        ends_BE: Bools,
        candidates: Candidates,
        coverage: Floats,
    ) -> None:
        """Keep the ended ones of the first beam_size extensions above the threshold; raise the threshold."""
        count, log_probs = candidates.ids.shape[1], candidates.log_probs.ravel()
        length = self.written.shape[1] + 1
        penalty, scores_BE = self._options.penalty(length), best.totals / self._penalties(length)[:, None]
        scores_BE += coverage.take(best.indices // count)
        is_added_BE = ends_BE & (scores_BE > self._thresholds[self.sentences][:, None])
        if not is_added_BE.any():
            return
        is_added_BE &= np.arange(ends_BE.shape[1]) < self._widths[self.sentences][:, None]
        for b, e in np.argwhere(is_added_BE).tolist():
            index, sentence = best.indices[b, e], self.sentences[b]
            row = index // count
            hypothesis = hypothesis_of(
                [*self.written[row].tolist(), int(best.ids[b, e])],
                [*self._log_probs[row].tolist(), float(log_probs[index])],
                eos_id=self._eos_id,
                penalty=penalty,
                coverage=float(coverage[row]),
            )
            finished = [*self.finished[sentence], (float(scores_BE[b, e]), hypothesis)]
            finished.sort(key=by_search_score)
            self.finished[sentence] = finished = finished[: self._num_kept]
            if len(finished) == self._num_kept:
                self._thresholds[sentence] = finished[-1][0]

    def _penalties(self, length: int) -> Floats:
        """Return the divisor of the totals of each live sentence; with terms, totals are compared."""
        return np.where(self._has_terms[self.sentences], 1.0, self._options.penalty(length))

    def _is_going_on(self, best_B: Floats, best_missing_B: Floats, length: int) -> Bools:
        """Return which live sentences need another step.

        Args:
            best_B: the best total of each sentence's live hypotheses with all terms.
            best_missing_B: the best total of the others, plus its estimate, scored at its present length.
            length: the length of all live hypotheses.
        """
        early_stopping, thresholds_B = self._strategy.early_stopping, self._thresholds[self.sentences]
        present_B = np.maximum(best_B, best_missing_B)
        bound_B = present_B / self._penalties(length)
        if early_stopping != "estimate":
            bound_B = np.maximum(bound_B, best_B / self._limit_penalties[self.sentences])
        is_first_B = (early_stopping == "first") | (self._widths[self.sentences] == 1)
        is_over_B = np.where(is_first_B, thresholds_B > -np.inf, bound_B <= thresholds_B)
        return np.asarray((present_B > -np.inf) & ~is_over_B)


@dataclass(frozen=True, kw_only=True)
class DiverseBeamSearch(DiverseBeamOptions, BeamSearch):
    """Diverse beam search: outputs that differ, from groups (Vijayakumar et al., 2016, algorithm 1).

    Each group is a beam with an equal share of `beam_size`. At each position the groups choose in turn, and a
    token costs `diversity_penalty` for each hypothesis of an earlier group with that token at this position
    (Hamming diversity). A group ends like a beam, by `early_stopping`. The results are the hypotheses of all
    groups, best first by score; scores do not include the diversity penalty.

    Attributes:
        num_groups: the number of groups; they share the beam equally, and one group is beam search.
        diversity_penalty: lambda: what a token costs in a group for each hypothesis of an earlier group that
            goes on with the same token at the same position.
    """

    def search_beam(self, step: StepFunction, task: SearchTask) -> list[list[Hypothesis]]:
        """Search different outputs of each sentence."""
        if self.num_groups == 1:
            return super().search_beam(step, task)
        constraints, options, size = Constraints(task), task.options, self.beam_size // self.num_groups
        share = BeamSearch(beam_size=size, early_stopping=self.early_stopping)
        of_group = task.with_n_best(min(size, options.n_best))
        groups = [Beam(of_group, share, constraints.terms) for _ in range(self.num_groups)]
        starts = [0] * self.num_groups  # the first row of each group; they share the rows of the first step
        last_ids = task.start_ids()
        while len(last_ids):
            options.check_cancelled()
            tokens = step(last_ids)
            coverage = coverage_penalties(step, options, len(last_ids))
            costs = np.zeros((len(task.max_lengths), tokens.vocab_size))  # of each next token
            moves = []  # for each group: the rows of the next step in this one, and their input ids
            for group, first in zip(groups, starts, strict=True):
                sentences = group.sentences_of_rows()
                candidates = constraints.candidates(
                    tokens[np.arange(first, first + len(sentences))], size + 1, written=group.written,
                    sentences=sentences, penalties=costs[sentences], nodes=group.nodes,
                )  # fmt: skip
                rows, ids = group.advance(candidates, coverage[first : first + len(sentences)])
                moves.append((first + rows, ids))
                live = group.is_live()
                np.add.at(costs, (group.sentences_of_rows()[live], ids[live]), self.diversity_penalty)
            rows, ids = map(np.concatenate, zip(*moves, strict=True))
            starts = [0, *accumulate(len(ids) for _, ids in moves[:-1])]
            if len(rows):
                step.reorder(rows)
            last_ids = ids
        return best_of(_merged([group.finished for group in groups], task.has_terms), options.n_best)


def _merged(groups: Sequence[Finished], has_terms: Bools) -> Finished:
    """Return each sentence's ended hypotheses of all groups, each output once.

    The best by score come first; of a sentence with terms, the best by log-probability.
    """
    merged = []
    for by_log_prob, *of_groups in zip(has_terms, *groups, strict=True):
        all_finished = [hypothesis for group in of_groups for _, hypothesis in group]
        best = {(hypothesis.ids, hypothesis.finished): hypothesis for hypothesis in all_finished}.values()
        ranked = [(found.log_prob if by_log_prob else found.score, found) for found in best]
        merged.append(sorted(ranked, key=by_search_score))
    return merged
