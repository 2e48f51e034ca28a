"""Partition the weights: which rank updates which."""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from heedful.model import Transformer
from heedful.training.optimizer import update_costs


def trained_weights(model: Transformer) -> dict[str, Tensor]:
    """Return the weights that training changes, by name."""
    return {name: weight for name, weight in model.named_parameters() if weight.requires_grad}


def partition_weights(
    trained: Mapping[str, Tensor], optimizer: torch.optim.Optimizer, size: int
) -> list[dict[str, Tensor]]:
    """Partition the weights greedily, the costliest to update first, each to the least loaded rank.

    Args:
        trained: weights by name.
        optimizer: of all of them.
        size: the number of ranks.

    Returns:
        For each rank, the weights that it updates.
    """
    costs = update_costs(optimizer)
    shards: list[dict[str, Tensor]] = [{} for _ in range(size)]
    loads = [0] * size
    for name, weight in sorted(trained.items(), key=lambda item: -costs[item[1]]):
        least = loads.index(min(loads))
        shards[least][name] = weight
        loads[least] += costs[weight]
    return shards


def names_sent_by(sender: int, shards: Sequence[Mapping[str, Tensor]]) -> list[str]:
    """Return the weights whose gradients a rank sends: those that other ranks update."""
    return [name for number, shard in enumerate(shards) if number != sender for name in shard]
