"""The share of the machine that a training step uses: its floating-point operations, and the peak rate."""

import time
from collections.abc import Sequence
from statistics import median

import torch
from torch.utils.flop_counter import FlopCounterMode

from heedful.ops.attention import attention_implementation
from heedful.ops.kernels import torch_dtype
from heedful.runtime.threads import using_threads
from heedful.settings.options import TrainingPrecision
from heedful.training.parallel.process_group import Rank, StepPlan

# (M, K, N) of typical matrix multiplications in training; a GPU needs larger ones to be fully used.
_MATMULS = ((2048, 1024, 1024), (2048, 2048, 2048))
_MATMULS_ON_GPU = ((4096, 4096, 4096), (8192, 8192, 8192))
_OPERATIONS_PER_TIMING = 1e9, 1e12  # on a CPU and on a GPU


class MatmulRate:
    """Measures the rate of matrix multiplications, over all calls of `measure`."""

    def __init__(self, precision: TrainingPrecision, device: torch.device, *, threads: int) -> None:
        """Create the matrices; `threads` multiply them."""
        self._device = device
        self._threads = threads
        dtype = torch_dtype(precision)
        on_gpu = device.type == "cuda"
        self._factors = [
            (torch.randn(m, k, dtype=dtype, device=device), torch.randn(k, n, dtype=dtype, device=device))
            for m, k, n in (_MATMULS_ON_GPU if on_gpu else _MATMULS)
        ]
        self._operations_per_timing = _OPERATIONS_PER_TIMING[on_gpu]
        self._rates: list[list[float]] = [[] for _ in self._factors]

    def measure(self, seconds: float) -> None:
        """Multiply for about that long, each size for an equal part of it."""
        with using_threads(self._threads):
            for (one, other), rates in zip(self._factors, self._rates, strict=True):
                operations = 2 * one.shape[0] * one.shape[1] * other.shape[1]
                repeats = max(1, round(self._operations_per_timing / operations))
                one @ other  # warm-up
                finish(self._device)
                end = time.perf_counter() + seconds / len(self._factors)
                while not rates or time.perf_counter() < end:
                    start = time.perf_counter()
                    for _ in range(repeats):
                        one @ other
                    finish(self._device)
                    rates.append(repeats * operations / (time.perf_counter() - start))

    @property
    def flops_per_second(self) -> float:
        """The median rate of the fastest size."""
        return max(median(rates) for rates in self._rates)


def count_flops(ranks: Sequence[Rank], plan: StepPlan) -> int:
    """Count the floating-point operations of the matrix multiplications in a step, padding included.

    A multiplication of (M, K) and (K, N) counts 2 M K N; everything else (softmax, norms, dropout, Adam) is
    not counted. Attention is eager; forward and backward pass count, with padding and masked positions,
    without recomputation. The ranks, of one group, compute their rows one after the other; gradients are
    added to the model's.
    """
    model, plain_layers = ranks[0].model, ranks[0].execution.eagerly()
    with attention_implementation(model, "eager"), plain_layers, FlopCounterMode(display=False) as counter:
        for rank in ranks:
            rank.accumulate(plan)
    return int(counter.get_total_flops())


def finish(device: torch.device) -> None:
    """Wait for the kernels that a GPU has queued."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
