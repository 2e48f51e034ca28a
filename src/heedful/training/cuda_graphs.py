"""Micro-batches as CUDA graphs: one call launches the kernels of a forward and a backward pass.

A step of the base model launches some 2,000 kernels; a GPU may compute them faster than a CPU launches them
(docs/results/gpu.md). A graph repeats its kernels for one shape. So batches are filled up with rows of
padding until few shapes are left, and a shape gets its graph once it has come several times.
"""

from collections import Counter
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from heedful.data.batches import Batch
from heedful.model.transformer import Transformer
from heedful.ops.graphs import Compute, GraphPool, Record
from heedful.training.loss import Loss
from heedful.training.optimizer import trained_weights

AddGradients = Callable[[Batch], Loss]
_COMPUTED = 2  # how often a shape is computed without a graph first, so that kernels are compiled and chosen
_MOST_GRAPHS = 128  # each takes a few MB besides the tensors, which all graphs share
_ROW_BITS = 5  # numbers of rows are rounded up to this many binary digits: at most 6 % of rows are added


class GraphedPasses:
    """Adds the gradients of micro-batches to the weights, by a CUDA graph for each shape that repeats.

    Graphs write to gradients at fixed addresses, so `reset` begins a step instead of `zero_grad`.
    """

    def __init__(
        self,
        model: Transformer,
        add_gradients: AddGradients,
        *,
        record: Record | None = None,
    ) -> None:
        """Take a model on a GPU, and a function that adds the gradients of a batch to its weights.

        `record` records a computation, by default `GraphPool.record`.
        """
        self._model, self._config = model, model.config
        self._device = next(model.parameters()).device
        self._add_gradients, self._record = add_gradients, record or GraphPool().record
        self._weights = [*trained_weights(model).values()]
        self._gradients = [torch.zeros_like(weight) for weight in self._weights]
        self._seen: Counter[tuple[int, ...]] = Counter()
        self._graphs: dict[tuple[int, ...], _Graph] = {}

    def reset(self) -> None:
        """Set the gradients of all weights to zero."""
        torch._foreach_zero_(self._gradients)
        for weight, gradient in zip(self._weights, self._gradients, strict=True):
            weight.grad = gradient

    def __call__(self, batch: Batch) -> Loss:
        """Add the gradients of a batch, on the CPU, to the weights; return its loss."""
        batch = self._filled(batch)
        shape = *batch.src.shape, batch.tgt_in.shape[1]
        graph = self._graphs.get(shape)
        if graph is None:
            self._seen[shape] += 1
            if self._seen[shape] <= _COMPUTED or len(self._graphs) == _MOST_GRAPHS:
                return self._add_gradients(batch.to(self._device))
            graph = self._graphs[shape] = _Graph(
                batch.to(self._device), self._recorded, list(self._model.buffers())
            )
        return graph(batch)

    def _filled(self, batch: Batch) -> Batch:
        """Return a batch with rows of padding, which add nothing, so that numbers of rows repeat."""
        missing = -len(batch) % (1 << max(0, len(batch).bit_length() - _ROW_BITS))
        rows, src_pad, tgt_pad = (0, 0, 0, missing), self._config.src_pad_id, self._config.tgt_pad_id
        return Batch(
            F.pad(batch.src, rows, value=src_pad),
            F.pad(batch.tgt_in, rows, value=tgt_pad),
            F.pad(batch.tgt_out, rows, value=tgt_pad),
            batch.num_tgt_tokens,
        )

    def _recorded(self, batch: Batch) -> Compute:
        def compute() -> Tensor:
            return torch.stack(self._add_gradients(batch))

        torch.cuda.empty_cache()  # the memory that computed passes used
        return self._record(compute)


class _Graph:
    """The passes for one shape of batches; a batch is copied into static tensors."""

    def __init__(self, batch: Batch, recorded: Callable[[Batch], Compute], tables: list[Tensor]) -> None:
        self._batch = batch
        self._tables = tables  # the graph refers to these; the model replaces a table that becomes too short
        self._replay = recorded(batch)

    def __call__(self, batch: Batch) -> Loss:
        static = self._batch
        pairs = (static.src, batch.src), (static.tgt_in, batch.tgt_in), (static.tgt_out, batch.tgt_out)
        for tensor, new in pairs:
            tensor.copy_(new.pin_memory(), non_blocking=True)
        smoothed, nll = self._replay().clone()
        return Loss(smoothed, nll)
