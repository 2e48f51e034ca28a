"""Plan the batches of an epoch: a pure function of lengths, seed and epoch."""

from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

Indices = NDArray[np.int64]


def plan_epoch(
    src_lengths: NDArray[np.integer],
    tgt_lengths: NDArray[np.integer],
    *,
    tokens: int,
    seed: int,
    epoch: int,
    bucket_width: int,
) -> list[Indices]:
    """Divide all pairs into batches of similar length ("by approximate sequence length", 5.1 of the paper).

    Lengths are rounded up to a multiple of `bucket_width`, as in the padded batches. A batch is filled while
    rows x max(src_len, tgt_len) is at most `tokens`; a pair that alone exceeds it is a batch of its own.
    Pairs of equal rounded lengths are in random order, the first batch ends at a random position so that the
    boundaries differ from epoch to epoch, and the order of the batches is random.

    Returns:
        One array of pair indices for each batch; each pair is in exactly one.
    """
    rng = np.random.Generator(np.random.PCG64([seed, epoch]))
    src, tgt = (-(-lengths.astype(np.int64) // bucket_width) for lengths in (src_lengths, tgt_lengths))
    maximum = np.maximum(src, tgt)
    # Sort by max(src_len, tgt_len), then by the difference of both, in alternating direction so that
    # neighbours are alike where the maximum changes too: this keeps padding low in source and target.
    shape = np.where(maximum % 2 == 0, src - tgt, tgt - src)
    order = np.lexsort((rng.random(len(src)), shape, maximum))
    lengths = maximum[order] * bucket_width
    boundaries = _fill(lengths, tokens, first=rng.uniform(0.0, tokens))
    batches = [order[start:stop] for start, stop in pairwise(boundaries)]
    return [batches[i] for i in rng.permutation(len(batches))]


def _fill(lengths: Indices, tokens: int, *, first: float) -> list[int]:
    """Return the boundaries of batches filled one by one with pairs in ascending order of length."""
    boundaries = [0]
    budget = first
    while boundaries[-1] < len(lengths):
        start = boundaries[-1]
        reachable = lengths[start : start + max(1, int(budget) // max(1, int(lengths[start])))]
        rows = np.arange(1, len(reachable) + 1)
        boundaries.append(start + max(1, int(np.count_nonzero(rows * reachable <= budget))))
        budget = tokens
    return boundaries
