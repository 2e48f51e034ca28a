"""CUDA graphs: one call launches all kernels of a computation.

A graph repeats the same kernels with the same addresses, so nothing in it may depend on sizes or values of
tensors. The computation reads and writes static tensors.
"""

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

Compute = Callable[[], Tensor]
Record = Callable[[Compute], Compute]  # see `GraphPool.record`
GRAPHS_VARIABLE = "HEEDFUL_CUDA_GRAPHS"  # `on` or `off`


class GraphPool:
    """Records CUDA graphs of one GPU, which share their memory.

    A graph uses the memory of earlier graphs again, except for their results. So only one may run at a time.
    """

    def __init__(self) -> None:
        self._handle = torch.cuda.graph_pool_handle()
        self._stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        # The memory lasts as long as any graph in it, so this one is kept.
        self._first = self._capture(partial(torch.zeros, 1, device="cuda"))[0]

    def record(self, compute: Compute) -> Compute:
        """Record a computation on the GPU without running it; return a function that replays it.

        Each replay writes its result into the same tensor. The computation must have run before with these
        sizes, because kernels are compiled and chosen in a first run.
        """
        casts_once = torch.is_autocast_cache_enabled()
        torch.set_autocast_cache_enabled(False)  # its casts of weights do not live as long as the graph
        try:
            graph, result = self._capture(compute)
        finally:
            torch.set_autocast_cache_enabled(casts_once)

        def replay() -> Tensor:
            graph.replay()
            return result

        return replay

    def _capture(self, compute: Compute) -> tuple[torch.cuda.CUDAGraph, Tensor]:
        """Do as `torch.cuda.graph`, but do not free unused memory first: that takes longer than a step."""
        graph = torch.cuda.CUDAGraph()
        self._stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self._stream):
            graph.capture_begin(pool=self._handle, capture_error_mode="thread_local")
            try:
                result = compute()
            finally:
                graph.capture_end()
        torch.cuda.current_stream().wait_stream(self._stream)
        return graph, result
