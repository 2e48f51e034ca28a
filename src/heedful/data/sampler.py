"""Which pairs go together in a batch, and in which order: a pure function of lengths, seed and epoch."""

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

    Lengths are rounded up to a multiple of `bucket_width`, as the batches are padded. A batch holds as many
    pairs as keep rows x max(src_len, tgt_len) at or below `tokens`; a pair that alone exceeds it is a batch
    of its own. Pairs of equal rounded lengths are in random order, the first batch ends at a random position
    so that the later boundaries fall elsewhere in each epoch, and the order of the batches is random.

    Returns:
        One array of pair numbers for each batch; together each pair exactly once.
    """
    rng = np.random.Generator(np.random.PCG64([seed, epoch]))
    src, tgt = (-(-lengths.astype(np.int64) // bucket_width) for lengths in (src_lengths, tgt_lengths))
    longer = np.maximum(src, tgt)
    # By max(src_len, tgt_len), then by how far the other falls short of it, to and fro so that neighbours are
    # alike across a change of the maximum too: little padding in source and target.
    shape = np.where(longer % 2 == 0, src - tgt, tgt - src)
    order = np.lexsort((rng.random(len(src)), shape, longer))
    sides = longer[order] * bucket_width
    cuts = _fill(sides, tokens, first=rng.uniform(0.0, tokens))
    batches = [order[start:stop] for start, stop in pairwise(cuts)]
    return [batches[i] for i in rng.permutation(len(batches))]


def _fill(sides: Indices, tokens: int, *, first: float) -> list[int]:
    """Batch boundaries when pairs, in rising order of max(src_len, tgt_len), fill batches one by one."""
    cuts = [0]
    budget = first
    while cuts[-1] < len(sides):
        start = cuts[-1]
        reachable = sides[start : start + max(1, int(budget) // max(1, int(sides[start])))]
        rows = np.arange(1, len(reachable) + 1)
        cuts.append(start + max(1, int(np.count_nonzero(rows * reachable <= budget))))
        budget = tokens
    return cuts
