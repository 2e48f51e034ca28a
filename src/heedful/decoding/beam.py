"""Beam search over a step function, with a provable end."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from heedful.decoding.hypotheses import (
    History,
    Hypothesis,
    best_first,
    finished_hypothesis,
    length_penalty,
    unfinished_hypothesis,
)
from heedful.decoding.options import SearchOptions
from heedful.decoding.step_function import StepFunction, top_candidates
from heedful.errors import InputError


def beam_search(
    step: StepFunction,
    *,
    max_lengths: Sequence[int],
    bos_id: int,
    eos_id: int,
    pad_id: int,
    options: SearchOptions,
) -> list[list[Hypothesis]]:
    """Search the best outputs of each sentence, `options.beam_size` hypotheses at a time.

    At each step a sentence keeps the most probable extensions of its live hypotheses, as many as it has
    places in the beam. An extension by the end token is finished: it leaves the beam with its score and its
    place, so that a beam of one is greedy search. Extensions are compared by log-probability, finished
    hypotheses by score. Equal log-probabilities go to the better parent, then to the lower id.

    A sentence ends when its places are used up, at its length limit, or (early_stopping "optimal") when it
    has n_best finished hypotheses and no live one can enter them: for alpha >= 0 nothing that begins with a
    hypothesis of log-probability p can score more than p / length_penalty(limit). Ended sentences leave the
    batch. Hypotheses that the limit cut count only where nothing finished.

    Args:
        step: has one row for each sentence, not fed yet.
        max_lengths: for each sentence, the most tokens to generate, the end token included; at least 1.
        bos_id: fed first; never generated, like `pad_id`.
        eos_id: ends an output.
        pad_id: never generated.
        options: what to search.

    Returns:
        For each sentence at most `options.n_best` hypotheses, best first.

    Raises:
        InputError: log-probabilities that are not numbers, or that leave a sentence no continuation.
    """
    beam = _Beam(max_lengths, eos_id=eos_id, options=options)
    last_ids = torch.full((len(max_lengths),), bos_id)
    while beam.num_live:
        banned = (pad_id, bos_id, eos_id) if beam.length < options.min_length else (pad_id, bos_id)
        values, ids = top_candidates(step(last_ids), options.beam_size, banned)
        num_rows = len(values)
        rows, next_ids = beam.advance(values, ids)
        if beam.num_live and not np.array_equal(rows, np.arange(num_rows)):
            step.reorder(torch.from_numpy(rows))
        last_ids = torch.from_numpy(next_ids)
    return beam.results()


@dataclass(frozen=True)
class _Extensions:
    """Hypotheses longer by one token, equally many for each sentence; each array is (B, that many)."""

    totals: NDArray[np.float64]  # log-probability of the whole
    values: NDArray[np.float64]  # log-probability of the last token
    ids: NDArray[np.int64]  # the last token
    rows: NDArray[np.int64]  # the row of what is extended

    def take(self, columns: NDArray[np.int64], *, sentences: NDArray[np.bool_]) -> "_Extensions":
        """Of the sentences marked, these columns, in this order."""
        return _Extensions(
            totals=np.take_along_axis(self.totals[sentences], columns, axis=1),
            values=np.take_along_axis(self.values[sentences], columns, axis=1),
            ids=np.take_along_axis(self.ids[sentences], columns, axis=1),
            rows=np.take_along_axis(self.rows[sentences], columns, axis=1),
        )


class _Beam:
    """The hypotheses of all sentences, on the host; B live sentences, W live hypotheses at most in each.

    Row b * W + w of the step function is hypothesis w of live sentence b. An empty place has the
    log-probability -inf.
    """

    def __init__(self, max_lengths: Sequence[int], *, eos_id: int, options: SearchOptions) -> None:
        num_sentences = len(max_lengths)
        self.length = 0
        self._eos_id = eos_id
        self._options = options
        self._sentences = np.arange(num_sentences)
        self._log_probs_BW = np.zeros((num_sentences, 1))
        self._history = History()
        self._limits = np.asarray(max_lengths, dtype=np.int64)
        self._limit_penalties = np.asarray([length_penalty(n, options.length_penalty) for n in max_lengths])
        self._places = np.full(num_sentences, options.beam_size)
        self._bars = np.full(num_sentences, -np.inf)  # the score of the n-best finished hypothesis
        self._finished: list[list[Hypothesis]] = [[] for _ in max_lengths]
        self._cut: list[list[Hypothesis]] = [[] for _ in max_lengths]

    @property
    def num_live(self) -> int:
        """How many sentences are still searched."""
        return len(self._sentences)

    def results(self) -> list[list[Hypothesis]]:
        """The n-best list of each sentence."""
        found = [finished or cut for finished, cut in zip(self._finished, self._cut, strict=True)]
        if not all(found):
            raise InputError("search: the model gives no possible continuation any probability")
        return [best_first(hypotheses)[: self._options.n_best] for hypotheses in found]

    def advance(
        self, values: NDArray[np.float64], ids: NDArray[np.int64]
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Extend each hypothesis by one token.

        Args:
            values: log-probabilities (B * W, C) of the best next tokens of each row, best first.
            ids: those tokens (B * W, C).

        Returns:
            For each row of the next step, its row in this one and the id to feed.
        """
        self.length += 1
        best = self._best_extensions(values, ids)
        places_B1 = self._places[self._sentences][:, None]
        is_kept_BK = (np.arange(best.ids.shape[1]) < places_B1) & (best.totals > -np.inf)
        is_finished_BK = is_kept_BK & (best.ids == self._eos_id)
        is_live_BK = is_kept_BK & ~is_finished_BK
        for b, k in np.argwhere(is_finished_BK).tolist():
            self._finish(self._sentences[b], best.rows[b, k], best.values[b, k])
        self._places[self._sentences] -= is_finished_BK.sum(axis=1)
        at_limit_B1 = (self._limits[self._sentences] <= self.length)[:, None]
        for b, k in np.argwhere(is_live_BK & at_limit_B1).tolist():
            self._cut_off(self._sentences[b], best.rows[b, k], best.ids[b, k], best.values[b, k])

        is_going_on_B = self._is_going_on(np.where(is_live_BK, best.totals, -np.inf).max(axis=1))
        is_live_BK = is_live_BK[is_going_on_B]
        # Live hypotheses to the left, in their order; as many columns as the fullest sentence needs.
        width = int(is_live_BK.sum(axis=1).max(initial=0))
        columns_BW = np.argsort(~is_live_BK, axis=1, kind="stable")[:, :width]
        is_live_BW = np.take_along_axis(is_live_BK, columns_BW, axis=1)
        live = best.take(columns_BW, sentences=is_going_on_B)
        self._sentences = self._sentences[is_going_on_B]
        self._log_probs_BW = np.where(is_live_BW, live.totals, -np.inf)
        rows, next_ids = live.rows.ravel(), np.where(is_live_BW, live.ids, self._eos_id).ravel()
        self._history.append(rows, next_ids, live.values.ravel())
        return rows, next_ids

    def _best_extensions(self, values: NDArray[np.float64], ids: NDArray[np.int64]) -> "_Extensions":
        """The best `beam_size` of all extensions of each sentence, best first."""
        num_sentences, width = self._log_probs_BW.shape
        count = values.shape[1]
        shape_BN = (num_sentences, width * count)
        every = _Extensions(
            totals=(self._log_probs_BW.reshape(-1, 1) + values).reshape(shape_BN),
            values=values.reshape(shape_BN),
            ids=ids.reshape(shape_BN),
            rows=np.repeat(np.arange(num_sentences * width), count).reshape(shape_BN),
        )
        order_BN = np.argsort(-every.totals, axis=1, kind="stable")
        return every.take(
            order_BN[:, : self._options.beam_size], sentences=np.ones(num_sentences, dtype=bool)
        )

    def _is_going_on(self, best_B: NDArray[np.float64]) -> NDArray[np.bool_]:
        """Which live sentences, with the best live log-probability of each, are worth another step."""
        bars_B = self._bars[self._sentences]
        bounds_B = best_B / self._limit_penalties[self._sentences]
        going_on_B = (bounds_B > bars_B) & (self._limits[self._sentences] > self.length)
        if self._options.early_stopping == "first":
            going_on_B &= bars_B == -np.inf
        return np.asarray(going_on_B)

    def _finish(self, sentence: int, row: int, eos_log_prob: float) -> None:
        """Keep the hypothesis in `row`, ended here, and raise the bar of its sentence."""
        ids, log_probs = self._history.trace(row)
        hypotheses = self._finished[sentence]
        alpha, n_best = self._options.length_penalty, self._options.n_best
        hypotheses.append(finished_hypothesis(ids, [*log_probs, float(eos_log_prob)], alpha))
        if len(hypotheses) >= n_best:
            self._bars[sentence] = sorted((each.score for each in hypotheses), reverse=True)[n_best - 1]

    def _cut_off(self, sentence: int, row: int, last_id: int, log_prob: float) -> None:
        """Keep the hypothesis in `row`, extended by one last id, as one that the length limit cut."""
        if not self._finished[sentence]:
            ids, log_probs = self._history.trace(row)
            alpha = self._options.length_penalty
            self._cut[sentence].append(
                unfinished_hypothesis([*ids, int(last_id)], [*log_probs, float(log_prob)], alpha)
            )
