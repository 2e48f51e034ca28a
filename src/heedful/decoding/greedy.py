"""Greedy search: the best next token, each time. The reference for a beam of one."""

from collections.abc import Sequence

import numpy as np
import torch

from heedful.decoding.constraints import Constraints
from heedful.decoding.hypotheses import NO_CONTINUATION, Hypothesis, Outputs
from heedful.decoding.options import SearchOptions
from heedful.decoding.step_function import StepFunction
from heedful.errors import InputError


def greedy_search(
    step: StepFunction,
    *,
    max_lengths: Sequence[int],
    start_id: int,
    eos_id: int,
    pad_id: int,
    options: SearchOptions,
    prefixes: Sequence[Sequence[int]] | None = None,
) -> list[list[Hypothesis]]:
    """Search one output for each sentence by taking the most probable token until the end token.

    Args:
        step: has one row for each sentence, not fed yet.
        max_lengths: for each sentence, the most tokens to generate, the end token included; at least 1.
        start_id: fed first.
        eos_id: ends an output.
        pad_id: never generated, like `start_id`, unless the options say otherwise.
        options: the length penalty (for the score) and what is suppressed, held back or forced.
        prefixes: what the output of each sentence begins with (see `Constraints`).

    Returns:
        For each sentence a list of one hypothesis.

    Raises:
        InputError: log-probabilities that are not numbers, or that leave a sentence no continuation.
    """
    outputs = Outputs(max_lengths, eos_id=eos_id)
    constraints = Constraints(
        options, start_id=start_id, eos_id=eos_id, pad_id=pad_id, max_lengths=max_lengths, prefixes=prefixes
    )
    last_ids = torch.full((len(max_lengths),), start_id)
    while num_live := len(outputs.live):
        best = constraints.candidates(step(last_ids), 1, written=outputs.written, sentences=outputs.live)
        if np.isneginf(best.scores).any():
            raise InputError(NO_CONTINUATION)
        rows = outputs.append(best.ids[:, 0], best.log_probs[:, 0])
        if 0 < len(rows) < num_live:
            step.reorder(torch.from_numpy(rows))
        last_ids = torch.from_numpy(best.ids[rows, 0])
    return [[hypothesis] for hypothesis in outputs.hypotheses(options.penalty)]
