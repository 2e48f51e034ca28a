"""Sampling: each next token is drawn by chance, by its probability or among the probable ones."""

import hashlib
import math
from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from heedful.decoding.constraints import Constraints
from heedful.decoding.hypotheses import NO_CONTINUATION, Hypothesis, Outputs
from heedful.decoding.options import Sampling
from heedful.decoding.step_function import NOT_NUMBERS, StepFunction, all_log_probs
from heedful.decoding.task import SearchTask
from heedful.errors import InputError


def sample_search(step: StepFunction, task: SearchTask) -> list[list[Hypothesis]]:
    """Draw `options.n_best` outputs of each sentence, each independent of the others.

    What is drawn for a sentence depends on the model, the options and its source alone, not on the sentences
    beside it, the size of the batch or the order: the chance comes from the source (see `random_numbers`).
    The first k outputs are the same for every `n_best` of at least k. The same sentence has the same outputs
    each time; another seed gives others.

    Args:
        step: has one row for each sentence, not fed yet.
        task: with the sources; its options say how to draw (`options.sampling`), how many, and what is
            suppressed, held back or forced.

    Returns:
        For each sentence its outputs in the order in which they were drawn. Their log-probabilities are the
        model's own, as in every search: those at temperature 1, whatever was cut off or held back.

    Raises:
        InputError: log-probabilities that are not numbers, or that leave a sentence no continuation.
    """
    sampling, copies = task.options.sampling or Sampling(), task.options.n_best
    outputs = Outputs([limit for limit in task.max_lengths for _ in range(copies)], eos_id=task.eos_id)
    constraints = Constraints(task)
    chance = _chance(sampling.seed, task, copies)
    last_ids = task.start_ids()
    while num_live := len(outputs.live):
        log_probs = all_log_probs(step(last_ids))
        fed = np.arange(num_live) // (num_live // len(log_probs))  # the row of the step for each live output
        if num_live > len(log_probs):  # the first step has one row for all outputs of a sentence
            log_probs = log_probs[torch.from_numpy(fed)]
        scores, own = constraints.distribution(
            log_probs, written=outputs.written, sentences=outputs.live // copies
        )
        ids, own_values = _draw(probable(scores, sampling), own, chance[outputs.live, outputs.length])
        rows = outputs.append(ids, own_values)
        if len(rows) and not np.array_equal(fed[rows], np.arange(fed[-1] + 1)):
            step.reorder(torch.from_numpy(fed[rows]))
        last_ids = torch.from_numpy(ids[rows])
    found = outputs.hypotheses(task.options.penalty)
    return [found[start : start + copies] for start in range(0, len(found), copies)]


def probable(scores: Tensor, sampling: Sampling) -> Tensor:
    """Of log-probabilities (rows, V), those of the tokens that may be drawn, in float64; -inf for the others.

    The cut-offs follow each other as in transformers: temperature, top-k (Fan et al., 2018), top-p (Holtzman
    et al., 2020), min-p (Nguyen et al., 2024), epsilon (Hewitt et al., 2022). Each sees the probabilities
    that the ones before it leave, scaled up to a sum of 1, and keeps at least the best token.
    """
    scores = scores.double() / sampling.temperature
    if sampling.top_k is not None:
        worst = scores.topk(min(sampling.top_k, scores.shape[-1])).values[:, -1:]
        scores = scores.masked_fill(scores < worst, -torch.inf)
    if sampling.top_p < 1:
        ordered, order = scores.sort(dim=-1, descending=True, stable=True)
        is_out = torch.zeros_like(order, dtype=torch.bool)  # where those before it are enough
        is_out[:, 1:] = ordered.softmax(dim=-1).cumsum(dim=-1)[:, :-1] >= sampling.top_p
        scores = scores.masked_fill(torch.zeros_like(is_out).scatter(-1, order, is_out), -torch.inf)
    if sampling.min_p > 0:
        best = scores.max(dim=-1, keepdim=True).values
        scores = scores.masked_fill(scores < best + math.log(sampling.min_p), -torch.inf)
    if sampling.epsilon > 0:
        best = scores.max(dim=-1, keepdim=True).values
        is_out = (scores.softmax(dim=-1) < sampling.epsilon) & (scores < best)
        scores = scores.masked_fill(is_out, -torch.inf)
    return scores


def random_numbers(seed: int, source: Sequence[int], sample: int, count: int) -> NDArray[np.float64]:
    """The chance of one output: a number in [0, 1) for each of its tokens, the same on every machine.

    They are a function of the arguments alone: Philox, a generator that counts (Salmon et al., 2011), keyed
    by the hash of seed and source, at a place of its counter for each sample. More numbers begin with fewer.
    """
    named = " ".join(map(str, (seed, *source))).encode()
    key = int.from_bytes(hashlib.blake2b(named, digest_size=16).digest(), "little")
    generator = np.random.Philox(key=key, counter=sample << 64)
    # 52 bits, so that a product with any positive number is below that number.
    return (generator.random_raw(count) >> np.uint64(12)).astype(np.float64) * 2.0**-52


def _chance(seed: int, task: SearchTask, copies: int) -> NDArray[np.float64]:
    """The random numbers of every output and place, (sentences * copies, T)."""
    chance = np.zeros((len(task.sources) * copies, max(task.max_lengths, default=0)))
    for sentence, (source, length) in enumerate(zip(task.sources, task.max_lengths, strict=True)):
        for sample in range(copies):
            chance[sentence * copies + sample, :length] = random_numbers(seed, source, sample, length)
    return chance


def _draw(
    scores: Tensor, own: Tensor, chance: NDArray[np.float64]
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Draw a token of each row by its random number: the first whose cumulative probability is above it.

    Returns:
        The tokens, and the model's own log-probabilities of them, each (rows,).
    """
    cumulative = scores.softmax(dim=-1).cumsum(dim=-1)
    total = cumulative[:, -1:]
    threshold = total * torch.from_numpy(chance[:, None]).to(scores.device)
    ids = torch.searchsorted(cumulative, threshold, right=True).clamp(max=scores.shape[-1] - 1)
    # One transfer: ids are exact in float64.
    packed = torch.cat((ids.double(), own.gather(-1, ids).double(), total), dim=-1).cpu().numpy()
    if np.isnan(packed[:, 2]).any():
        raise InputError(NOT_NUMBERS if scores.isnan().any() else NO_CONTINUATION)
    return packed[:, 0].astype(np.int64), packed[:, 1]
