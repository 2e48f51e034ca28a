"""Who trains: one process alone, one for each core of a machine, or those that torchrun started.

The first process leads. It alone has a trainer, which decides what the next step is, judges, logs and saves;
the others follow its orders. Each computes the gradients of every n-th row of a batch, and these are summed
before the update, so that a team does what one process would do with the whole batch.
"""

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import torch

from heedful.config import Config
from heedful.data import Batch, BatchSource
from heedful.model import Transformer
from heedful.training.averaging import MovingAverage
from heedful.training.compilation import compile_layers, compiles
from heedful.training.feed import Feed, FeedAhead, FeedInLine, num_workers
from heedful.training.precision import Precision, resolve_precision
from heedful.training.step import StepMetrics, Sums, accumulate_gradients, train_step

TEAM_IS_BROKEN = (
    "a process of the training team ended unexpectedly (out of memory?); --resume from the last checkpoint"
)


@dataclass(frozen=True)
class StepOrder:
    """What one step is.

    Attributes:
        number: of the step, counted from 1.
        batches: its micro-batches, each an epoch and a place in the epoch's plan.
        learning_rate: of this step.
    """

    number: int
    batches: tuple[tuple[int, int], ...]
    learning_rate: float


class Team(Protocol):
    """What a trainer has its steps taken by: `size` processes of so many threads."""

    size: int
    threads: int

    def step(self, order: StepOrder) -> StepMetrics:
        """Update the weights once; where loss or gradient is not finite, they stay as they are."""
        ...

    def close(self) -> None:
        """Send the others home."""
        ...


class Rank:
    """One process of a team: a model, and its rows of every batch.

    Attributes:
        discard_gradients: forgets those of a step so far; a team that keeps them elsewhere sets its own.
    """

    def __init__(
        self, model: Transformer, source: BatchSource, config: Config, *, number: int = 0, size: int = 1
    ) -> None:
        self.model = model
        self.source = source
        self.config = config
        self.number = number
        self.size = size
        self.discard_gradients: Callable[[], None] = model.zero_grad
        self._feed: Feed = FeedInLine(source, number=number, size=size)
        if compiles(config.train, next(model.parameters()).device):
            compile_layers(model)

    @cached_property
    def precision(self) -> Precision:
        """What the products are computed in."""
        return resolve_precision(self.config.train.precision, next(self.model.parameters()).device)

    def batches(self, order: StepOrder) -> Iterator[Batch]:
        """This rank's rows of each micro-batch; of a small one it may have none.

        Random numbers (dropout) begin anew from seed, step and rank: there is no state of them to keep.
        """
        identity = f"{self.config.train.seed} {order.number} {self.number}".encode()
        torch.manual_seed(int.from_bytes(hashlib.blake2b(identity, digest_size=7).digest(), "big"))
        for epoch, place in order.batches:
            batch = self._feed.batch(epoch, place)
            if batch is not None:
                yield batch

    def feed_ahead(self, workers: int | None = None) -> None:
        """Have the batches made by other processes from now on, by as many as pay off where none is said."""
        if workers is None:
            workers = num_workers(self.source, next(self.model.parameters()).device)
        if workers:
            feed = FeedInLine(self.source, number=self.number, size=self.size)
            self._feed = FeedAhead(feed, workers=workers)

    def close(self) -> None:
        """Make no more batches."""
        self._feed.close()

    def accumulate(self, order: StepOrder) -> Sums:
        """Add the gradients of this rank's rows, summed over tokens, to those that the weights have."""
        return accumulate_gradients(
            self.model,
            self.batches(order),
            self.config.train,
            precision=self.precision,
            discard=self.discard_gradients,
        )


class Alone:
    """A team of one."""

    size = 1

    def __init__(self, rank: Rank, optimizer: torch.optim.Optimizer, average: MovingAverage | None) -> None:
        self.threads = torch.get_num_threads()
        self._rank = rank
        rank.feed_ahead()
        self._optimizer = optimizer
        self._average = average

    def step(self, order: StepOrder) -> StepMetrics:
        """See `Team`."""
        metrics = train_step(
            self._rank.model,
            self._optimizer,
            self._rank.batches(order),
            config=self._rank.config,
            learning_rate=order.learning_rate,
            precision=self._rank.precision,
        )
        if self._average is not None and metrics.is_finite:
            self._average.update(dict(self._rank.model.named_parameters()), order.number)
        return metrics

    def close(self) -> None:
        """See `Team`."""
        self._rank.close()
