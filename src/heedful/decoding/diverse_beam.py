"""Diverse beam search: a beam in groups, each of which keeps away from what those before it write."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from heedful.decoding.beam import Beam, best_of, by_rank
from heedful.decoding.constraints import Constraints
from heedful.decoding.coverage import coverage_penalties
from heedful.decoding.hypotheses import Hypothesis
from heedful.decoding.steps import StepFunction
from heedful.decoding.task import SearchTask


def diverse_beam_search(step: StepFunction, task: SearchTask) -> list[list[Hypothesis]]:
    """Search outputs that differ, in `options.num_groups` groups (Vijayakumar et al., 2016, algorithm 1).

    Each group is a beam of its own. At each position the groups choose one after the other, and a token costs
    `options.diversity_penalty` for each hypothesis of an earlier group that goes on with it at this position
    (Hamming diversity). The first group is beam search with its share of `options.beam_size`.

    Args:
        step: has one row for each sentence, and no input ids yet.
        task: what to search.

    Returns:
        For each sentence at most `options.n_best` different hypotheses of all groups, best first by what the
        search went by. Their numbers are the model's own, without what diversity costs.

    Raises:
        InputError: log-probabilities that are not numbers, or that leave a sentence no continuation.
    """
    constraints, options = Constraints(task), task.options
    size = options.beam_size // options.num_groups
    share = replace(options, beam_size=size, n_best=min(size, options.n_best), num_groups=1)
    groups = [Beam(replace(task, options=share)) for _ in range(options.num_groups)]
    starts = [0] * options.num_groups  # the first row of each group; they share the rows of the first step
    last_ids = task.start_ids()
    while len(last_ids):
        tokens = step(last_ids)
        coverage = coverage_penalties(step, options, len(last_ids))
        costs = np.zeros((len(task.max_lengths), tokens.vocab_size))  # of each next token
        moves = []  # of each group, for each row of the next step, its row in this one and its input id
        for group, start in zip(groups, starts, strict=True):
            sentences = group.sentences_of_rows()
            candidates = constraints.candidates(
                tokens[np.arange(start, start + len(sentences))], size + 1, written=group.written,
                sentences=sentences, discounts=costs[sentences],
            )  # fmt: skip
            rows, ids = group.advance(candidates, coverage[start : start + len(sentences)])
            moves.append((start + rows, ids))
            live = group.is_live()
            np.add.at(costs, (group.sentences_of_rows()[live], ids[live]), options.diversity_penalty)
        rows, ids = (np.concatenate(of_groups) for of_groups in zip(*moves, strict=True))
        starts = np.cumsum([0, *(len(ids) for _, ids in moves[:-1])]).tolist()
        if len(rows):
            step.reorder(rows)
        last_ids = ids
    return best_of(_merged([group.ended for group in groups]), options.n_best)


def _merged(
    groups: Sequence[Sequence[Sequence[tuple[float, Hypothesis]]]],
) -> list[list[tuple[float, Hypothesis]]]:
    """Of each sentence the ended hypotheses of all groups, best first, each output once."""
    merged = []
    for of_groups in zip(*groups, strict=True):
        best: dict[tuple[tuple[int, ...], bool], tuple[float, Hypothesis]] = {}
        for ended in sorted((each for group in of_groups for each in group), key=by_rank):
            best.setdefault((ended[1].ids, ended[1].finished), ended)
        merged.append(list(best.values()))
    return merged
