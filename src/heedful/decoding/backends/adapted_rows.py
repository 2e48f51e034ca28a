"""Adapters in torch: what each row's adapter adds to the outputs of the linear layers of a model."""

import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import cache, partial

import numpy as np
import torch
from torch import Tensor, nn
from typing_extensions import override

from heedful.decoding.backends.protocol import Adapters
from heedful.decoding.steps import Ints, NextTokens, StepFunction
from heedful.storage.adapter import Adapter


class AdaptedRows:
    """The adapters of the rows of a batch, which a search repeats, moves and drops."""

    def __init__(self, adapters: Adapters, device: torch.device) -> None:
        """Take the adapter of each row; at least one has one."""
        self._device = device
        self._adapters = [*dict.fromkeys(adapter for adapter in adapters if adapter is not None)]
        numbers = {adapter: number for number, adapter in enumerate(self._adapters)}
        self._number_of_row = np.asarray([-1 if each is None else numbers[each] for each in adapters])
        self._groups: list[tuple[Adapter, Tensor]] = []
        self.reorder(np.arange(len(adapters)))
        self._on_device = cache(self._tensors)

    def reorder(self, rows: Ints) -> None:
        """Let row i continue as row `rows[i]` was."""
        self._number_of_row = self._number_of_row[rows]
        indices = [np.flatnonzero(self._number_of_row == number) for number in range(len(self._adapters))]
        self._groups = [
            (adapter, torch.from_numpy(own).to(self._device))
            for adapter, own in zip(self._adapters, indices, strict=True)
            if len(own)
        ]

    @contextmanager
    def hooked(self, model: nn.Module) -> Iterator[None]:
        """Let the layers of a model add the changes, if this thread calls them in the block."""
        thread = threading.get_ident()
        layers = dict.fromkeys(layer for adapter in self._adapters for layer in adapter.changes)
        with ExitStack() as stack:
            for layer in layers:
                hook = partial(self._change, layer, thread)
                handle = model.get_submodule(layer).register_forward_hook(hook)
                stack.callback(handle.remove)
            yield

    def _change(
        self, layer: str, thread: int, module: nn.Linear, inputs: tuple[Tensor], outputs: Tensor
    ) -> Tensor:
        """Return the outputs (B, ..., out) of a layer with the changes of each row."""
        if threading.get_ident() != thread:
            return outputs
        for adapter, rows in self._groups:
            if layer in adapter.changes:
                down, up = self._on_device(adapter, layer, module.weight.dtype)
                changes = inputs[0][rows] @ down.T @ up
                outputs = outputs.index_add(0, rows, changes.to(outputs.dtype))
        return outputs

    def _tensors(self, adapter: Adapter, layer: str, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        down, up = map(torch.from_numpy, adapter.changes[layer])
        return down.to(self._device, dtype), up.to(self._device, dtype)


class AdaptedStep(StepFunction):
    """A step function of a model whose layers have the hooks of some rows."""

    def __init__(self, step: StepFunction, rows: AdaptedRows) -> None:
        """Wrap a step function of the same rows."""
        self._step, self._rows = step, rows

    @override
    def __call__(self, last_ids: Ints) -> NextTokens:
        return self._step(last_ids)

    @override
    def reorder(self, rows: Ints) -> None:
        self._step.reorder(rows)
        self._rows.reorder(rows)
