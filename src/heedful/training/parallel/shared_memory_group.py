"""Data parallelism over processes of one machine that share the weights: on CPUs, faster than threads.

A step of a small model is thousands of short operations, and threads synchronise after each. Processes
synchronise three times a step: when all gradients are computed, when they are summed, and when the weights
are updated. Weights, optimiser state and moving average exist once, in shared memory; each process updates
its own shard of them, for which the others send it their gradients.
"""

import atexit
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from typing import Any

import torch
from torch import multiprocessing

from heedful.config import Config
from heedful.data.batch_source import BatchSource
from heedful.errors import TrainingError
from heedful.model import Transformer
from heedful.threads import using_threads
from heedful.training.averaging import MovingAverage
from heedful.training.interrupt import block_signals, ignore_signals
from heedful.training.optimizer import build_optimizer
from heedful.training.parallel.process_group import GROUP_IS_BROKEN, Rank, StepPlan
from heedful.training.parallel.shard import Shard, Update
from heedful.training.parallel.shared_memory import (
    SharedMemory,
    attach_average,
    attach_model,
    attach_state,
    move_to_shared_memory,
)
from heedful.training.step import StepMetrics, gradient_scale, step_metrics
from heedful.training.trained_weights import choose_trained_weights


class SharedMemoryGroup:
    """A process group as rank 0 sees it. Its model, optimiser and average move into shared memory."""

    def __init__(
        self, rank: Rank, optimizer: torch.optim.Optimizer, average: MovingAverage | None, *, threads: int
    ) -> None:
        """Start the workers.

        Args:
            rank: number 0 of the group.
            optimizer: over all trained weights.
            average: the moving average, or None.
            threads: of each process.

        Raises:
            NoSharedMemoryError: there is none, or too little.
        """
        self.size = rank.size
        self.threads = threads
        memory = move_to_shared_memory(rank.model, optimizer, average, rank.size)
        self._shard = Shard(rank, optimizer, average, memory)
        context = multiprocessing.get_context("spawn")
        self._workers: list[tuple[SpawnProcess, Connection[Any, Any]]] = []
        atexit.register(self.close)  # or the program would wait for its workers, and they for a message
        for number in range(1, rank.size):
            ours, theirs = context.Pipe()
            arguments = (theirs, rank.source, rank.config, number, rank.size, memory, threads)
            process = context.Process(target=_run_worker, args=arguments, daemon=True)
            with block_signals():
                process.start()
            theirs.close()
            self._workers.append((process, ours))

    def step(self, plan: StepPlan) -> StepMetrics:
        """Update the weights once, each rank those of its shard."""
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
                update = Update(scale, plan.learning_rate, plan.number)
                self._send(update)
                self._shard.update(update)
                self._receive()
        return metrics

    def close(self) -> None:
        """Shut the workers down."""
        for process, pipe in self._workers:
            pipe.close()  # ends the worker
            process.join(timeout=10)
            process.kill()  # if it is still alive
        self._workers = []
        self._shard.close()
        atexit.unregister(self.close)

    def _send(self, message: object) -> None:
        for _, pipe in self._workers:
            try:
                pipe.send(message)
            except OSError as error:
                raise TrainingError(GROUP_IS_BROKEN) from error

    def _receive(self) -> list[Any]:
        answers = []
        for process, pipe in self._workers:
            wait([pipe, process.sentinel])
            try:
                answers.append(pipe.recv())
            except (EOFError, OSError) as error:
                raise TrainingError(GROUP_IS_BROKEN) from error
        return answers


@ignore_signals()
def _run_worker(
    pipe: "Connection[Any, Any]",
    source: BatchSource,
    config: Config,
    number: int,
    size: int,
    memory: SharedMemory,
    threads: int,
) -> None:
    """Handle the messages of rank 0 until it closes its end of the pipe."""
    torch.set_num_threads(threads)
    model = Transformer.from_config(config.model).to(memory.weights.dtype)
    choose_trained_weights(model, config)
    attach_model(model, memory)
    rank = Rank(model, source, config, number=number, size=size)
    optimizer = build_optimizer(model, config.optimizer, precision=rank.precision)
    attach_state(optimizer, memory)
    average = None
    if memory.average is not None:
        average = MovingAverage(model, config.train.ema_decay)
        attach_average(model, average, memory)
    shard = Shard(rank, optimizer, average, memory)
    while (message := _received(pipe)) is not None and _answered(pipe, shard.handle(message)):
        pass


def _received(pipe: "Connection[Any, Any]") -> object:
    """Return the next message of rank 0; None when it has closed its end."""
    try:
        return pipe.recv()
    except (EOFError, OSError):
        return None


def _answered(pipe: "Connection[Any, Any]", answer: object) -> bool:
    """Send an answer; return False if rank 0 is gone, after a failed step."""
    try:
        pipe.send(answer)
    except OSError:
        return False
    return True
