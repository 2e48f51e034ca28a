"""A backend without a model: what follows a token in the texts that it was shown."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import numpy as np
from numpy.typing import NDArray
from tiny_bundle import PAIRS

from heedful.decoding.backends.protocol import Allowed, Backend
from heedful.decoding.steps import ArrayTokens, StepFunction
from heedful.storage.bundle import Bundle


class BigramStep:
    """What follows a token depends on that token alone, and on the sentence not at all."""

    def __init__(self, log_probs_VV: NDArray[np.float64]) -> None:
        self._log_probs_VV = log_probs_VV

    def __call__(self, last_ids: NDArray[np.int64]) -> ArrayTokens:
        return ArrayTokens(self._log_probs_VV[last_ids])

    def reorder(self, rows: NDArray[np.int64]) -> None:
        """Nothing is remembered."""


class BigramBackend(Backend):
    """Counts of which token follows which, plus 0.001."""

    name = "bigrams"
    parallel_batches = 2

    def __init__(self, texts: Sequence[Sequence[int]], *, start_id: int, vocab_size: int) -> None:
        counts_VV = np.full((vocab_size, vocab_size), 1e-3)
        for ids in texts:
            for before, after in zip([start_id, *ids], ids, strict=False):
                counts_VV[before, after] += 1
        self._log_probs_VV = np.log(counts_VV / counts_VV.sum(axis=1, keepdims=True))

    @contextmanager
    def step(
        self,
        sources: Sequence[Sequence[int]],
        *,
        threads: int = 1,
        allowed: Allowed = None,
        coverage: bool = False,
    ) -> Iterator[StepFunction]:
        assert sources
        assert threads >= 1
        assert allowed is None
        assert not coverage
        yield BigramStep(self._log_probs_VV)

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
        assert len(sources) == len(outputs)
        assert start_id >= 0
        with self.step(sources, threads=threads, allowed=allowed, coverage=coverage) as step:
            yield step


def bigrams(bundle: Bundle) -> BigramBackend:
    tgt = bundle.tokenizers.tgt
    texts = [[*tgt.encode(target), tgt.eos_id] for _, target in PAIRS]
    return BigramBackend(texts, start_id=tgt.bos_id, vocab_size=tgt.vocab_size)
