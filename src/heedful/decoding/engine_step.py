"""The step function of an engine: what its outputs stand on."""

import ctypes
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from heedful.decoding.engine import FIRST_POSITIONS, Engine, address_of
from heedful.decoding.engine_tokens import EngineShortlist, EngineTokens
from heedful.native import Attention, Past


class EngineStep:
    """The steps of an engine: they neither copy nor move keys and values of earlier positions.

    These stay where they were computed. A table says where that is for each position of each output, and only
    the table is reordered.
    """

    def __init__(
        self,
        engine: Engine,
        sources: Sequence[Sequence[int]],
        *,
        threads: int = 1,
        shortlist: EngineShortlist | None = None,
        attention_layer: int | None = None,
    ) -> None:
        """Encode sources, one row each.

        Args:
            engine: of the model.
            sources: ids with the special tokens that the encoder reads.
            threads: that compute a step together.
            shortlist: of the sources.
            attention_layer: whose cross-attention is recorded, from 0; None: none.
        """
        self._engine = engine
        self._attention_layer = attention_layer
        self._longest = max(map(len, sources))
        self.attention = np.zeros((0, self._longest), np.float32)  # (rows, S) of the latest call
        self._threads = threads
        self._shortlist = shortlist
        self._starts, self._memory = engine.encode(sources, threads=threads)
        self._memory_pointers = (ctypes.c_void_p * len(self._memory))(*map(address_of, self._memory))
        self._sentences = self._rows = np.arange(len(sources))
        self._lengths = np.zeros(len(sources), np.int64)  # the number of input ids of each output so far
        self._end = 0  # of the longest, or beyond
        self._keys_and_values: list[NDArray[np.float32]] = []  # (rows, layers, 2 D) of each step
        self._table = np.zeros((len(sources), FIRST_POSITIONS), np.intp)  # where those of each position are
        self._past = self._pointers()

    def __call__(self, last_ids: NDArray[np.int64]) -> EngineTokens:
        """See `StepFunction`."""
        self._end += 1
        tokens = self._decode(last_ids, self._rows, self._lengths)
        self._lengths += 1
        return tokens

    def decode_all(self, ids: NDArray[np.int64], counts: NDArray[np.int64]) -> EngineTokens:
        """Decode several input ids of each row at once; the result does not depend on how many, bit for bit.

        Args:
            ids: (N,) int64, those of the first row, then those of the second.
            counts: (rows,), how many input ids each row has, at least 1; they sum to N.

        Returns:
            What may follow each of the N ids.
        """
        firsts = self._lengths - (np.cumsum(counts) - counts)
        at_positions = firsts.repeat(counts) + np.arange(len(ids))
        self._lengths = self._lengths + counts
        self._end = int(self._lengths.max())
        return self._decode(ids, self._rows.repeat(counts), at_positions)

    def reorder(self, rows: NDArray[np.int64]) -> None:
        """See `StepFunction`."""
        self._table, self._sentences = self._table.take(rows, axis=0), self._sentences.take(rows)
        self._lengths, self._rows = self._lengths.take(rows), np.arange(len(rows))
        self._past = self._pointers()

    def _decode(
        self, ids: NDArray[np.int64], outputs: NDArray[np.int64], at_positions: NDArray[np.int64]
    ) -> EngineTokens:
        num_outputs, stride = self._table.shape
        if self._end > stride:
            before, self._table = self._table, np.zeros((num_outputs, max(self._end, 2 * stride)), np.intp)
            self._table[:, :stride] = before
            self._past = self._pointers()
        states, keys_and_values = self._engine.step(
            self._past,
            np.ascontiguousarray(ids, dtype=np.int64),
            outputs=outputs, at_positions=at_positions, end=self._end, threads=self._threads,
            attention=self._recorded(len(ids)),
        )  # fmt: skip
        self._keys_and_values.append(keys_and_values)
        sentences = self._sentences.take(outputs)
        return EngineTokens(self._engine, states, sentences, self._shortlist, threads=self._threads)

    def _recorded(self, num_rows: int) -> Attention | None:
        if self._attention_layer is None:
            return None
        self.attention = np.empty((num_rows, self._longest), np.float32)
        return Attention(self._attention_layer, self._longest, address_of(self.attention))

    def _pointers(self) -> Past:
        return Past(
            *(len(self._sentences), len(self._starts) - 1, self._table.shape[1]),
            *(address_of(self._sentences), address_of(self._starts), ctypes.addressof(self._memory_pointers)),
            address_of(self._table),
        )


class ForcedEngineStep:
    """The steps of an engine in teacher forcing: all positions are computed in one call."""

    def __init__(
        self,
        engine: Engine,
        sources: Sequence[Sequence[int]],
        outputs: Sequence[Sequence[int]],
        *,
        start_id: int,
        threads: int = 1,
        shortlist: EngineShortlist | None = None,
        attention_layer: int | None = None,
    ) -> None:
        """Encode sources, special tokens added, and decode an output of each, of at least one token.

        `attention_layer` is as in `EngineStep`.
        """
        counts = np.asarray([len(output) for output in outputs])
        ids = [each for output in outputs for each in (start_id, *output[:-1])]
        step = EngineStep(
            engine, sources, threads=threads, shortlist=shortlist, attention_layer=attention_layer
        )
        self._tokens = step.decode_all(np.asarray(ids, dtype=np.int64), counts)
        self.attention_of_all = step.attention  # (N, S)
        self._rows = self._latest = np.cumsum(counts) - counts  # of what comes next in each output

    @property
    def attention(self) -> NDArray[np.float32]:
        """The cross-attention (rows, S) of the latest call."""
        latest: NDArray[np.float32] = self.attention_of_all[self._latest]
        return latest

    def __call__(self, last_ids: NDArray[np.int64]) -> EngineTokens:
        """See `StepFunction`; the ids are known."""
        tokens, self._latest = self._tokens[self._rows], self._rows
        self._rows = self._rows + 1
        return tokens

    def reorder(self, rows: NDArray[np.int64]) -> None:
        """See `StepFunction`."""
        self._rows = self._rows[rows]
