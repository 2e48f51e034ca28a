"""The cost of a training step: floating-point operations, time of its parts, and the machine's peak rate."""

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import median

import torch
from torch.utils.flop_counter import FlopCounterMode

from heedful.ops.attention import attention_implementation
from heedful.ops.kernels import torch_dtype
from heedful.runtime.threads import using_threads
from heedful.training.averaging import MovingAverage
from heedful.training.execution import Precision, autocast, float32_matmul_precision
from heedful.training.optimizer import optimizer_of_shard
from heedful.training.parallel.process_group import Rank, StepPlan
from heedful.training.parallel.shared_memory import partition_weights
from heedful.training.step import (
    Sums,
    apply_gradients,
    batch_loss,
    gradient_scale,
    squared_norm,
    step_metrics,
)

# (M, K, N) of typical matrix multiplications in training; a GPU needs larger ones to be fully used.
_MATMULS = ((2048, 1024, 1024), (2048, 2048, 2048))
_MATMULS_ON_GPU = ((4096, 4096, 4096), (8192, 8192, 8192))
_OPERATIONS_PER_TIMING = 1e9, 1e12  # on a CPU and on a GPU


class MatmulRate:
    """Measures the rate of matrix multiplications, over all calls of `measure`."""

    def __init__(self, precision: Precision, device: torch.device, *, threads: int) -> None:
        """Create the matrices.

        Args:
            precision: of the matrices.
            device: of the matrices.
            threads: of this process.
        """
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


@dataclass(frozen=True)
class StepParts:
    """Seconds of a step that one process spends on its rows."""

    data: float
    forward: float
    backward: float
    optimizer: float


def count_flops(ranks: Sequence[Rank], plan: StepPlan) -> int:
    """Count the floating-point operations of the matrix multiplications in a step, padding included.

    A multiplication of (M, K) and (K, N) counts 2 M K N; everything else (softmax, norms, dropout, Adam) is
    not counted. The multiplications are those of eager attention, forward and backward, with padding and
    masked positions, and without recomputation.

    Args:
        ranks: all of a group, with one model; each computes its rows, one after the other.
        plan: of the step. Its gradients are added to those of the model.
    """
    model, plain_layers = ranks[0].model, ranks[0].execution.eagerly()
    with attention_implementation(model, "eager"), plain_layers, FlopCounterMode(display=False) as counter:
        for rank in ranks:
            rank.accumulate(plan)
    return int(counter.get_total_flops())


def time_parts(
    rank: Rank,
    plans: Sequence[StepPlan],
    optimizer: torch.optim.Optimizer,
    average: MovingAverage | None,
    *,
    threads: int,
) -> Iterator[StepParts]:
    """Take steps with one rank's rows and yield the time of each part.

    The functions are those of training, but other ranks are idle and their gradients are not added. The
    gradient of the loss is part of `forward`. `optimizer` is the norm, the update and the moving average of
    the rank's shard of the weights.

    Args:
        rank: the weights of its model change.
        plans: of the steps.
        optimizer: over all trained weights, with state.
        average: the moving average, or None.
        threads: of the process.
    """
    model, config = rank.model, rank.config
    device = next(model.parameters()).device
    trained = {name: weight for name, weight in model.named_parameters() if weight.requires_grad}
    own = partition_weights(trained, optimizer, rank.size)[rank.number]
    part = optimizer_of_shard(optimizer, list(own.values()))
    model.train()
    for plan in plans:
        with using_threads(threads), float32_matmul_precision(rank.execution.precision, device):
            watch, sums = _Stopwatch(device), Sums()
            for batch in rank.batches(plan):
                on_device = batch.to(device)
                watch.lap("data")
                with autocast(rank.execution.precision, device):
                    loss = batch_loss(model, on_device, config.train)
                watch.lap("forward")
                torch.autograd.backward(loss.smoothed)
                watch.lap("backward")
                sums += Sums(float(loss.smoothed.detach()), float(loss.nll), batch.num_tgt_tokens)
            metrics = step_metrics(sums, squared_norm(own.values()))
            scale = gradient_scale(metrics, config.optimizer.clip_norm)
            apply_gradients(part, scale=scale, learning_rate=plan.learning_rate)
            if average is not None:
                average.update(own, plan.number)
            model.zero_grad(set_to_none=True)
            watch.lap("optimizer")
        yield StepParts(**watch.seconds)


class _Stopwatch:
    """Adds the time since the last lap to a part."""

    def __init__(self, device: torch.device) -> None:
        self.seconds: dict[str, float] = {}
        self._device = device
        self._last = time.perf_counter()

    def lap(self, part: str) -> None:
        finish(self._device)
        now = time.perf_counter()
        self.seconds[part] = self.seconds.get(part, 0.0) + now - self._last
        self._last = now


def finish(device: torch.device) -> None:
    """Wait for the kernels that a GPU has queued."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
