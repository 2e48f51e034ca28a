"""Forced decoding: the log-probabilities of outputs that are given."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from typing_extensions import override

from heedful.decoding.constraints import Constraints
from heedful.decoding.steps import Array, Floats, Ids, Ints, NextTokens, StepFunction, like, on_host
from heedful.decoding.task import Hypothesis, SearchTask, hypothesis_of
from heedful.errors import InputError
from heedful.settings.options import SharedOptions
from heedful.text.tokenizer import pad

# Replaces a 0, which only rounding can cause: its logarithm is finite.
_LEAST = float(np.finfo(np.float32).tiny)


class CoverageTracker(StepFunction):
    """A step function that sums the attention of its rows, for the coverage penalty."""

    def __init__(self, step: StepFunction, latest: Callable[[], Array], *, lengths: Sequence[int]) -> None:
        """Wrap a step function that has no input ids yet.

        Args:
            step: the step function.
            latest: returns the attention (rows, S) of its latest call.
            lengths: the lengths of the sources.
        """
        self._step = step
        self._latest = latest
        is_padding_BS = np.arange(max(lengths)) >= np.asarray(lengths)[:, None]
        self._sums_BS: Array = is_padding_BS.astype(np.float32)  # padding counts as covered

    @override
    def __call__(self, last_ids: Ints) -> NextTokens:
        tokens = self._step(last_ids)
        weights_BS = self._latest()
        if isinstance(self._sums_BS, np.ndarray):
            self._sums_BS = like(self._sums_BS, weights_BS)
        self._sums_BS = self._sums_BS + weights_BS
        return tokens

    @override
    def reorder(self, rows: Ints) -> None:
        self._step.reorder(rows)
        self._sums_BS = self._sums_BS[like(rows, self._sums_BS)]

    def coverage(self) -> Floats:
        """Return for each row (rows,) the sum over i of log(min(sum over j of p_ij, 1)), at most 0.

        p_ij is the attention to source token i of the step that predicts token j; the latest step is
        included.
        """
        sums_BS: Floats = on_host(self._sums_BS).astype(np.float64)
        covered: Floats = np.log(np.clip(sums_BS, _LEAST, 1.0)).sum(axis=-1)
        return covered


def coverage_penalties(step: StepFunction, options: SharedOptions, num_rows: int) -> Floats:
    """Return the coverage penalty of an output that ends now in each row, (num_rows,); at most 0.

    Raises:
        InputError: there is a coverage penalty, and the step function has no attention.
    """
    if not options.coverage_penalty:
        return np.zeros(num_rows)
    if not hasattr(step, "coverage"):  # of `CoverageTracker`, or of your own step function
        raise InputError(
            f"coverage_penalty={options.coverage_penalty}: the step function gives no coverage; "
            "see CoverageTracker"
        )
    coverage: Floats = step.coverage()
    return options.coverage_penalty * coverage


@dataclass(frozen=True)
class ScoredOutput(Hypothesis):
    """A reference output with the scores of a search, and the scores of the model alone.

    Attributes:
        model_log_probs: the model's own log-probability of each token. `token_log_probs` differ from it only
            if the options suppress, force or renormalise.
    """

    model_log_probs: tuple[float, ...]


def score_outputs(step: StepFunction, outputs: Ids, task: SearchTask) -> list[ScoredOutput]:
    """Score one output of each sentence by teacher forcing, as a search scores its hypotheses.

    With the options, limits and prefixes of a search, each hypothesis of that search gets the same numbers. A
    forced token has log-probability 0, and an impossible one -inf. The length limit makes nothing impossible:
    a longer output is scored without a limit. Options that only change which output is found (repetition
    penalty, diversity, sampling) change no number.

    Args:
        step: a step function with one row for each sentence, and no input ids yet.
        outputs: for each sentence the ids that the decoder writes, at least one: with a language tag if the
            model writes one, and with the end token unless the output is truncated.
        task: the task of the search; only its length and coverage penalties and its suppressed, forced and
            renormalised tokens matter.

    Returns:
        The output of each sentence, with the numbers of a hypothesis.

    Raises:
        InputError: log-probabilities that are not numbers, or a forced token that does not exist.
    """
    lengths = np.asarray([len(output) for output in outputs], dtype=np.int64)
    limits = np.where(lengths > np.asarray(task.max_lengths), lengths + 1, task.max_lengths)
    constraints = Constraints(replace(task, max_lengths=limits.tolist()))
    ids_BT = pad(outputs, task.eos_id)
    log_probs_BT, model_log_probs_BT = np.zeros(ids_BT.shape), np.zeros(ids_BT.shape)
    coverage_B = np.zeros(len(outputs))
    live = np.arange(len(outputs))
    last_ids = task.start_ids()
    for position in range(ids_BT.shape[1]):
        log_probs_BT[live, position], model_log_probs_BT[live, position] = constraints.log_probs_of(
            ids_BT[live, position], step(last_ids), written=ids_BT[live, :position], sentences=live
        )
        coverage_B[live] = coverage_penalties(step, task.options, len(live))
        rows = np.flatnonzero(lengths[live] > position + 1)
        if 0 < len(rows) < len(live):
            step.reorder(rows)
        live = live[rows]
        last_ids = ids_BT[live, position]
    scored = []
    for row, output in enumerate(outputs):
        length = len(output)
        hypothesis = hypothesis_of(
            output,
            log_probs_BT[row, :length].tolist(),
            eos_id=task.eos_id,
            penalty=task.options.penalty(length),
            coverage=float(coverage_B[row]),
        )
        model_log_probs = tuple(model_log_probs_BT[row, :length].tolist())
        scored.append(ScoredOutput(**vars(hypothesis), model_log_probs=model_log_probs))
    return scored
