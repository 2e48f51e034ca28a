"""A backend: `Translator(bundle, engine=CopyBackend(vocab_size))` translates a sentence by itself.

It works where source and target share a vocabulary. Every search runs over it: a search sees steps alone.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import numpy as np
from numpy.typing import NDArray

from heedful.decoding.backends.protocol import Allowed, Backend
from heedful.decoding.steps import ArrayTokens, StepFunction


class CopyStep:
    """The next token of an output is the token of the source at the same position."""

    def __init__(self, sources: Sequence[Sequence[int]], vocab_size: int) -> None:
        self._sources, self._vocab_size, self._position = list(sources), vocab_size, 0

    def __call__(self, last_ids: NDArray[np.int64]) -> ArrayTokens:
        """Return the log-probabilities of the next tokens, (rows, V)."""
        log_probs = np.full((len(last_ids), self._vocab_size), -20.0)
        for row, ids in enumerate(self._sources):
            log_probs[row, ids[min(self._position, len(ids) - 1)]] = 0.0
        self._position += 1
        return ArrayTokens(log_probs)

    def reorder(self, rows: NDArray[np.int64]) -> None:
        """Continue with these rows."""
        self._sources = [self._sources[row] for row in rows]


class CopyBackend(Backend):
    """Makes the step functions of batches."""

    name = "copying"

    def __init__(self, vocab_size: int) -> None:
        self._vocab_size = vocab_size

    @contextmanager
    def step(
        self,
        sources: Sequence[Sequence[int]],
        *,
        threads: int = 1,
        allowed: Allowed = None,
        coverage: bool = False,
    ) -> Iterator[StepFunction]:
        """Yield the step function of a search."""
        yield CopyStep(sources, self._vocab_size)

    @contextmanager
    def forced_step(
        self,
        sources: Sequence[Sequence[int]],
        outputs: Sequence[Sequence[int]],
        *,
        start_id: int,
        threads: int = 1,
        allowed: Allowed = None,
        coverage: bool = False,
    ) -> Iterator[StepFunction]:
        """Yield the step function that scores these outputs; here it does not depend on them."""
        yield CopyStep(sources, self._vocab_size)
