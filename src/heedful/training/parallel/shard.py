"""One rank's part of a step on shared weights: the gradients of its rows, the update of its shard."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from heedful.training.averaging import MovingAverage
from heedful.training.optimizer import optimizer_of_shard
from heedful.training.parallel.partition import names_sent_by, partition_weights, trained_weights
from heedful.training.parallel.process_group import Rank, StepPlan
from heedful.training.parallel.shared_memory import SharedMemory, views
from heedful.training.step import Sums, apply_gradients, squared_norm


@dataclass(frozen=True)
class Update:
    """The second half of a step.

    Attributes:
        scale: to multiply the summed gradients by.
        learning_rate: of the step.
        number: of the step.
    """

    scale: float
    learning_rate: float
    number: int


class Shard:
    """A rank of a shared-memory group: computes gradients of all weights, updates those of its shard."""

    def __init__(
        self,
        rank: Rank,
        optimizer: torch.optim.Optimizer,
        average: MovingAverage | None,
        memory: SharedMemory,
    ) -> None:
        self.rank = rank
        rank.discard_gradients = self._discard_gradients
        self._average = average
        trained = trained_weights(rank.model)
        shards = partition_weights(trained, optimizer, rank.size)
        self._weights = shards[rank.number]
        self._optimizer = optimizer_of_shard(optimizer, list(self._weights.values()))
        self._outgoing: dict[Tensor, Tensor] = {}  # buffers for this rank's gradients of the others' weights
        self._incoming: list[tuple[Tensor, Tensor]] = []  # a weight of its own, and another rank's gradient
        for sender, vector in enumerate(memory.gradients):
            names = names_sent_by(sender, shards)
            buffers = zip(names, views(vector, (trained[name] for name in names)), strict=True)
            if sender == rank.number:
                self._outgoing = {trained[name]: buffer for name, buffer in buffers}
            else:
                self._incoming += [
                    (trained[name], buffer) for name, buffer in buffers if name in self._weights
                ]
        self._sent: set[Tensor] = set()
        hooked: list[Any] = list(self._outgoing)  # torch has not typed this method
        self._hooks = [weight.register_post_accumulate_grad_hook(self._send) for weight in hooked]

    def accumulate(self, plan: StepPlan) -> Sums:
        """Compute the gradients of this rank's rows; those of other ranks' weights go to shared memory."""
        self._discard_gradients()
        sums = self.rank.accumulate(plan)
        for weight in self._outgoing.keys() - self._sent:  # where this rank had no rows
            self._outgoing[weight].zero_()
        return sums

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
        apply_gradients(self._optimizer, scale=update.scale, learning_rate=update.learning_rate)
        if self._average is not None:
            self._average.update(self._weights, update.number)

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
        self.rank.discard_gradients = self.rank.model.zero_grad
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
