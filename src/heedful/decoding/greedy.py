"""Greedy search: the best next token, each time. The reference for a beam of one."""

from collections.abc import Sequence

import numpy as np
import torch

from heedful.decoding.constraints import Constraints
from heedful.decoding.hypotheses import Hypothesis, ended_hypothesis
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
) -> list[list[Hypothesis]]:
    """Search one output for each sentence by taking the most probable token until the end token.

    Args:
        step: has one row for each sentence, not fed yet.
        max_lengths: for each sentence, the most tokens to generate, the end token included; at least 1.
        start_id: fed first.
        eos_id: ends an output.
        pad_id: never generated, like `start_id`, unless the options say otherwise.
        options: the length penalty (for the score) and what is suppressed or forced.

    Returns:
        For each sentence a list of one hypothesis.

    Raises:
        InputError: log-probabilities that are not numbers, or that leave a sentence no continuation.
    """
    constraints = Constraints.of(options, start_id=start_id, eos_id=eos_id, pad_id=pad_id)
    num_sentences, longest = len(max_lengths), max(max_lengths, default=0)
    limits = np.asarray(max_lengths, dtype=np.int64)
    ids_BT = np.full((num_sentences, longest), eos_id, dtype=np.int64)
    log_probs_BT = np.zeros((num_sentences, longest))
    lengths = np.zeros(num_sentences, dtype=np.int64)
    live = np.arange(num_sentences)
    last_ids = torch.full((num_sentences,), start_id)
    while len(live):
        length = int(lengths[live[0]])
        values, ids = constraints.candidates(
            step(last_ids), 1, length=length, is_last=limits[live] == length + 1
        )
        if np.isneginf(values).any():
            raise InputError("search: the model gives no possible continuation any probability")
        ids_BT[live, length], log_probs_BT[live, length] = ids[:, 0], values[:, 0]
        lengths[live] = length + 1
        going_on = np.flatnonzero((ids[:, 0] != eos_id) & (length + 1 < limits[live]))
        if 0 < len(going_on) < len(live):
            step.reorder(torch.from_numpy(going_on))
        live, last_ids = live[going_on], torch.from_numpy(ids[going_on, 0])
    rows = zip(ids_BT.tolist(), log_probs_BT.tolist(), lengths.tolist(), strict=True)
    return [
        [ended_hypothesis(tokens[:n], log_probs[:n], eos_id=eos_id, penalty=options.penalty(n))]
        for tokens, log_probs, n in rows
    ]
