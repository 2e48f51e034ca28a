"""Weights, gradients, optimiser state and moving average in shared memory."""

import shutil
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from heedful.model import Transformer
from heedful.training.averaging import MovingAverage
from heedful.training.optimizer import fill_state
from heedful.training.parallel.partition import names_sent_by, partition_weights, trained_weights

_FILE_SYSTEM = Path("/dev/shm")  # on Linux, where shared memory is a file system of limited size


class NoSharedMemoryError(Exception):
    """The system has no shared memory, or too little; nothing was moved into it."""


@dataclass(frozen=True)
class SharedMemory:
    """All shared tensors; each attribute concatenates several tensors into one vector.

    Attributes:
        weights: of the whole model.
        gradients: for each rank, its gradients of the weights that other ranks update.
        state: of the optimiser, a vector for each dtype (step counters are always float32).
        average: the moving average of the weights, if there is one.
    """

    weights: Tensor
    gradients: tuple[Tensor, ...]
    state: dict[torch.dtype, Tensor]
    average: Tensor | None


def shared_memory_needed(model: Transformer, size: int) -> int:
    """Return an upper bound of the bytes that `size` processes share."""
    every = sum(weight.numel() * weight.element_size() for weight in model.parameters())
    trained = sum(weight.numel() * weight.element_size() for weight in trained_weights(model).values())
    return 2 * every + (1 + size) * trained


def shared_memory_left() -> int | None:
    """Return the free bytes of shared memory; None if unknown."""
    return shutil.disk_usage(_FILE_SYSTEM).free if _FILE_SYSTEM.is_dir() else None


def move_to_shared_memory(
    model: Transformer, optimizer: torch.optim.Optimizer, average: MovingAverage | None, size: int
) -> SharedMemory:
    """Move weights, state and average into shared memory; model, optimiser and average become views of it.

    Raises:
        NoSharedMemoryError: there is none, or too little.
    """
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
    attach_model(model, memory)
    if average is not None:
        attach_average(model, average, memory)
    attach_state(optimizer, memory)
    return memory


def attach_model(model: Transformer, memory: SharedMemory) -> None:
    """Make the weights of the model views of the shared ones."""
    _attach(list(model.parameters()), memory.weights)


def attach_state(optimizer: torch.optim.Optimizer, memory: SharedMemory) -> None:
    """Make the state of the optimiser views of the shared one."""
    for dtype, tensors in _state(optimizer).items():
        _attach(tensors, memory.state[dtype])


def attach_average(model: Transformer, average: MovingAverage, memory: SharedMemory) -> None:
    """Make the moving average views of the shared one."""
    assert memory.average is not None
    _attach(_averages(model, average), memory.average)


def views(vector: Tensor, like: Iterable[Tensor]) -> list[Tensor]:
    """Return consecutive parts of a vector, in the shapes of these tensors."""
    tensors = list(like)
    parts = torch.split(vector, [tensor.numel() for tensor in tensors])
    return [part.view(tensor.shape) for part, tensor in zip(parts, tensors, strict=True)]


def _attach(tensors: Sequence[Tensor], vector: Tensor) -> None:
    """Make tensors views of a vector that holds their values one after the other."""
    for tensor, view in zip(tensors, views(vector, tensors), strict=True):
        tensor.data = view


def _concatenated(tensors: Sequence[Tensor]) -> Tensor:
    """Return one vector in shared memory with the values of all tensors.

    Raises:
        NoSharedMemoryError: there is none, or too little.
    """
    vector = torch.cat([tensor.flatten() for tensor in tensors])
    try:
        vector.untyped_storage().share_memory_()
    except (RuntimeError, OSError) as error:
        raise NoSharedMemoryError(str(error).splitlines()[0]) from error
    return vector


def _state(optimizer: torch.optim.Optimizer) -> dict[torch.dtype, list[Tensor]]:
    """Return the optimiser's state by dtype, in the same order in all processes; step counters come last."""
    fill_state(optimizer)
    every = [
        tensor
        for group in optimizer.param_groups
        for weight in group["params"]
        for _, tensor in sorted(optimizer.state[weight].items())
    ]
    by_dtype: dict[torch.dtype, list[Tensor]] = {}
    for tensor in sorted(every, key=lambda tensor: tensor.dim() == 0):  # first the moments, for alignment
        by_dtype.setdefault(tensor.dtype, []).append(tensor)
    return by_dtype


def _averages(model: Transformer, average: MovingAverage) -> list[Tensor]:
    """Return the moving averages in the order of the model's parameters."""
    return [average.weights[name] for name, _ in model.named_parameters()]
