"""Several processes on one machine that share the weights: for processors, where threads are worse at it.

A step of a small model is thousands of short operations, and threads meet after each. Processes meet three
times a step: when all gradients are there, when they are summed, and when the weights are updated. Weights,
the optimiser's state and the moving average exist once, in shared memory; each process updates and averages
its own share of them, for which the others hand it their gradients.
"""

import atexit
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, multiprocessing

from heedful.config import Config
from heedful.data import BatchSource
from heedful.errors import TrainingError
from heedful.model import Transformer
from heedful.training.averaging import MovingAverage
from heedful.training.interrupt import signals_held_back, signals_left_to_leader
from heedful.training.optimizer import build_optimizer, fill_state, optimizer_of_share, update_costs
from heedful.training.step import (
    StepMetrics,
    Sums,
    apply_gradients,
    gradient_scale,
    squared_norm,
    step_metrics,
)
from heedful.training.team import TEAM_IS_BROKEN, Rank, StepOrder
from heedful.training.trained_weights import choose_trained_weights

_SHARED_MEMORY = Path("/dev/shm")  # on Linux, where it is a file system of limited size


class NoSharedMemoryError(Exception):
    """The system gives no shared memory, or not enough; nothing has been moved into it."""


@dataclass(frozen=True)
class _Memory:
    """What all share, each a vector with one tensor after the other.

    `gradients` has a vector for each rank: its gradients of the weights that others update. The optimiser's
    `state` has a vector for each dtype, as its step counters are float32 whatever the weights are.
    """

    weights: Tensor
    gradients: tuple[Tensor, ...]
    state: dict[torch.dtype, Tensor]
    average: Tensor | None


@dataclass(frozen=True)
class _Update:
    """The second half of an order: what to multiply the summed gradients by, and the rate."""

    scale: float
    learning_rate: float
    number: int


class SharedTeam:
    """The leader's side. Its model, optimiser and average move into shared memory and stay usable."""

    def __init__(
        self, rank: Rank, optimizer: torch.optim.Optimizer, average: MovingAverage | None, *, threads: int
    ) -> None:
        """Start the others.

        Args:
            rank: number 0 of the team's size.
            optimizer: over all trained weights.
            average: where there is one.
            threads: of each process.

        Raises:
            NoSharedMemoryError: there is none, or too little for all that is shared.
        """
        self.size = rank.size
        self.threads = threads
        memory = _share(rank.model, optimizer, average, rank.size)
        self._share = _Share(rank, optimizer, average, memory)
        context = multiprocessing.get_context("spawn")
        self._others: list[tuple[SpawnProcess, Connection[Any, Any]]] = []
        atexit.register(self.close)  # a program that ends waits for followers, and they for a word of it
        for number in range(1, rank.size):
            ours, theirs = context.Pipe()
            arguments = (theirs, rank.source, rank.config, number, rank.size, memory, threads)
            process = context.Process(target=_follow, args=arguments, daemon=True)
            with signals_held_back():
                process.start()
            theirs.close()
            self._others.append((process, ours))

    def step(self, order: StepOrder) -> StepMetrics:
        """See `Team`."""
        with using_threads(self.threads):
            self._send(order)
            sums = self._share.accumulate(order)  # while the others do the same
            sums = sum(self._receive(), start=sums)
            self._send("sum")
            squared = self._share.sum()
            squared = sum(self._receive(), start=squared)
            metrics = step_metrics(sums, squared)
            if metrics.is_finite:
                scale = gradient_scale(metrics, self._share.rank.config.optimizer.clip_norm)
                update = _Update(scale, order.learning_rate, order.number)
                self._send(update)
                self._share.update(update)
                self._receive()
        return metrics

    def close(self) -> None:
        """See `Team`."""
        for process, pipe in self._others:
            pipe.close()  # which the other side takes as the end
            process.join(timeout=10)
            process.kill()  # if it still lives
        self._others = []
        self._share.close()
        atexit.unregister(self.close)

    def _send(self, message: object) -> None:
        for _, pipe in self._others:
            try:
                pipe.send(message)
            except OSError as error:
                raise TrainingError(TEAM_IS_BROKEN) from error

    def _receive(self) -> list[Any]:
        answers = []
        for process, pipe in self._others:
            wait([pipe, process.sentinel])
            try:
                answers.append(pipe.recv())
            except (EOFError, OSError) as error:
                raise TrainingError(TEAM_IS_BROKEN) from error
        return answers


def shared_memory_of(model: Transformer, size: int) -> int:
    """How many bytes a team of that size shares at most: weights, average, moments, and gradients sent."""
    every = sum(weight.numel() * weight.element_size() for weight in model.parameters())
    trained = sum(weight.numel() * weight.element_size() for weight in _trained(model).values())
    return 2 * every + (1 + size) * trained


def shared_memory_left() -> int | None:
    """How many bytes of shared memory are left; None where the system does not say."""
    return shutil.disk_usage(_SHARED_MEMORY).free if _SHARED_MEMORY.is_dir() else None


class _Share:
    """What one rank does, the leader included, with the memory that all share."""

    def __init__(
        self, rank: Rank, optimizer: torch.optim.Optimizer, average: MovingAverage | None, memory: _Memory
    ) -> None:
        self.rank = rank
        rank.discard_gradients = self._discard_gradients
        self._average = average
        trained = _trained(rank.model)
        shares = deal_weights(trained, optimizer, rank.size)
        self._weights = shares[rank.number]
        self._optimizer = optimizer_of_share(optimizer, list(self._weights.values()))
        self._places: dict[Tensor, Tensor] = {}  # where this rank's gradients of the others' weights go
        self._received: list[tuple[Tensor, Tensor]] = []  # a weight of its own, and a gradient of another's
        for sender, vector in enumerate(memory.gradients):
            names = _sent_by(sender, shares)
            places = zip(names, _views(vector, (trained[name] for name in names)), strict=True)
            if sender == rank.number:
                self._places = {trained[name]: place for name, place in places}
            else:
                self._received += [(trained[name], place) for name, place in places if name in self._weights]
        self._handed_out: set[Tensor] = set()
        sent: list[Any] = list(self._places)  # torch has not typed this method
        self._hooks = [weight.register_post_accumulate_grad_hook(self._hand_out) for weight in sent]

    def accumulate(self, order: StepOrder) -> Sums:
        """Compute the gradients of this rank's rows, those of the others' weights into shared memory."""
        self._discard_gradients()
        sums = self.rank.accumulate(order)
        for weight in self._places.keys() - self._handed_out:  # where this rank had no rows
            self._places[weight].zero_()
        return sums

    def _discard_gradients(self) -> None:
        """Begin anew; the first that is handed out of a weight takes the place of what is there."""
        self.rank.model.zero_grad(set_to_none=True)
        self._handed_out.clear()

    def _hand_out(self, weight: Tensor) -> None:
        """Put a gradient into its place as soon as the backward pass has it, and let go of it here."""
        assert weight.grad is not None
        if weight in self._handed_out:
            self._places[weight].add_(weight.grad)
        else:
            self._places[weight].copy_(weight.grad)
        self._handed_out.add(weight)
        weight.grad = None

    def sum(self) -> float:
        """Sum the gradients of this rank's own weights over all ranks; return the sum of their squares."""
        for weight, place in self._received:
            if weight.grad is None:
                weight.grad = place.clone()
            else:
                weight.grad.add_(place)
        return squared_norm(self._weights.values())

    def update(self, update: _Update) -> None:
        """Update this rank's own weights, and their average."""
        apply_gradients(self._optimizer, scale=update.scale, learning_rate=update.learning_rate)
        if self._average is not None:
            self._average.update(self._weights, update.number)

    def obey(self, message: object) -> object:
        """Do a follower's part of a step: return its sums, then its squares, then nothing."""
        match message:
            case StepOrder():
                return self.accumulate(message)
            case "sum":
                return self.sum()
            case _Update():
                self.update(message)
        return None

    def close(self) -> None:
        """Leave the gradients of later backward passes where they are."""
        self.rank.discard_gradients = self.rank.model.zero_grad
        for hook in self._hooks:
            hook.remove()


@signals_left_to_leader()
def _follow(
    pipe: "Connection[Any, Any]",
    source: BatchSource,
    config: Config,
    number: int,
    size: int,
    memory: _Memory,
    threads: int,
) -> None:
    """Do what the leader says until its side of the pipe is closed."""
    torch.set_num_threads(threads)
    model = Transformer.from_config(config.model).to(memory.weights.dtype)
    choose_trained_weights(model, config)
    _attach(list(model.parameters()), memory.weights)
    optimizer = build_optimizer(model, config.optimizer)
    _attach_state(optimizer, memory)
    average = None
    if memory.average is not None:
        average = MovingAverage(model, config.train.ema_decay)
        _attach(_averages(model, average), memory.average)
    share = _Share(Rank(model, source, config, number=number, size=size), optimizer, average, memory)
    while (message := _received(pipe)) is not None and _answered(pipe, share.obey(message)):
        pass


def _received(pipe: "Connection[Any, Any]") -> object:
    """What the leader says; None when it has closed its side."""
    try:
        return pipe.recv()
    except (EOFError, OSError):
        return None


def _answered(pipe: "Connection[Any, Any]", answer: object) -> bool:
    """Whether the leader is there to get the answer; one that fails in the middle of a step is not."""
    try:
        pipe.send(answer)
    except OSError:
        return False
    return True


@contextmanager
def using_threads(count: int) -> Iterator[None]:
    """Compute with so many threads for a while."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _share(
    model: Transformer, optimizer: torch.optim.Optimizer, average: MovingAverage | None, size: int
) -> _Memory:
    """Move everything into shared memory; whoever holds the model, optimiser or average notices nothing."""
    weights, trained = list(model.parameters()), _trained(model)
    shares = deal_weights(trained, optimizer, size)
    memory = _Memory(
        weights=_shared([weight.detach() for weight in weights]),
        gradients=tuple(
            _shared([torch.zeros_like(trained[name]) for name in _sent_by(sender, shares)])
            for sender in range(size)
        ),
        state={dtype: _shared(tensors) for dtype, tensors in _state(optimizer).items()},
        average=None if average is None else _shared(_averages(model, average)),
    )
    _attach(weights, memory.weights)
    if average is not None and memory.average is not None:
        _attach(_averages(model, average), memory.average)
    _attach_state(optimizer, memory)
    return memory


def _attach_state(optimizer: torch.optim.Optimizer, memory: _Memory) -> None:
    for dtype, tensors in _state(optimizer).items():
        _attach(tensors, memory.state[dtype])


def _state(optimizer: torch.optim.Optimizer) -> dict[torch.dtype, list[Tensor]]:
    """The optimiser's state by dtype, in an order that is the same for all; step counters come last."""
    fill_state(optimizer)
    every = [
        tensor
        for group in optimizer.param_groups
        for weight in group["params"]
        for _, tensor in sorted(optimizer.state[weight].items())
    ]
    found: dict[torch.dtype, list[Tensor]] = {}
    for tensor in sorted(every, key=lambda tensor: tensor.dim() == 0):  # moments begin where kernels like it
        found.setdefault(tensor.dtype, []).append(tensor)
    return found


def _averages(model: Transformer, average: MovingAverage) -> list[Tensor]:
    """The moving averages in the model's order; those read from a file have the file's."""
    return [average.weights[name] for name, _ in model.named_parameters()]


def _shared(tensors: Sequence[Tensor]) -> Tensor:
    """One vector in shared memory with the values of all tensors.

    Raises:
        NoSharedMemoryError: there is none, or too little.
    """
    vector = torch.cat([tensor.flatten() for tensor in tensors])
    try:
        vector.untyped_storage().share_memory_()
    except (RuntimeError, OSError) as error:
        raise NoSharedMemoryError(str(error).splitlines()[0]) from error
    return vector


def _attach(tensors: Sequence[Tensor], vector: Tensor) -> None:
    """Make tensors views of a vector, which holds their values one after the other."""
    for tensor, view in zip(tensors, _views(vector, tensors), strict=True):
        tensor.data = view


def _views(vector: Tensor, like: Iterable[Tensor]) -> list[Tensor]:
    """Give the parts of a vector the shapes of these tensors, one after the other."""
    tensors = list(like)
    parts = torch.split(vector, [tensor.numel() for tensor in tensors])
    return [part.view(tensor.shape) for part, tensor in zip(parts, tensors, strict=True)]


def _trained(model: Transformer) -> dict[str, Tensor]:
    return {name: weight for name, weight in model.named_parameters() if weight.requires_grad}


def deal_weights(
    trained: Mapping[str, Tensor], optimizer: torch.optim.Optimizer, size: int
) -> list[dict[str, Tensor]]:
    """Deal the weights, the costliest to update first, to whoever has least to do; return what each has.

    Args:
        trained: weights by name.
        optimizer: of all of them.
        size: of the team that shares the update.
    """
    costs = update_costs(optimizer)
    dealt: list[dict[str, Tensor]] = [{} for _ in range(size)]
    loads = [0] * size
    for name, weight in sorted(trained.items(), key=lambda item: -costs[item[1]]):
        least = loads.index(min(loads))
        dealt[least][name] = weight
        loads[least] += costs[weight]
    return dealt


def _sent_by(sender: int, shares: Sequence[Mapping[str, Tensor]]) -> list[str]:
    """The weights whose gradients a rank hands out: those that others update."""
    return [name for number, share in enumerate(shares) if number != sender for name in share]
