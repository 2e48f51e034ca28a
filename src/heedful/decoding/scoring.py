"""Forced decoding: the log-probabilities of outputs that are given."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from heedful.decoding.constraints import Constraints
from heedful.decoding.coverage import coverage_penalties
from heedful.decoding.hypotheses import Hypothesis, hypothesis_of
from heedful.decoding.steps import StepFunction
from heedful.decoding.task import SearchTask


@dataclass(frozen=True)
class ScoredOutput(Hypothesis):
    """A reference output with the scores of a search, and those of the model alone.

    Attributes:
        model_log_probs: the log-probability that the model gives each token, whatever the options suppress,
            force or renormalise; `token_log_probs` differ from it there and nowhere else.
    """

    model_log_probs: tuple[float, ...]


def score_outputs(
    step: StepFunction, outputs: Sequence[Sequence[int]], task: SearchTask
) -> list[ScoredOutput]:
    """Score one output of each sentence by teacher forcing, as a search scores its hypotheses.

    With the options, limits and prefixes of a search, each hypothesis of that search has the numbers that it
    came with. So a token that the options force has the log-probability 0, and one that the search may not
    write there -inf; the length limit alone rules nothing out: an output that is longer has none. What only
    changes which output is found changes no number: repetition penalty, diversity, sampling, prefix bias.

    Args:
        step: has one row for each sentence, and no input ids yet.
        outputs: for each sentence the ids that the decoder writes, at least one: with a tag where the model
            writes one, and with the end token unless the output is truncated.
        task: of the search; of its options, the length and coverage penalties (of the score) and what is
            suppressed, forced or renormalised.

    Returns:
        For each sentence its output, with the numbers of a hypothesis.

    Raises:
        InputError: log-probabilities that are not numbers, or a forced token that does not exist.
    """
    lengths = np.asarray([len(output) for output in outputs], dtype=np.int64)
    limits = np.where(lengths > np.asarray(task.max_lengths), lengths + 1, task.max_lengths)
    constraints = Constraints(replace(task, max_lengths=limits.tolist()))
    ids_BT = np.full((len(outputs), lengths.max(initial=0)), task.eos_id, dtype=np.int64)
    for row, output in zip(ids_BT, outputs, strict=True):
        row[: len(output)] = output
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
        n = len(output)
        hypothesis = hypothesis_of(
            output,
            log_probs_BT[row, :n].tolist(),
            eos_id=task.eos_id,
            penalty=task.options.penalty(n),
            coverage=float(coverage_B[row]),
        )
        scored.append(_scored(hypothesis, model_log_probs_BT[row, :n].tolist()))
    return scored


def _scored(hypothesis: Hypothesis, model_log_probs: Sequence[float]) -> ScoredOutput:
    return ScoredOutput(
        ids=hypothesis.ids,
        log_prob=hypothesis.log_prob,
        score=hypothesis.score,
        token_log_probs=hypothesis.token_log_probs,
        finished=hypothesis.finished,
        model_log_probs=tuple(model_log_probs),
    )
