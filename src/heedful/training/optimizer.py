"""Adam, with the paper's constants (5.3)."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from heedful.config import OptimizerConfig


def build_optimizer(model: nn.Module, config: OptimizerConfig) -> torch.optim.Optimizer:
    """Return Adam over the weights that are trained, in one fused kernel; each step sets its learning rate.

    Where weight decay is asked for it is decoupled (AdamW) and spares biases and norms.
    """
    trained = [p for p in model.parameters() if p.requires_grad]
    matrices = [p for p in trained if p.dim() > 1]
    vectors = [p for p in trained if p.dim() <= 1]
    groups = [
        {"params": matrices, "weight_decay": config.weight_decay},
        {"params": vectors, "weight_decay": 0.0},
    ]
    kind = torch.optim.AdamW if config.weight_decay else torch.optim.Adam
    return kind(groups, lr=0.0, betas=(config.beta1, config.beta2), eps=config.eps, fused=True)


def optimizer_of_share(optimizer: torch.optim.Optimizer, share: Sequence[Tensor]) -> torch.optim.Optimizer:
    """Return an optimiser over some of another's weights, of the same settings and with the same state."""
    chosen = {id(weight) for weight in share}
    groups = [
        {**group, "params": [weight for weight in group["params"] if id(weight) in chosen]}
        for group in optimizer.param_groups
    ]
    kind: Callable[..., torch.optim.Optimizer] = type(optimizer)
    part = kind([group for group in groups if group["params"]])
    for weight in share:
        part.state[weight] = optimizer.state[weight]
    return part
