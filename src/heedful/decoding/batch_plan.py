"""Which sentences are computed together, so that little is padding and no thread waits."""

from collections.abc import Sequence
from heapq import heapreplace

_FEW = 4  # batches of a thread: with more, it does not matter how long each takes
_STEP = 8  # a step of any batch takes as long as for so many more sentences


def share_out(
    lengths: Sequence[int], steps: Sequence[int], threads: int, *, tokens: int, size: int | None = None
) -> list[list[int]]:
    """Plan batches so that the threads, each of which takes the next when it is done, soon have no more.

    Batches as large as the limits allow cost least, but one thread may have the longest sentences while the
    others wait: then there are a few for each thread, with as many steps in sum. Many even out by themselves.

    Args:
        lengths: of the sentences.
        steps: about as many as the output of each will take.
        threads: how many there are.
        tokens: of a batch, padding included.
        size: the maximum number of sentences of a batch.
    """
    plans = [plan_batches(lengths, tokens=tokens, size=size)]
    if threads > 1 and len(plans[0]) <= _FEW * threads:
        for parts in range(threads, _FEW * threads + 1, threads):
            plan = plan_batches(lengths, tokens=tokens, size=size, steps=steps, parts=parts)
            plans += [plan] if len(plan) <= parts else []  # without what is left over by the limits
    return min(plans, key=lambda plan: _end(plan, steps, threads))


def _end(batches: Sequence[Sequence[int]], steps: Sequence[int], threads: int) -> int:
    """Return how long the threads take for all batches, in steps of one sentence."""
    ends = [0] * threads
    for batch in batches:
        of_batch = [steps[i] for i in batch]
        heapreplace(ends, ends[0] + sum(of_batch) + _STEP * max(of_batch))
    return max(ends)


def plan_batches(
    lengths: Sequence[int],
    *,
    tokens: int,
    size: int | None = None,
    steps: Sequence[int] = (),
    parts: int = 1,
) -> list[list[int]]:
    """Group indices by length, longest first, so that rows x longest <= tokens; a longer one goes alone.

    Lengths of 0 are left out: they need no search.

    Args:
        lengths: of the sentences.
        tokens: of a group, padding included.
        size: the maximum number of sentences of a group.
        steps: of the sentences; without them, as many as they are long.
        parts: a group stays within one of so many parts that have the same number of steps, or nearly so.

    >>> plan_batches([3, 0, 7, 3, 2], tokens=6)
    [[2], [0, 3], [4]]
    >>> plan_batches([3, 0, 7, 3, 2], tokens=99, parts=2)
    [[2], [0, 3, 4]]
    """
    batches: list[list[int]] = []
    order = sorted((i for i, length in enumerate(lengths) if length), key=lambda i: (-lengths[i], i))
    steps = steps or lengths
    total, before, part = sum(steps[i] for i in order), 0, 0
    for i in order:
        latest, part_before = batches[-1] if batches else [], part
        part = (2 * before + steps[i]) * parts // (2 * total)  # where its middle is
        before += steps[i]
        fits = latest and (len(latest) + 1) * lengths[latest[0]] <= tokens and len(latest) != size
        if fits and part == part_before:
            latest.append(i)
        else:
            batches.append([i])
    return batches
