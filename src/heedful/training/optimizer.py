"""Adam, with the paper's constants (5.3); or Muon for the matrices of the layers, and Adam for the rest."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from heedful.config import OptimizerConfig
from heedful.ops.lora import inner_linear_layers
from heedful.precision import TrainingPrecision
from heedful.training.muon import Muon, num_multiplications

Groups = list[dict[str, Any]]

_MULTIPLICATIONS = 25  # per Adam update of one number, in equal time: 0.03 and 0.8 ns on an AVX2 core


def build_optimizer(
    model: nn.Module, config: OptimizerConfig, *, precision: TrainingPrecision
) -> torch.optim.Optimizer:
    """Return the optimiser of the trained weights; each step sets its learning rate.

    - adam: all weights, in one fused kernel (5.3).
    - muon: `Muon` for the matrices of the linear layers in encoder and decoder; Adam for embeddings,
      pre-softmax matrix, positions, norms and biases.

    Weight decay is decoupled (AdamW) and excludes biases and norms.

    Args:
        model: whose weights are trained.
        config: the optimiser's settings.
        precision: of the matrix multiplications in Muon; Adam has none.
    """
    trained = [p for p in model.parameters() if p.requires_grad]
    layers = inner_linear_layers(model).values() if config.name == "muon" else ()
    inner = {id(p) for layer in layers for p in layer.parameters(recurse=False)}
    matrices = [p for p in trained if p.dim() > 1]
    groups: Groups = [
        {"params": [p for p in matrices if id(p) not in inner], "weight_decay": config.weight_decay},
        {"params": [p for p in trained if p.dim() <= 1], "weight_decay": 0.0},
    ]
    for group in groups:
        group |= {"lr": 0.0, "betas": (config.beta1, config.beta2), "eps": config.eps}
    if config.name == "adam":
        kind = torch.optim.AdamW if config.weight_decay else torch.optim.Adam
        return kind(groups, fused=True)
    orthogonal = {
        "params": [p for p in matrices if id(p) in inner],
        "weight_decay": config.weight_decay,
        "lr": 0.0,
        "momentum": 0.95,
        "precision": precision,
    }
    return MuonAndAdam([orthogonal, *groups])


class MuonAndAdam(torch.optim.Optimizer):
    """Muon for the groups that have a momentum, torch's AdamW for those that have betas.

    Groups and state have torch's usual form, so saving, loading and sharing work as for any optimiser.
    """

    def __init__(self, groups: Groups) -> None:
        muon, adam = _muons_and_adams(groups)
        self._parts = Muon(muon), torch.optim.AdamW(adam, fused=True)  # they fill in defaults
        super().__init__(groups, {})

    def step(self, closure: None = None) -> None:  # type: ignore[override]
        """Update all weights once."""
        for part, groups in zip(self._parts, _muons_and_adams(self.param_groups), strict=True):
            part.param_groups, part.state = groups, self.state  # loading may have replaced them
            part.step(closure)


def _muons_and_adams(groups: Groups) -> tuple[Groups, Groups]:
    return [g for g in groups if "momentum" in g], [g for g in groups if "betas" in g]


def load_optimizer_state(optimizer: torch.optim.Optimizer, state: dict[str, Any]) -> None:
    """Load the state of each weight from a checkpoint; the settings stay those of the configuration."""
    settings = [{name: group[name] for name in group if name != "params"} for group in optimizer.param_groups]
    optimizer.load_state_dict(state)
    for group, own in zip(optimizer.param_groups, settings, strict=True):
        group.update(own | {"lr": group["lr"]})


def optimizer_of_shard(optimizer: torch.optim.Optimizer, shard: Sequence[Tensor]) -> torch.optim.Optimizer:
    """Return an optimiser over some of another's weights, with the same settings and shared state."""
    chosen = {id(weight) for weight in shard}
    groups = [
        {**group, "params": [weight for weight in group["params"] if id(weight) in chosen]}
        for group in optimizer.param_groups
    ]
    kind: Callable[[Groups], torch.optim.Optimizer] = type(optimizer)
    part = kind(groups)
    for weight in shard:
        part.state[weight] = optimizer.state[weight]
    return part


def fill_state(optimizer: torch.optim.Optimizer) -> None:
    """Initialise the state of each weight that has none, as its first step would.

    The moments are an expanded scalar zero, which takes no memory until they get a buffer.
    """
    for group in optimizer.param_groups:
        for weight in group["params"]:
            if not optimizer.state[weight]:
                moments = ("exp_avg", "exp_avg_sq") if "betas" in group else ("momentum_buffer",)
                for name in moments:
                    optimizer.state[weight][name] = weight.new_zeros(()).expand(weight.shape)
                if "betas" in group:
                    optimizer.state[weight]["step"] = torch.zeros((), device=weight.device)


def update_costs(optimizer: torch.optim.Optimizer) -> dict[Tensor, int]:
    """Return the cost of updating each weight, in units of Adam updating one number."""
    return {
        weight: weight.numel()
        + (num_multiplications(weight, group["precision"]) // _MULTIPLICATIONS if "momentum" in group else 0)
        for group in optimizer.param_groups
        for weight in group["params"]
    }
