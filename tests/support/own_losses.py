"""Parts of a training as a user writes them, in a module that other processes can import."""

import multiprocessing
import os
import signal
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any

import torch

from heedful.data.batches import Batch
from heedful.model.transformer import Transformer
from heedful.ops.attention import FusedAttention
from heedful.settings.run import TrainConfig
from heedful.training import Loss
from heedful.training.step import batch_loss


def doubled(model: Transformer, batch: Batch) -> Loss:
    """Twice the negative log-likelihood."""
    loss = batch_loss(model, batch, TrainConfig(label_smoothing=0.0))
    return Loss(2.0 * loss.smoothed, loss.nll)


@dataclass(frozen=True)
class FailsInWorkers:
    """A loss that only other processes cannot compute."""

    by_signal: bool = False

    def __call__(self, model: Transformer, batch: Batch) -> Loss:
        if multiprocessing.parent_process() is not None:
            if self.by_signal:
                os.kill(os.getpid(), signal.SIGKILL)
            raise ArithmeticError("no loss today")
        return doubled(model, batch)


class UniformAttention(FusedAttention):
    """Attends to all positions equally; its class cannot be seen in a configuration."""

    def forward(self, queries: Any, keys: Any, *rest: Any, **options: Any) -> torch.Tensor:  # noqa: ANN401
        return super().forward(0.0 * queries, keys, *rest, **options)


def never_answer(pipe: "Connection[Any, Any]", *_: object) -> None:
    """A worker that hangs, until its parent ends."""
    multiprocessing.connection.wait([pipe])


class HeavyBall(torch.optim.Optimizer):
    """Gradient descent with momentum (Polyak, 1964)."""

    def __init__(self, groups: list[dict[str, Any]]) -> None:
        super().__init__(groups, {})

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            for weight in group["params"]:
                mean = self.state[weight].get("mean", 0.0)
                self.state[weight] = {"mean": 0.9 * mean + weight.grad}
                weight.sub_(5.0 * group["lr"] * self.state[weight]["mean"])
