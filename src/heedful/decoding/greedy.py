"""Greedy search: the best next token, each time. The reference for a beam of one."""

from collections.abc import Sequence

import numpy as np
import torch

from heedful.decoding.hypotheses import Hypothesis, finished_hypothesis, unfinished_hypothesis
from heedful.decoding.options import SearchOptions
from heedful.decoding.step_function import StepFunction, top_candidates


def greedy_search(
    step: StepFunction,
    *,
    max_lengths: Sequence[int],
    bos_id: int,
    eos_id: int,
    pad_id: int,
    options: SearchOptions,
) -> list[list[Hypothesis]]:
    """Search one output for each sentence by taking the most probable token until the end token.

    Args:
        step: has one row for each sentence, not fed yet.
        max_lengths: for each sentence, the most tokens to generate, the end token included.
        bos_id: fed first; never generated, like `pad_id`.
        eos_id: ends an output.
        pad_id: never generated.
        options: only `length_penalty` (for the score) and `min_length` matter here.

    Returns:
        For each sentence a list of one hypothesis.
    """
    num_sentences, longest = len(max_lengths), max(max_lengths, default=0)
    limits = np.asarray(max_lengths, dtype=np.int64)
    ids_BT = np.full((num_sentences, longest), eos_id, dtype=np.int64)
    log_probs_BT = np.zeros((num_sentences, longest))
    lengths = np.zeros(num_sentences, dtype=np.int64)
    live = np.arange(num_sentences)
    last_ids = torch.full((num_sentences,), bos_id)
    while len(live):
        length = int(lengths[live[0]]) + 1
        banned = (pad_id, bos_id, eos_id) if length <= options.min_length else (pad_id, bos_id)
        values, ids = top_candidates(step(last_ids), 1, banned)
        ids_BT[live, length - 1], log_probs_BT[live, length - 1] = ids[:, 0], values[:, 0]
        lengths[live] = length
        going_on = np.flatnonzero((ids[:, 0] != eos_id) & (length < limits[live]))
        if 0 < len(going_on) < len(live):
            step.reorder(torch.from_numpy(going_on))
        live, last_ids = live[going_on], torch.from_numpy(ids[going_on, 0])
    found: list[list[Hypothesis]] = []
    for ids_T, log_probs_T, end in zip(ids_BT.tolist(), log_probs_BT.tolist(), lengths.tolist(), strict=True):
        tokens, token_log_probs = ids_T[:end], log_probs_T[:end]
        if tokens[-1] == eos_id:
            found.append([finished_hypothesis(tokens[:-1], token_log_probs, options.length_penalty)])
        else:
            found.append([unfinished_hypothesis(tokens, token_log_probs, options.length_penalty)])
    return found
