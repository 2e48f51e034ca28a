"""Adam as 5.3 has it, against its formulas written out."""

import math

import pytest
import torch
from torch import nn

from heedful.config import OptimizerConfig
from heedful.training.optimizer import build_optimizer


@pytest.mark.parametrize("weight_decay", [0.0, 0.1])
def test_the_steps_are_those_of_adam_written_out(weight_decay: float) -> None:
    torch.manual_seed(71)
    model = nn.Linear(1, 1).double()
    config = OptimizerConfig(weight_decay=weight_decay)
    optimizer = build_optimizer(model, config)
    beta1, beta2, eps = config.beta1, config.beta2, config.eps
    wanted = {"weight": model.weight.item(), "bias": model.bias.item()}
    moments = {name: (0.0, 0.0) for name in wanted}
    for step in range(1, 6):
        rate = 0.01 * step  # another one at each step
        for group in optimizer.param_groups:
            group["lr"] = rate
        gradients = {"weight": math.sin(step), "bias": 1e-8 * step}
        for name, parameter in model.named_parameters():
            parameter.grad = torch.full_like(parameter, gradients[name])
        optimizer.step()
        for name, g in gradients.items():
            m, v = moments[name]
            m, v = beta1 * m + (1 - beta1) * g, beta2 * v + (1 - beta2) * g * g
            moments[name] = m, v
            decay = weight_decay if name == "weight" else 0.0
            wanted[name] -= rate * decay * wanted[name]  # decoupled, and never of a bias
            m_hat, v_hat = m / (1 - beta1**step), v / (1 - beta2**step)
            wanted[name] -= rate * m_hat / (math.sqrt(v_hat) + eps)
        assert model.weight.item() == pytest.approx(wanted["weight"], rel=1e-12)
        assert model.bias.item() == pytest.approx(wanted["bias"], rel=1e-12)


def test_every_weight_is_in_exactly_one_group() -> None:
    model = nn.Sequential(nn.Embedding(5, 3), nn.LayerNorm(3), nn.Linear(3, 5))
    model[2].weight = model[0].weight
    optimizer = build_optimizer(model, OptimizerConfig(weight_decay=0.1))
    found = [id(parameter) for group in optimizer.param_groups for parameter in group["params"]]
    assert sorted(found) == sorted(id(parameter) for parameter in model.parameters())
