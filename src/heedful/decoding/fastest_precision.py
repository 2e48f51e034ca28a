"""Which engine and precision is the fastest here: some steps of the models at hand, with each of them.

A precision that costs quality is left out. What it costs is the mean divergence of its next-token
probabilities from those of float32, in nats for each token: that is how much the loss grows. On Multi30k,
BLEU falls by 12 to 13 for each nat of validation loss (docs/log.md), so `MAX_LOSS` stands for 0.13.
"""

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from heedful.decoding.arrays import on_host
from heedful.decoding.steps import Start
from heedful.precision import Precision

MAX_LOSS = 0.01  # nats for each token
MIN_GAIN = 1.1  # times the speed of what is more exact; less is not worth it, and may be the machine's noise
_ORDER: tuple[Precision, ...] = ("float32", "bf16", "int8")  # the more exact ones first
Way = tuple[Literal["native", "torch"], Precision]  # what computes, and in which precision
_SENTENCES, _BEAM, _POSITIONS = 8, 4, 8
_ROUNDS = 3


@dataclass(frozen=True)
class Trial:
    """Time and quality of some steps in one precision.

    Attributes:
        seconds: that a step took, for `_SENTENCES` sentences with `_BEAM` rows each; the least of all rounds.
        loss: the mean divergence from float32, in nats for each token.
    """

    seconds: float
    loss: float


Clock = Callable[[], float]


def random_sources(vocab_size: int, *, pad_id: int, most: int | None) -> list[list[int]]:
    """Return eight random sentences of 16 tokens, or `most` where models take no more; always the same."""
    length = 16 if most is None else min(16, most)
    ids = np.random.default_rng(0).integers(0, vocab_size, (_SENTENCES, length))
    ids[ids == pad_id] = (pad_id + 1) % vocab_size
    return [row.tolist() for row in ids]


def try_precisions(
    starts: Mapping[Way, Start], *, num_positions: int | None, clock: Clock = time.perf_counter
) -> dict[Way, Trial]:
    """Take steps in each way, in turns, with the tokens that float32 finds the most probable.

    Args:
        starts: of each way, the first of which is in float32; `random_sources` from their beginning.
        num_positions: the longest output that the models can write; None is no limit.
        clock: in seconds; that of a thread does not count what others compute meanwhile.
    """
    num_positions = _POSITIONS if num_positions is None else min(_POSITIONS, num_positions)
    exact = _log_probs(next(iter(starts.values())), [None] * num_positions)
    written = [each.argmax(axis=-1) for each in exact]
    losses = {name: _divergence(exact, _log_probs(start, written)) for name, start in starts.items()}
    rounds = [
        {name: _seconds(start, written, clock) for name, start in starts.items()} for _ in range(_ROUNDS)
    ]
    return {
        name: Trial(float(np.min([each[name] for each in rounds], axis=0).mean()), losses[name])
        for name in starts
    }


def fastest(trials: Mapping[Way, Trial]) -> Way:
    """The fastest way of those that cost no quality; the more exact, then the first where that is no gain."""
    ways = sorted(trials, key=lambda way: _ORDER.index(way[1]))
    best = ways[0]
    for way in ways[1:]:
        trial = trials[way]
        if trial.loss <= MAX_LOSS and trial.seconds * MIN_GAIN < trials[best].seconds:
            best = way
    return best


def _log_probs(start: Start, written: Sequence[NDArray[np.int64] | None]) -> list[NDArray[np.float32]]:
    """Return each step's log-probabilities after the tokens written before; None: its own best."""
    steps: list[NDArray[np.float32]] = []
    last = np.ones(_SENTENCES, dtype=np.int64)
    with start() as step:
        for ids in written:
            steps.append(on_host(step(last).log_probs()).astype(np.float32, copy=False))
            last = steps[-1].argmax(axis=-1) if ids is None else ids
    return steps


def _seconds(start: Start, written: Sequence[NDArray[np.int64]], clock: Clock) -> list[float]:
    """How long each step takes, the choice of candidates included; there are as many rows as in a beam."""
    taken = []
    last = np.ones(_SENTENCES, dtype=np.int64)
    with start() as step:
        for position, ids in enumerate(written):
            start_time = clock()
            step(last).top(_BEAM + 1, ())
            taken.append(clock() - start_time)
            last = ids.repeat(_BEAM)
            if position == 0:
                step.reorder(np.arange(_SENTENCES).repeat(_BEAM))
    return taken


def _divergence(exact: Sequence[NDArray[np.float32]], other: Sequence[NDArray[np.float32]]) -> float:
    """Return the mean of sum p (log p - log q); infinite where it is not a number."""
    each = [(np.exp(p) * (p - q)).sum(axis=-1) for p, q in zip(exact, other, strict=True)]
    mean = float(np.stack(each).mean())
    return math.inf if math.isnan(mean) else mean
