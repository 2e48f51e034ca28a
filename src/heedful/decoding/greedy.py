"""Greedy search: the best next token, each time. The reference for a beam of one."""

import numpy as np

from heedful.decoding.constraints import Constraints
from heedful.decoding.hypotheses import NO_CONTINUATION, Hypothesis, Outputs
from heedful.decoding.steps import StepFunction
from heedful.decoding.task import SearchTask
from heedful.errors import InputError


def greedy_search(step: StepFunction, task: SearchTask) -> list[list[Hypothesis]]:
    """Search one output for each sentence by taking the most probable token until the end token.

    Args:
        step: has one row for each sentence, and no input ids yet.
        task: of its options, the length penalty (for the score) and what is suppressed, penalised or forced.

    Returns:
        For each sentence a list of one hypothesis.

    Raises:
        InputError: log-probabilities that are not numbers, or that leave a sentence no continuation.
    """
    outputs = Outputs(task.max_lengths, eos_id=task.eos_id)
    constraints = Constraints(task)
    last_ids = task.start_ids()
    while num_live := len(outputs.live):
        best = constraints.candidates(step(last_ids), 1, written=outputs.written, sentences=outputs.live)
        if np.isneginf(best.scores).any():
            raise InputError(NO_CONTINUATION)
        rows = outputs.append(best.ids[:, 0], best.log_probs[:, 0])
        if 0 < len(rows) < num_live:
            step.reorder(rows)
        last_ids = best.ids[rows, 0]
    return [[hypothesis] for hypothesis in outputs.hypotheses(task.options.penalty)]
