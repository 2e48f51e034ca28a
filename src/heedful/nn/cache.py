"""Caches for incremental decoding: the keys and values of earlier calls."""

from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch import Tensor

# `MultiHeadAttention.keys_and_values`: states (B, L, D) and the position of the first of them.
Projection = Callable[[Tensor, int], tuple[Tensor, Tensor]]


class KeyValueCache:
    """The keys (B, H, S, d_k) and values (B, H, S, d_v) of the memory, computed by the first call."""

    length = 0  # the position of the next query
    tensors: tuple[Tensor, ...] = ()

    def update(self, project: Projection, context: Tensor) -> tuple[Tensor, Tensor]:
        """Return the keys and values to attend to, including those of the context (B, S, D)."""
        if not self.tensors:
            self.tensors = project(context, 0)
        keys, values = self.tensors
        return keys, values

    def reorder(self, rows: Tensor) -> None:
        """Replace row i by row `rows[i]`."""
        self.tensors = tuple(each.index_select(0, rows) for each in self.tensors)


class GrowingCache(KeyValueCache):
    """The keys and values of all positions so far, for self-attention: each call adds its context's."""

    def update(self, project: Projection, context: Tensor) -> tuple[Tensor, Tensor]:
        """See `KeyValueCache`."""
        added = project(context, self.length)
        start, self.length = self.length, self.length + context.shape[1]
        if not self.tensors:
            self.tensors = tuple(each.new_empty(*each.shape[:2], 16, each.shape[3]) for each in added)
        while self.length > self.tensors[0].shape[2]:
            self.tensors = tuple(torch.cat([each, torch.empty_like(each)], dim=2) for each in self.tensors)
        for each, new in zip(self.tensors, added, strict=True):
            each[:, :, start : self.length] = new
        keys, values = (each[:, :, : self.length] for each in self.tensors)
        return keys, values


@dataclass
class LayerCache:
    """The caches of a decoder layer's attention over the target and over the memory."""

    target: KeyValueCache = field(default_factory=GrowingCache)
    memory: KeyValueCache = field(default_factory=KeyValueCache)


class DecoderCache:
    """The caches of all layers, the encoder's output and its mask, and the number of decoded positions."""

    def __init__(self, layers: list[LayerCache], memory_states: Tensor, memory_mask: Tensor) -> None:
        self.layers = layers
        self.memory_states = memory_states
        self.memory_mask = memory_mask
        self.length = 0
        self._sentences = torch.arange(memory_mask.shape[0])  # on the CPU, where they are compared

    def reorder(self, rows: Tensor) -> None:
        """Replace row i by row `rows[i]`; rows may be repeated or dropped.

        Args:
            rows: int64 (new number of rows,), each below the old number; on the CPU, to avoid a GPU
                synchronisation. If every row stays with its sentence, as between two steps of a beam search,
                the memory is not copied.
        """
        sentences = self._sentences.index_select(0, rows)
        same_sentences = torch.equal(sentences, self._sentences)
        rows = rows.to(self.memory_mask.device, non_blocking=True)
        for layer in self.layers:
            layer.target.reorder(rows)
        if same_sentences:
            return
        for layer in self.layers:
            layer.memory.reorder(rows)
        self.memory_states = self.memory_states.index_select(0, rows)
        self.memory_mask = self.memory_mask.index_select(0, rows)
        self._sentences = sentences
