"""Decoding steps as CUDA graphs: all kernels of a step are launched by one call.

A graph repeats the same kernels with the same addresses, so nothing in it may depend on the number of
positions or rows. The caches are static: they have capacity for more positions, hidden by a mask, and the
next position is a tensor on the device. The rows of ended sentences stay until few others are left.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor
from typing_extensions import override

from heedful.model.attention import DecoderCache, KeyValueCache, LayerCache, Memory, Projection
from heedful.model.layers import DecoderLayer
from heedful.model.transformer import Transformer
from heedful.ops.graphs import Compute, Record

_POSITIONS = 64  # the first capacity
_SHRINK = 4  # rows move to smaller tensors if the present ones have this number of times the rows


class _Replayed:
    """A computation on static tensors: run once, which allocates workspaces, then recorded and replayed."""

    def __init__(self, compute: Compute, record: Record) -> None:
        self._compute, self._record = compute, record
        self._is_warm = False
        self._replay: Compute | None = None

    def __call__(self) -> Tensor:
        """Return the result, which the next call overwrites."""
        if not self._is_warm:
            self._is_warm = True
            return self._compute()
        if self._replay is None:
            self._replay = self._record(self._compute)
        return self._replay()


class _StaticKeys(KeyValueCache):
    """Keys and values of self-attention, with spare capacity; each call writes one position."""

    def __init__(self, tensors: tuple[Tensor, ...], position: Tensor) -> None:
        """Take tensors (B, H, capacity, d), and the next position, (1,)."""
        self.tensors = tensors
        self._position = position
        self._positions = torch.arange(tensors[0].shape[2], device=position.device)

    @override
    def update(self, project: Projection, context: Tensor) -> tuple[Tensor, Tensor]:
        for each, new in zip(self.tensors, project(context, 0), strict=True):
            each.index_copy_(2, self._position, new)
        self.mask = (self._positions <= self._position)[None, None, None]
        keys, values = self.tensors
        return keys, values


class GraphDecoder:
    """Decodes like `Transformer.decode_step`, with graphs for each size of the static tensors."""

    def __init__(self, model: Transformer, memory: Memory, *, record: Record) -> None:
        """Begin with a row for each source of the memory.

        Args:
            model: a model with a decoder that `has_plain_self_attention`.
            memory: the encoder's output.
            record: records a computation, `GraphPool.record`.
        """
        self._model, self._record = model, record
        self._cache = model.start_cache(memory)
        for layer, cache in zip(model.decoder.layers, self._cache.layers, strict=True):
            attention = cast("DecoderLayer", layer).cross_attention
            cache.memory.tensors = attention.keys_and_values(memory.states)
            cache.target.tensors = tuple(each[:, :, :0] for each in cache.memory.tensors)  # of its shape
        self._sentences = torch.arange(len(memory.mask))  # of each row, on the CPU
        self._length = 0
        self._allocate(self._sentences, _POSITIONS)

    def _allocate(self, rows: Tensor, capacity: int) -> None:
        """Move rows of the caches, (R,) on the CPU, to static tensors of their size."""
        model, old = self._model, self._cache
        rows = rows.to(old.memory.mask.device)
        if model.config.positions == "learned":
            capacity = min(capacity, model.config.max_positions)
        self._embeddings = model.decoder.embedding.positions(0, capacity)  # a graph refers to these
        position = torch.full((1,), self._length, device=rows.device)
        layers = []
        for cache in old.layers:
            written = (each[rows, :, : self._length] for each in cache.target.tensors)
            padding = (0, 0, 0, capacity - self._length)
            target = _StaticKeys(tuple(F.pad(each, padding) for each in written), position)
            memory = KeyValueCache()
            memory.tensors = tuple(each[rows] for each in cache.memory.tensors)
            layers.append(LayerCache(target, memory))
        self._cache = DecoderCache(layers, replace(old.memory, mask=old.memory.mask[rows]))
        self._cache.length = position
        self._capacity = capacity
        self._targets = [each for layer in layers for each in layer.target.tensors]
        self._memories = [each for layer in layers for each in layer.memory.tensors]
        self._ids, self._rows = torch.zeros_like(rows), torch.arange(len(rows), device=rows.device)
        self._decode = _Replayed(lambda: model.decode_step(self._ids, self._cache), self._record)
        self._reorder_targets = _Replayed(lambda: _reorder(self._targets, self._rows), self._record)

    def decode_step(self, ids: Tensor) -> Tensor:
        """Return the logits (B, V) of the token after each row's newest id (B,), until the next call.

        Raises:
            InputError: there are no more learned positions.
        """
        if self._length == self._capacity:
            self._model.decoder.embedding.positions(self._length, 1)  # raises the error
            self._allocate(torch.arange(len(self._sentences)), 2 * self._capacity)
        self._ids[: len(ids)].copy_(ids)
        self._length += 1
        return self._decode()[: len(ids)]

    def reorder(self, rows: Tensor) -> None:
        """Replace row i by row `rows[i]`, as `DecoderCache.reorder`."""
        sentences, size = self._sentences[rows], len(self._ids)
        stay = torch.equal(sentences, self._sentences[: len(rows)])
        self._sentences = sentences
        if not len(rows) <= size < _SHRINK * len(rows):
            self._allocate(rows, self._capacity)
            return
        self._rows[: len(rows)].copy_(rows, non_blocking=True)
        self._reorder_targets()
        if not stay:
            _reorder([*self._memories, self._cache.memory.mask], self._rows)


def _reorder(tensors: Sequence[Tensor], rows: Tensor) -> Tensor:
    """Replace row i of each tensor by its row `rows[i]`, in place; return the rows."""
    for each in tensors:
        each.copy_(each[rows])
    return rows
