"""Processes of one machine that share weights, gradients, optimiser state and moving average in memory.

A step has three messages from rank 0 to its workers: each rank computes the gradients of its rows, sums those
of its own shard of the weights over all ranks, and updates that shard. Only gradients are copied: a rank
writes gradients of weights that others update into shared buffers as soon as the backward pass has them.
"""

import atexit
import gc
import math
import shutil
import time
import traceback
from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from heedful.errors import HeedfulError, TrainingError
from heedful.model.transformer import Transformer
from heedful.runtime.threads import using_threads
from heedful.runtime.workers import Worker, start_worker
from heedful.training.averaging import MovingAverage
from heedful.training.execution import Execution
from heedful.training.interrupt import ignore_signals
from heedful.training.optimizer import (
    build_optimizer,
    fill_state,
    is_plugged,
    optimized_weights,
    optimizer_of_shard,
    trained_weights,
    update_costs,
)
from heedful.training.parallel.messages import pack, unpack
from heedful.training.parallel.process_group import GROUP_IS_BROKEN, Rank, RankSetup, StepPlan
from heedful.training.step import (
    LossSums,
    StepInterruptedError,
    StepMetrics,
    apply_gradients,
    gradient_scale,
    squared_norm,
    step_metrics,
)

_FILE_SYSTEM = Path("/dev/shm")  # on Linux, where shared memory is a file system of limited size
_POLL = 0.1  # seconds between two looks for signals, while a worker is busy
_PATIENCE, _PATIENCE_IN_UPDATE = 0.5, 10.0  # seconds that a signal waits for the workers


class NoSharedMemoryError(Exception):
    """The system has no shared memory, or too little; nothing was moved into it."""


@dataclass(frozen=True)
class Update:
    """The second half of a step. `scale` multiplies the summed gradients."""

    scale: float
    learning_rate: float
    step: int


class SharedMemoryGroup:
    """A process group as rank 0 sees it. Its model, optimiser and average move into shared memory."""

    is_sharded = False

    def __init__(
        self, rank: Rank, optimizer: torch.optim.Optimizer, average: MovingAverage | None, *, threads: int
    ) -> None:
        """Start the workers, each with `threads` threads; `rank` is rank 0."""
        self.size = rank.size
        self.threads = threads
        self._is_between_steps = True
        setup = RankSetup.of(rank, average), rank.execution, rank.size, threads
        packed = pack(setup, rank.model)
        memory = move_to_shared_memory(rank.model, optimizer, average, rank.size)
        self._shard = Shard(rank, optimizer, average, memory)
        self._workers: list[Worker] = []
        atexit.register(self.close)  # or the program would wait for its workers, and they for a message
        try:
            for index in range(1, rank.size):
                self._workers.append(start_worker(_run_worker, packed, memory, index))
        except BaseException:
            self.close()
            raise

    def step(self, plan: StepPlan) -> StepMetrics:
        """Update the weights once; each rank updates its shard."""
        self._is_between_steps = False
        with using_threads(self.threads):
            self._send(plan)
            sums = self._shard.accumulate(plan)  # while the workers do the same
            sums = sum(self._receive(), start=sums)
            self._send("sum")
            squared = self._shard.sum()
            squared = sum(self._receive(), start=squared)
            metrics = step_metrics(sums, squared)
            if metrics.is_finite:
                scale = gradient_scale(metrics, self._shard.rank.config.optimizer.clip_norm)
                update = Update(scale, plan.learning_rate, plan.step)
                self._send(update)
                self._shard.update(update)
                self._receive(in_update=True)
        self._is_between_steps = True
        return metrics

    def gather(self) -> None:
        """Nothing is elsewhere: the trainer's objects are views of the shared memory."""

    def close(self) -> None:
        """Shut the workers down."""
        for process, pipe in self._workers:
            pipe.close()  # ends the worker
            if self._is_between_steps:
                process.join(timeout=10)
            process.kill()  # if it is still alive, or in a step that was interrupted
            process.join()
        self._workers = []
        self._shard.close()
        atexit.unregister(self.close)

    def _send(self, message: object) -> None:
        for _, pipe in self._workers:
            try:
                pipe.send(message)
            except OSError as error:
                raise TrainingError(GROUP_IS_BROKEN) from error

    def _receive(self, *, in_update: bool = False) -> list[Any]:
        return [self._answer(worker, in_update=in_update) for worker in self._workers]

    def _answer(self, worker: Worker, *, in_update: bool) -> Any:  # noqa: ANN401
        """Wait for the answer of a worker, which may still be starting; a signal soon ends the wait."""
        process, pipe = worker
        patience, end = _PATIENCE_IN_UPDATE if in_update else _PATIENCE, math.inf
        while not wait([pipe, process.sentinel], timeout=_POLL):
            if end == math.inf and self._shard.rank.is_interrupted():
                end = time.monotonic() + patience
            if time.monotonic() >= end:
                if in_update:  # some weights are updated, and others are not
                    raise TrainingError(GROUP_IS_BROKEN)
                raise StepInterruptedError
        try:
            answer = pipe.recv()
        except (EOFError, OSError) as error:
            if not in_update and self._shard.rank.is_interrupted():  # the signal has ended the worker too
                raise StepInterruptedError from error
            raise TrainingError(GROUP_IS_BROKEN) from error
        if isinstance(answer, Exception):
            raise answer
        return answer


@ignore_signals()
def _run_worker(pipe: "Connection[Any, Any]", setup: bytes, memory: "SharedMemory", index: int) -> None:
    """Handle the messages of rank 0 until it closes its end of the pipe; the answer may be an exception."""
    try:
        shard = _new_shard(memory, index, *unpack(setup, torch.device("cpu")))
        gc.freeze()
        while True:
            pipe.send(shard.handle(pipe.recv()))
    except (EOFError, ConnectionError):  # rank 0 has closed its end, or is gone after a failed step
        return
    except Exception as error:  # rank 0 raises it
        message = str(error) if isinstance(error, HeedfulError) else f"{type(error).__name__}: {error}"
        failure = TrainingError(f"process {index} of the training failed: {message}")
        failure.add_note(traceback.format_exc())
        with suppress(OSError):
            pipe.send(failure)


def _new_shard(
    memory: "SharedMemory", index: int, setup: RankSetup, execution: Execution, size: int, threads: int
) -> "Shard":
    """Return a worker's shard, with the model of rank 0 over the shared weights."""
    torch.set_num_threads(threads)
    rank = setup.rank(execution, index, size)
    optimizer = build_optimizer(rank.model, setup.config.optimizer, precision=execution.precision)
    average = None if setup.average_decay is None else MovingAverage(rank.model, setup.average_decay)
    attach(memory, rank.model, optimizer, average)
    return Shard(rank, optimizer, average, memory)


class Shard:
    """A rank of a shared-memory group: computes gradients of all weights, and updates its shard."""

    def __init__(
        self,
        rank: Rank,
        optimizer: torch.optim.Optimizer,
        average: MovingAverage | None,
        memory: "SharedMemory",
    ) -> None:
        self.rank = rank
        self._average = average
        trained = trained_weights(rank.model)
        shards = partition_weights(trained, optimizer, rank.size)
        self._weights = shards[rank.index]
        self._optimizer = optimizer_of_shard(optimizer, list(self._weights.values()))
        self._outgoing: dict[Tensor, Tensor] = {}  # buffers for this rank's gradients of the others' weights
        self._incoming: list[tuple[Tensor, Tensor]] = []  # a weight of its own, and another rank's gradient
        own = {*self._weights.values()}
        for sender, vector in enumerate(memory.gradients):
            weights = [trained[name] for name in names_sent_by(sender, shards)]
            buffers = zip(weights, views(vector, weights), strict=True)
            if sender == rank.index:
                self._outgoing = dict(buffers)
            else:
                self._incoming += [(weight, buffer) for weight, buffer in buffers if weight in own]
        self._sent: set[Tensor] = set()
        hooked: list[Any] = list(self._outgoing)  # torch has not typed this method
        self._hooks = [weight.register_post_accumulate_grad_hook(self._send) for weight in hooked]

    def accumulate(self, plan: StepPlan) -> LossSums:
        """Compute the gradients of this rank's rows; for other ranks' weights they go to shared memory."""
        self._discard_gradients()
        return self.rank.accumulate(plan, discard=self._discard_gradients)

    def sum(self) -> float:
        """Sum the gradients of this rank's own weights over all ranks; return the sum of their squares."""
        for weight, buffer in self._incoming:
            if weight.grad is None:
                weight.grad = buffer.clone()
            else:
                weight.grad.add_(buffer)
        return squared_norm(self._weights.values())

    def update(self, update: Update) -> None:
        """Update this rank's own weights, and their average."""
        if not self._weights:
            return
        apply_gradients(self._optimizer, scale=update.scale, learning_rate=update.learning_rate)
        if self._average is not None:
            self._average.update(self._weights, update.step)

    def handle(self, message: object) -> object:
        """Handle a message of rank 0: return the sums, then the sum of squares, then nothing."""
        match message:
            case StepPlan():
                return self.accumulate(message)
            case "sum":
                return self.sum()
            case Update():
                self.update(message)
        return None

    def close(self) -> None:
        """Remove the hooks: later backward passes accumulate gradients as usual."""
        for hook in self._hooks:
            hook.remove()

    def _discard_gradients(self) -> None:
        """Discard all gradients; the next one of a weight overwrites its buffer."""
        self.rank.model.zero_grad(set_to_none=True)
        self._sent.clear()

    def _send(self, weight: Tensor) -> None:
        """Move a gradient into its buffer as soon as the backward pass has computed it."""
        assert weight.grad is not None
        if weight in self._sent:
            self._outgoing[weight].add_(weight.grad)
        else:
            self._outgoing[weight].copy_(weight.grad)
        self._sent.add(weight)
        weight.grad = None


def partition_weights(
    trained: Mapping[str, Tensor], optimizer: torch.optim.Optimizer, size: int
) -> list[dict[str, Tensor]]:
    """Partition the weights greedily, the costliest to update first, each to the least loaded rank.

    An optimiser of a plugin has state that is not shared, so rank 0 updates all weights.

    Returns:
        For each rank, the weights that it updates.
    """
    shards: list[dict[str, Tensor]] = [{} for _ in range(size)]
    if is_plugged(optimizer):
        shards[0].update(trained)
        return shards
    costs = update_costs(optimizer)
    loads = [0] * size
    for name, weight in sorted(trained.items(), key=lambda item: -costs[item[1]]):
        least = loads.index(min(loads))
        shards[least][name] = weight
        loads[least] += costs[weight]
    return shards


def names_sent_by(sender: int, shards: Sequence[Mapping[str, Tensor]]) -> list[str]:
    """Return the weights that other ranks than the sender update: it sends their gradients."""
    return [name for rank, shard in enumerate(shards) if rank != sender for name in shard]


@dataclass(frozen=True)
class SharedMemory:
    """All shared tensors; each attribute concatenates several tensors into one vector.

    Attributes:
        weights: the weights of the whole model.
        gradients: for each rank, the gradients that it computed for weights that other ranks update.
        state: the state of the optimiser, a vector for each dtype (step counters are always float32).
        average: the moving average of the weights, if there is one.
    """

    weights: Tensor
    gradients: tuple[Tensor, ...]
    state: dict[torch.dtype, Tensor]
    average: Tensor | None


def shared_memory_needed(model: Transformer, size: int) -> int:
    """Return an upper bound of the bytes that `size` processes share."""
    every = sum(weight.nbytes for weight in model.parameters())
    trained = sum(weight.nbytes for weight in trained_weights(model).values())
    return 2 * every + (1 + size) * trained


def shared_memory_left() -> int | None:
    """Return the free bytes of shared memory; None if unknown."""
    return shutil.disk_usage(_FILE_SYSTEM).free if _FILE_SYSTEM.is_dir() else None


def move_to_shared_memory(
    model: Transformer, optimizer: torch.optim.Optimizer, average: MovingAverage | None, size: int
) -> SharedMemory:
    """Move weights, state and average into shared memory; model, optimiser and average become views of it."""
    weights, trained = list(model.parameters()), trained_weights(model)
    shards = partition_weights(trained, optimizer, size)
    memory = SharedMemory(
        weights=_concatenated([weight.detach() for weight in weights]),
        gradients=tuple(
            _concatenated([torch.zeros_like(trained[name]) for name in names_sent_by(sender, shards)])
            for sender in range(size)
        ),
        state={dtype: _concatenated(tensors) for dtype, tensors in _state(optimizer).items()},
        average=None if average is None else _concatenated(_averages(model, average)),
    )
    attach(memory, model, optimizer, average)
    return memory


def attach(
    memory: SharedMemory, model: Transformer, optimizer: torch.optim.Optimizer, average: MovingAverage | None
) -> None:
    """Make weights, state and average views of the shared ones."""
    _attach(list(model.parameters()), memory.weights)
    for dtype, tensors in _state(optimizer).items():
        _attach(tensors, memory.state[dtype])
    if average is not None and memory.average is not None:
        _attach(_averages(model, average), memory.average)


def views(vector: Tensor, like: Sequence[Tensor]) -> list[Tensor]:
    """Return consecutive parts of a vector, in the shapes of these tensors."""
    if not like:
        return []
    parts = torch.split(vector, [tensor.numel() for tensor in like])
    return [part.view_as(tensor) for part, tensor in zip(parts, like, strict=True)]


def _attach(tensors: Sequence[Tensor], vector: Tensor) -> None:
    """Make tensors views of a vector that holds their values one after the other."""
    for tensor, view in zip(tensors, views(vector, tensors), strict=True):
        tensor.data = view


def _concatenated(tensors: Sequence[Tensor]) -> Tensor:
    """Return one vector in shared memory with the values of all tensors."""
    vector = torch.cat([tensor.flatten() for tensor in tensors]) if tensors else torch.empty(0)
    try:
        vector.untyped_storage().share_memory_()
    except (RuntimeError, OSError) as error:
        raise NoSharedMemoryError(str(error).splitlines()[0]) from error
    return vector


def _state(optimizer: torch.optim.Optimizer) -> dict[torch.dtype, list[Tensor]]:
    """Return the optimiser's state by dtype, in the same order in all processes; step counters come last."""
    if is_plugged(optimizer):
        return {}
    fill_state(optimizer)
    tensors: list[Tensor] = []
    for weight in optimized_weights(optimizer):
        state = optimizer.state[weight]
        tensors += [state[name] for name in sorted(state)]
    by_dtype = defaultdict(list)
    for tensor in sorted(tensors, key=lambda tensor: tensor.dim() == 0):  # first the moments, for alignment
        by_dtype[tensor.dtype].append(tensor)
    return by_dtype


def _averages(model: Transformer, average: MovingAverage) -> list[Tensor]:
    """Return the moving averages in the order of the model's parameters."""
    return [average.weights[name] for name, _ in model.named_parameters()]
