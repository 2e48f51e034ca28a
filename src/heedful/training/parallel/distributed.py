"""Data parallelism over torchrun's processes, each with a copy of the weights: GPUs, or several machines.

Gradients are summed by torch.distributed (gloo on CPUs, NCCL on GPUs); every process then takes the same
step, so the copies stay equal. Rank 0 broadcasts its weights and its optimiser's state at the start.
"""

import os
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from heedful.data.batches import BatchSource
from heedful.errors import ConfigError, TrainingError
from heedful.model.transformer import Transformer
from heedful.settings.run import Config
from heedful.training.averaging import MovingAverage
from heedful.training.execution import Execution
from heedful.training.interrupt import ignore_signals
from heedful.training.optimizer import build_optimizer, choose_trained_weights
from heedful.training.parallel.process_group import GROUP_IS_BROKEN, Rank, StepPlan
from heedful.training.step import (
    StepMetrics,
    Sums,
    apply_gradients,
    gradient_scale,
    squared_norm,
    step_metrics,
)

_TORCHRUN_VARIABLES = ("RANK", "MASTER_ADDR", "MASTER_PORT")  # besides WORLD_SIZE
_TIMEOUT = timedelta(hours=12)  # of workers, while rank 0 reads a corpus or validates


def join_process_group(device: str) -> int | None:
    """Join the process group that torchrun describes in the environment; return this process's rank.

    Returns None if torchrun did not start this process, or started it alone.

    Args:
        device: "cpu", "cuda", or "auto".

    Raises:
        ConfigError: the environment is incomplete or contradictory.
    """
    if os.environ.get("WORLD_SIZE", "1") in ("", "0", "1"):
        return None
    if not dist.is_initialized():
        _check_environment()
    on_gpu = device == "cuda" or (device == "auto" and torch.cuda.is_available())
    if on_gpu:
        torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")))
    if not dist.is_initialized():
        # Building an optimiser imports this; if there were a group by then, it would live on as a default
        # argument of its functions.
        from torch.distributed.nn import functional  # noqa: F401

        dist.init_process_group("cpu:gloo,cuda:nccl" if on_gpu else "gloo", timeout=_TIMEOUT)
    return dist.get_rank()


def _check_environment() -> None:
    """Refuse an incomplete environment: templates of clusters set only WORLD_SIZE and RANK."""
    size = os.environ["WORLD_SIZE"]
    if missing := [name for name in _TORCHRUN_VARIABLES if not os.environ.get(name)]:
        raise ConfigError(
            f"WORLD_SIZE={size}, but {', '.join(missing)} not set: torchrun sets "
            f"{', '.join(_TORCHRUN_VARIABLES)} and WORLD_SIZE; start with torchrun -m heedful, or unset "
            "WORLD_SIZE to train in one process"
        )
    for name in ("WORLD_SIZE", "RANK", "LOCAL_RANK", "MASTER_PORT"):
        if not os.environ.get(name, "0").isdecimal():
            raise ConfigError(f"{name}={os.environ[name]!r} is not a number; start with torchrun -m heedful")
    if int(os.environ["RANK"]) >= int(size):
        raise ConfigError(
            f"RANK={os.environ['RANK']} is not below WORLD_SIZE={size}; start with torchrun -m heedful"
        )


def in_process_group() -> bool:
    """Return whether this process has joined a group of torch.distributed."""
    return dist.is_available() and dist.is_initialized()


def leave_process_group() -> None:
    """Leave the group of torch.distributed, before the program ends.

    This joins the group's threads if nothing else refers to the group. They free tensors, which needs Python,
    and would abort the process if Python ended first.
    """
    if in_process_group():
        dist.destroy_process_group()


@dataclass(frozen=True)
class _Setup:
    """The first message to a worker."""

    source: BatchSource
    config: Config
    dtype: torch.dtype


class DistributedGroup:
    """A process group as rank 0 sees it."""

    def __init__(self, rank: Rank, optimizer: torch.optim.Optimizer, average: MovingAverage | None) -> None:
        """Send the configuration and the weights to the workers, which wait in `run_worker`."""
        self.size = rank.size
        self.threads = torch.get_num_threads()
        self._average = average
        self._is_between_steps = True
        _broadcast(_Setup(rank.source, rank.config, next(rank.model.parameters()).dtype))
        self._copy = _Copy(rank, optimizer)
        rank.prefetch()

    def step(self, plan: StepPlan) -> StepMetrics:
        """Update the weights of all ranks once."""
        self._is_between_steps = False
        _broadcast(plan)
        metrics = self._copy.step(plan)
        self._is_between_steps = True
        if self._average is not None and metrics.is_finite:
            self._average.update(dict(self._copy.rank.model.named_parameters()), plan.number)
        return metrics

    def close(self) -> None:
        """Shut the workers down; after a failed step they end when this process ends."""
        self._copy.rank.close()
        if self._is_between_steps:
            _broadcast(None)


def run_worker(device: torch.device) -> None:
    """Take the steps that rank 0 plans until it sends no more, or is gone."""
    with suppress(_DisconnectedError):  # the process that failed reports why
        setup = _broadcast(None)
        assert isinstance(setup, _Setup)
        with ignore_signals():
            _take_steps(setup, device)


def _take_steps(setup: "_Setup", device: torch.device) -> None:
    config = setup.config
    model = Transformer.from_config(config.model).to(device, setup.dtype)
    choose_trained_weights(model, config)
    execution = Execution.of(config.train, device)
    execution.apply(model)
    rank = Rank(model, setup.source, config, execution, number=dist.get_rank(), size=dist.get_world_size())
    copy = _Copy(rank, build_optimizer(model, config.optimizer, precision=execution.precision))
    rank.prefetch()
    with closing(rank):
        while isinstance(plan := _broadcast(None), StepPlan):
            copy.step(plan)


class _Copy:
    """A rank's copy: the weights, their gradients in one vector, and an optimiser over all of them."""

    def __init__(self, rank: Rank, optimizer: torch.optim.Optimizer) -> None:
        self.rank = rank
        self._optimizer = optimizer
        with _connected():
            for weight in rank.model.parameters():
                dist.broadcast(weight.detach(), src=0)
        state = _broadcast(_on_cpu(optimizer.state_dict()))
        assert isinstance(state, dict)
        optimizer.load_state_dict(state)
        self._trained = [weight for weight in rank.model.parameters() if weight.requires_grad]
        self._gradients = torch.cat([torch.zeros_like(weight).flatten() for weight in self._trained])
        parts = torch.split(self._gradients, [weight.numel() for weight in self._trained])
        for weight, part in zip(self._trained, parts, strict=True):
            weight.grad = part.view(weight.shape)

    def step(self, plan: StepPlan) -> StepMetrics:
        """Take a step; all ranks get the same sums, so their weights stay equal."""
        self._gradients.zero_()
        sums = self.rank.accumulate(plan, discard=self._gradients.zero_)
        sums = _summed(sums, self._gradients.device)
        with _connected():
            dist.all_reduce(self._gradients)
        metrics = step_metrics(sums, squared_norm(self._trained))
        if metrics.is_finite:
            scale = gradient_scale(metrics, self.rank.config.optimizer.clip_norm)
            apply_gradients(self._optimizer, scale=scale, learning_rate=plan.learning_rate)
        return metrics


def _on_cpu(state: dict[str, Any]) -> dict[str, Any]:
    """Return an optimiser's state on the CPU: from a GPU, every rank would first load it onto rank 0's."""
    of_weights = {
        number: {name: tensor.cpu() for name, tensor in of_weight.items()}
        for number, of_weight in state["state"].items()
    }
    return state | {"state": of_weights}


def _summed(sums: Sums, device: torch.device) -> Sums:
    numbers: Tensor = torch.tensor(
        [sums.smoothed, sums.nll, sums.num_tgt_tokens, sums.num_halvings], dtype=torch.float64, device=device
    )
    with _connected():
        dist.all_reduce(numbers)
    smoothed, nll, num_tokens, num_halvings = numbers.tolist()
    return Sums(smoothed, nll, round(num_tokens), round(num_halvings))


def _broadcast(message: object) -> object:
    """Return the message of rank 0 on every rank; the argument of workers is ignored."""
    box = [message]
    with _connected():
        dist.broadcast_object_list(box, src=0, device=torch.device("cpu"))
    return box[0]


class _DisconnectedError(TrainingError):
    """Another process of the group has ended."""


@contextmanager
def _connected() -> Iterator[None]:
    """Raise torch.distributed's errors inside the block as one that explains them."""
    try:
        yield
    except RuntimeError as error:
        raise _DisconnectedError(GROUP_IS_BROKEN) from error
