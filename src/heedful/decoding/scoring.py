"""Forced decoding: the log-probabilities of outputs that are given."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from heedful.decoding.constraints import Constraints
from heedful.decoding.cross_attention import coverage_penalties
from heedful.decoding.hypotheses import Hypothesis, ended_hypothesis
from heedful.decoding.options import SearchOptions
from heedful.decoding.step_function import StepFunction


@dataclass(frozen=True)
class ScoredOutput(Hypothesis):
    """A given output with the numbers of a search, and those of the model alone.

    Attributes:
        model_log_probs: the log-probability that the model gives each token, whatever the options suppress,
            force or renormalise; `token_log_probs` differ from it there and nowhere else.
    """

    model_log_probs: tuple[float, ...]


def score_outputs(
    step: StepFunction,
    outputs: Sequence[Sequence[int]],
    *,
    max_lengths: Sequence[int],
    start_id: int,
    eos_id: int,
    pad_id: int,
    options: SearchOptions,
    prefixes: Sequence[Sequence[int]] | None = None,
) -> list[ScoredOutput]:
    """Score one given output for each sentence, as a search scores what it finds.

    With the options, limits and prefixes of a search, each hypothesis of that search has the numbers that it
    came with. So a token that the options force has the log-probability 0, and one that the search may not
    write there -inf; the length limit alone rules nothing out: an output that is longer has none. What only
    changes which output is found changes no number: repetition penalty, diversity, chance, prefix bias.

    Args:
        step: has one row for each sentence, not fed yet.
        outputs: for each sentence the ids that the decoder writes, at least one: with a tag where the model
            writes one, and with the end token unless the output is cut.
        max_lengths: for each sentence, the most tokens of a search, the end token included.
        start_id: fed first.
        eos_id: ends an output.
        pad_id: never written, like `start_id`, unless the options say otherwise.
        options: the length and coverage penalties (of the score) and what is suppressed, forced or
            renormalised.
        prefixes: what the outputs of a search had to begin with (see `Constraints`).

    Returns:
        For each sentence its output, with the numbers of a hypothesis.

    Raises:
        InputError: log-probabilities that are not numbers, or a forced token that does not exist.
    """
    lengths = np.asarray([len(output) for output in outputs], dtype=np.int64)
    limits = np.where(lengths > np.asarray(max_lengths), lengths + 1, max_lengths)
    constraints = Constraints(
        options, start_id=start_id, eos_id=eos_id, pad_id=pad_id, max_lengths=limits.tolist(),
        prefixes=prefixes,
    )  # fmt: skip
    ids_BT = np.full((len(outputs), lengths.max(initial=0)), eos_id, dtype=np.int64)
    for row, output in zip(ids_BT, outputs, strict=True):
        row[: len(output)] = output
    log_probs_BT, model_log_probs_BT = np.zeros(ids_BT.shape), np.zeros(ids_BT.shape)
    coverage_B = np.zeros(len(outputs))
    live = np.arange(len(outputs))
    last_ids = torch.full((len(outputs),), start_id)
    for place in range(ids_BT.shape[1]):
        log_probs_BT[live, place], model_log_probs_BT[live, place] = constraints.log_probs_of(
            ids_BT[live, place], step(last_ids), written=ids_BT[live, :place], sentences=live
        )
        coverage_B[live] = coverage_penalties(step, options, len(live))
        rows = np.flatnonzero(lengths[live] > place + 1)
        if 0 < len(rows) < len(live):
            step.reorder(torch.from_numpy(rows))
        live = live[rows]
        last_ids = torch.from_numpy(ids_BT[live, place])
    found = []
    for row, output in enumerate(outputs):
        n = len(output)
        hypothesis = ended_hypothesis(
            output,
            log_probs_BT[row, :n].tolist(),
            eos_id=eos_id,
            penalty=options.penalty(n),
            coverage=float(coverage_B[row]),
        )
        found.append(_scored(hypothesis, model_log_probs_BT[row, :n].tolist()))
    return found


def _scored(found: Hypothesis, model_log_probs: Sequence[float]) -> ScoredOutput:
    return ScoredOutput(
        ids=found.ids,
        log_prob=found.log_prob,
        score=found.score,
        token_log_probs=found.token_log_probs,
        finished=found.finished,
        model_log_probs=tuple(model_log_probs),
    )
