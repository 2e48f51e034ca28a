"""Which team trains: the one that torchrun started, several processes of this machine, or one alone."""

import torch
import torch.distributed as dist

from heedful.config import Config
from heedful.data import BatchSource
from heedful.model import Transformer
from heedful.training.averaging import MovingAverage
from heedful.training.distributed_team import DistributedTeam, in_team
from heedful.training.shared_team import SharedTeam
from heedful.training.team import Alone, Rank, Team, team_size


def gather_team(
    model: Transformer,
    source: BatchSource,
    config: Config,
    optimizer: torch.optim.Optimizer,
    average: MovingAverage | None,
) -> Team:
    """Return the team that takes the steps of a training, its processes started; close it in the end."""
    if in_team():
        return DistributedTeam(Rank(model, source, config, size=dist.get_world_size()), optimizer, average)
    size, threads = team_size(config, next(model.parameters()).device)
    rank = Rank(model, source, config, size=size)
    if size == 1:
        return Alone(rank, optimizer, average)
    return SharedTeam(rank, optimizer, average, threads=threads)
