"""What decoding one token at a time remembers: keys and values of the past, and of the source."""

import torch
from torch import Tensor


class LayerCache:
    """Keys and values of one decoder layer; the memory's are computed once, the others grow step by step."""

    def __init__(self, memory_keys_BHSK: Tensor, memory_values_BHSV: Tensor) -> None:
        self.memory_keys = memory_keys_BHSK
        self.memory_values = memory_values_BHSV
        rows, heads, _, d_k = memory_keys_BHSK.shape
        self._keys = memory_keys_BHSK.new_empty(rows, heads, 16, d_k)
        self._values = memory_values_BHSV.new_empty(rows, heads, 16, memory_values_BHSV.shape[-1])
        self._length = 0

    @property
    def length(self) -> int:
        """How many positions have been added."""
        return self._length

    def extend(self, keys_BH1K: Tensor, values_BH1V: Tensor) -> tuple[Tensor, Tensor]:
        """Add one position and return all of them: keys (B, H, T, d_k), values (B, H, T, d_v)."""
        if self._length == self._keys.shape[2]:
            self._keys = torch.cat([self._keys, torch.empty_like(self._keys)], dim=2)
            self._values = torch.cat([self._values, torch.empty_like(self._values)], dim=2)
        self._keys[:, :, self._length] = keys_BH1K[:, :, 0]
        self._values[:, :, self._length] = values_BH1V[:, :, 0]
        self._length += 1
        return self._keys[:, :, : self._length], self._values[:, :, : self._length]

    def reorder(self, rows: Tensor, *, memory_too: bool) -> None:
        """Make row i of the future what row `rows[i]` has been."""
        self._keys = self._keys.index_select(0, rows)
        self._values = self._values.index_select(0, rows)
        if memory_too:
            self.memory_keys = self.memory_keys.index_select(0, rows)
            self.memory_values = self.memory_values.index_select(0, rows)


class DecoderCache:
    """The caches of all layers, the source mask, and how many tokens each row has been fed."""

    def __init__(self, layers: list[LayerCache], memory_mask: Tensor) -> None:
        self.layers = layers
        self.memory_mask = memory_mask
        self.length = 0
        self._sentences = torch.arange(memory_mask.shape[0])  # on the processor, which compares them

    @property
    def num_rows(self) -> int:
        """How many hypotheses are being decoded."""
        return self.memory_mask.shape[0]

    def reorder(self, rows: Tensor) -> None:
        """Keep, repeat or drop rows: row i of the future is what row `rows[i]` has been.

        Args:
            rows: int64 (new number of rows,), each below `num_rows`; on the processor, so that a GPU is not
                waited for. Where every row stays with its sentence, as between two steps of a beam, the
                source side is not copied.
        """
        sentences = self._sentences.index_select(0, rows)
        memory_too = not torch.equal(sentences, self._sentences)
        rows = rows.to(self.memory_mask.device, non_blocking=True)
        for layer in self.layers:
            layer.reorder(rows, memory_too=memory_too)
        if memory_too:
            self.memory_mask = self.memory_mask.index_select(0, rows)
            self._sentences = sentences
