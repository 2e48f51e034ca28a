"""Next-token log-probabilities of an engine: over the vocabulary, or over each sentence's shortlist."""

import ctypes
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from heedful.decoding.engine import ALL, Engine
from heedful.decoding.steps import NOT_NUMBERS, ArrayTokens
from heedful.errors import InputError
from heedful.native import Shortlist

_GROUP_SIZE = 8  # sentences of a group: enough rows for a matrix multiplication, and not too many tokens


class EngineShortlist:
    """For each sentence of a batch its tokens, and their weights, packed as an engine packs.

    A few sentences at a time are a group. What any of them may have is computed for them all, but what a
    sentence may have is summed and compared apart from the others' tokens, in the order of the ids, so that
    its log-probabilities have the same bits beside any others.
    """

    def __init__(self, engine: Engine, allowed: Sequence[NDArray[np.int64]]) -> None:
        """Pack the weights.

        Args:
            engine: whose output layer it is.
            allowed: for each sentence the ids that may be written, ascending; at least one.
        """
        groups, indices = [], []
        for first in range(0, len(allowed), _GROUP_SIZE):
            is_in = np.zeros(engine.vocab_size, dtype=bool)
            ids_of_group = np.concatenate(allowed[first : first + _GROUP_SIZE])
            is_in[ids_of_group] = True
            groups.append(np.flatnonzero(is_in))
            indices.append((is_in.cumsum(dtype=np.int32) - np.int32(1))[ids_of_group])
        layers, arrays = zip(*map(engine.pick, groups), strict=True)
        outputs = (type(layers[0]) * len(layers))(*layers)
        own = (
            *(np.concatenate(groups), np.cumsum([0, *map(len, groups)], dtype=np.int64)),
            *(np.concatenate(indices), np.cumsum([0, *map(len, allowed)], dtype=np.int64)),
        )
        self._referenced = outputs, arrays, own
        addresses = ctypes.addressof(outputs), *(each.ctypes.data for each in own)
        self._pointers = Shortlist(_GROUP_SIZE, len(allowed), *addresses)
        self.address = ctypes.addressof(self._pointers)  # of a HeedfulShortlist


class EngineTokens:
    """Next-token log-probabilities, computed on demand: see `NextTokens`."""

    def __init__(
        self,
        engine: Engine,
        states: NDArray[np.float32],
        sentences: NDArray[np.int64],
        shortlist: EngineShortlist | None = None,
        *,
        threads: int = 1,
    ) -> None:
        self.vocab_size = engine.vocab_size
        self._engine = engine
        self._states = states
        self._threads = threads
        self._referenced = sentences, shortlist  # as long as their addresses
        self._within = ALL if shortlist is None else (shortlist.address, sentences.ctypes.data)

    def top(
        self, count: int, suppressed: Sequence[int], *, renormalize: bool = False
    ) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
        """See `NextTokens`.

        Raises:
            InputError: a log-probability is not a number.
        """
        values, ids = self._engine.top(
            self._states,
            count,
            suppressed,
            renormalize=renormalize,
            threads=self._threads,
            within=self._within,
        )
        if np.isnan(values).any():
            raise InputError(NOT_NUMBERS)
        return values.astype(np.float64), ids

    def log_probs(self) -> NDArray[np.float32]:
        """See `NextTokens`."""
        return self._engine.log_probs(self._states, threads=self._threads, within=self._within)

    def with_log_probs(self, log_probs: NDArray[np.floating]) -> ArrayTokens:
        """See `NextTokens`."""
        return ArrayTokens(log_probs)

    def __getitem__(self, rows: NDArray[np.int64]) -> "EngineTokens":
        """See `NextTokens`."""
        sentences, shortlist = self._referenced
        return EngineTokens(
            self._engine, self._states[rows], sentences[rows], shortlist, threads=self._threads
        )
