"""Process groups: one process (here), one for each core (shared_memory.py), or torchrun's (distributed.py).

Only rank 0 has a trainer, which plans each step, validates, logs and saves; the other ranks are its workers.
Each rank computes the gradients of every n-th row of a batch, and these are summed before the update, so that
a group of any size takes the step that one process would take with the whole batch.
"""

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Protocol

import torch

from heedful.data.batches import Batch, BatchSource
from heedful.model.transformer import Transformer
from heedful.ops.graphs import GRAPHS_VARIABLE
from heedful.runtime.native import on_or_off
from heedful.settings.run import Config
from heedful.training.averaging import MovingAverage
from heedful.training.cuda_graphs import GraphedPasses
from heedful.training.execution import Execution, compile_layers
from heedful.training.loss import Loss
from heedful.training.parallel.data_loader import InlineLoader, PrefetchingLoader, num_workers
from heedful.training.step import (
    ForwardPass,
    LossFunction,
    LossSums,
    StepInterruptedError,
    StepMetrics,
    accumulate_gradients,
    add_gradients,
    batch_loss,
    fuses_loss,
    train_step,
)

GROUP_IS_BROKEN = "a training process ended unexpectedly (out of memory?); --resume from the last checkpoint"


@dataclass(frozen=True)
class StepPlan:
    """One optimiser step, as planned by rank 0.

    Steps count from 1; a micro-batch is an epoch, and an index into the epoch's plan.
    """

    step: int
    batches: tuple[tuple[int, int], ...]
    learning_rate: float


@dataclass(frozen=True)
class PlannedBatches:
    """A rank's rows of each micro-batch of a step, made while they are iterated, each time anew."""

    rank: "Rank"
    plan: StepPlan

    def __iter__(self) -> Iterator[Batch]:
        """Yield the batches.

        The random generator (dropout) is seeded from seed, step and rank, so its state need not be saved.
        """
        identity = f"{self.rank.config.train.seed} {self.plan.step} {self.rank.index}".encode()
        torch.manual_seed(int.from_bytes(hashlib.blake2b(identity, digest_size=7).digest(), "big"))
        for i, (epoch, index) in enumerate(self.plan.batches):
            if i and self.rank.is_interrupted():
                raise StepInterruptedError
            yield self.rank.loader.batch(epoch, index)


class ProcessGroup(Protocol):
    """`size` processes of `threads` threads each, which take the trainer's steps.

    `is_sharded` says whether each has only a shard of the weights.
    """

    size: int
    threads: int
    is_sharded: bool

    def step(self, plan: StepPlan) -> StepMetrics:
        """Update the weights once, unless loss or gradient is not finite.

        Raises:
            StepInterruptedError: it was interrupted; then the group can take no other step.
        """
        ...

    def gather(self) -> None:
        """Bring the trainer's weights, optimiser state and average up to date, if they are elsewhere."""
        ...

    def close(self) -> None:
        """Shut the workers down."""
        ...


class Rank:
    """One process of a group: a model, and its rows of every batch."""

    def __init__(
        self,
        model: Transformer,
        source: BatchSource,
        config: Config,
        execution: Execution,
        *,
        loss: LossFunction | None = None,
        index: int = 0,
        size: int = 1,
        is_interrupted: Callable[[], bool] = lambda: False,
    ) -> None:
        """Compute with a model, to which `execution` has been applied, as rank `index` of `size` ranks.

        `loss` is by default `batch_loss`. `is_interrupted` says, between the micro-batches of a step, whether
        to end it without an update.
        """
        self.model = model
        self.source = source
        self.config = config
        self.execution = execution
        self.loss: LossFunction = loss or partial(batch_loss, settings=config.train, fused=fuses_loss(model))
        self.index = index
        self.size = size
        self.is_interrupted = is_interrupted
        self.loader: InlineLoader | PrefetchingLoader = InlineLoader(source, rank=index, size=size)

    def prefetch(self, workers: int | None = None) -> None:
        """Let worker processes make the batches from now on; by default `num_workers`."""
        if workers is None:
            workers = num_workers(self.source, self.execution.device)
        if workers:
            inline = InlineLoader(self.source, rank=self.index, size=self.size)
            self.loader = PrefetchingLoader(inline, workers=workers, is_interrupted=self.is_interrupted)

    def close(self) -> None:
        """Stop making batches."""
        self.loader.close()

    def forward(self, batch: Batch, *, is_last: bool = True) -> Loss:
        """Return the loss of a batch, summed over its real target tokens."""
        return self.loss(self.model, batch)

    def accumulate(
        self,
        plan: StepPlan,
        *,
        discard: Callable[[], object] | None = None,
        forward: ForwardPass | None = None,
    ) -> LossSums:
        """Add the gradients of this rank's rows, summed over tokens, to the weights.

        For `discard` and `forward`, the forward pass of a wrapped model, see `accumulate_gradients`.
        """
        return accumulate_gradients(
            self.model,
            PlannedBatches(self, plan),
            self.config.train,
            precision=self.execution.precision,
            discard=discard,
            forward=forward or self.forward,
        )


@dataclass(frozen=True)
class RankSetup:
    """What another process needs for its rank, to which the weights come in another way.

    `average_decay` is None without a moving average.
    """

    model: Transformer
    loss: LossFunction
    source: BatchSource
    config: Config
    average_decay: float | None

    @classmethod
    def of(cls, rank: Rank, average: MovingAverage | None) -> "RankSetup":
        """Return the setup of the other ranks, given rank 0."""
        decay = None if average is None else average.decay
        return cls(rank.model, rank.loss, rank.source, rank.config, decay)

    def rank(self, execution: Execution, index: int, size: int) -> Rank:
        """Return a rank with this model; a compiled layer is sent as a plain one."""
        if execution.compiles:
            compile_layers(self.model)
        return Rank(self.model, self.source, self.config, execution, loss=self.loss, index=index, size=size)


class SingleProcess:
    """A group of one process."""

    size, is_sharded = 1, False

    def __init__(self, rank: Rank, optimizer: torch.optim.Optimizer, average: MovingAverage | None) -> None:
        self.threads = torch.get_num_threads()
        self._rank = rank
        rank.prefetch()
        self._optimizer = optimizer
        self._average = average
        self._graphs = _graphs_of(rank)

    def step(self, plan: StepPlan) -> StepMetrics:
        """Update the weights once, and their moving average."""
        metrics = train_step(
            self._rank.model,
            self._optimizer,
            PlannedBatches(self._rank, plan),
            config=self._rank.config,
            learning_rate=plan.learning_rate,
            precision=self._rank.execution.precision,
            forward=self._rank.forward,
            graphs=self._graphs,
        )
        if self._average is not None and metrics.is_finite:
            self._average.update(dict(self._rank.model.named_parameters()), plan.step)
        return metrics

    def gather(self) -> None:
        """Nothing is elsewhere."""

    def close(self) -> None:
        """Stop making batches."""
        self._rank.close()


def _graphs_of(rank: Rank) -> GraphedPasses | None:
    """Return the CUDA graphs of a rank; None if the model or loss is a user's, which may wait for the GPU."""
    on_gpu = rank.execution.device.type == "cuda" and on_or_off(GRAPHS_VARIABLE) == "on"
    has_own_loss = getattr(rank.loss, "func", None) is not batch_loss  # ours is a partial of it
    if not on_gpu or has_own_loss or not fuses_loss(rank.model):
        return None
    precision = rank.execution.precision
    return GraphedPasses(rank.model, lambda batch: add_gradients(batch, rank.forward, precision))
