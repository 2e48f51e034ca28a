"""Adam as 5.3 has it, against its formulas written out; Muon with it, against the two apart."""

import math
from typing import Any, Literal

import pytest
import torch
from fake_gpu import fake_gpu
from small_models import assert_same_weights, small_model
from tolerances import FLOAT64, close
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from heedful.settings.run import OptimizerConfig
from heedful.training.optimizer import (
    Muon,
    build_optimizer,
    num_multiplications,
    optimizer_of_shard,
    update_costs,
)
from heedful.training.parallel.shared_memory import partition_weights
from heedful.training.step import apply_gradients

MUON = OptimizerConfig(name="muon", weight_decay=0.1)
OPTIONS = {"positions": "relative", "relative_buckets": 4, "embedding_norm": True, "output_bias": True}


@pytest.mark.parametrize("weight_decay", [0.0, 0.1])
def test_the_steps_are_those_of_adam_written_out(weight_decay: float) -> None:
    torch.manual_seed(71)
    model = nn.Linear(1, 1).double()
    config = OptimizerConfig(weight_decay=weight_decay)
    optimizer = build_optimizer(model, config, precision="float32")
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
        assert model.weight.item() == close(wanted["weight"], FLOAT64.ROW)
        assert model.bias.item() == close(wanted["bias"], FLOAT64.ROW)


def test_every_weight_is_in_exactly_one_group() -> None:
    model = nn.Sequential(nn.Embedding(5, 3), nn.LayerNorm(3), nn.Linear(3, 5))
    model[2].weight = model[0].weight
    optimizer = build_optimizer(model, OptimizerConfig(weight_decay=0.1), precision="float32")
    found = [id(parameter) for group in optimizer.param_groups for parameter in group["params"]]
    assert sorted(found) == sorted(id(parameter) for parameter in model.parameters())


def set_gradients(model: nn.Module, step: int) -> None:
    torch.manual_seed(step)
    for weight in model.parameters():
        weight.grad = torch.randn_like(weight)


def hidden_matrices(model: nn.Module) -> list[Tensor]:
    """By their names: what is inside a layer, is a matrix, and is not the table of relative positions."""
    return [
        weight
        for name, weight in model.named_parameters()
        if ".layers." in name and name.endswith(".weight") and "norm" not in name and "position" not in name
    ]


@pytest.mark.parametrize("tied", ["all", "none"])
@pytest.mark.parametrize("weight_decay", [0.0, 0.1])
def test_muon_steps_the_matrices_of_the_layers_and_adam_the_rest(weight_decay: float, tied: str) -> None:
    ours, theirs = (small_model(tied=tied, d_ff=13, **OPTIONS) for _ in range(2))
    optimizer = build_optimizer(
        ours, OptimizerConfig(name="muon", weight_decay=weight_decay), precision="float32"
    )
    matrices = hidden_matrices(theirs)
    assert len(matrices) == 4 + 2 + 8 + 2
    others = [p for p in theirs.parameters() if all(p is not matrix for matrix in matrices)]
    shrunk, spared = [p for p in others if p.dim() > 1], [p for p in others if p.dim() == 1]
    assert len(shrunk) == {"all": 1, "none": 3}[tied] + 2  # and a table of distances in either stack
    adam = {"betas": (0.9, 0.98), "eps": 1e-9}
    muon = {"lr": 0.0, "momentum": 0.95, "weight_decay": weight_decay, "precision": "float32"}
    parts = (
        Muon([{"params": matrices} | muon]),
        torch.optim.AdamW(shrunk, weight_decay=weight_decay, fused=True, **adam),
        torch.optim.Adam(spared, fused=True, **adam),
    )
    for step in range(1, 5):
        for model in (ours, theirs):
            set_gradients(model, step)
        apply_gradients(optimizer, scale=1.0, learning_rate=0.01 * step)
        for part in parts:
            apply_gradients(part, scale=1.0, learning_rate=0.01 * step)
        assert_same_weights(ours, theirs)


def test_a_matrix_moves_by_muon_about_as_far_as_by_adam() -> None:
    moved = {}
    for name in ("adam", "muon"):
        model, before = small_model(d_model=64, d_ff=128), small_model(d_model=64, d_ff=128)
        optimizer = build_optimizer(
            model, OptimizerConfig.model_validate({"name": name}), precision="float32"
        )
        for step in range(1, 9):
            set_gradients(model, step)
            apply_gradients(optimizer, scale=1.0, learning_rate=0.01)
        pairs = zip(hidden_matrices(model), hidden_matrices(before), strict=True)
        moved[name] = [float((after - start).detach().pow(2).mean().sqrt()) for after, start in pairs]
    for by_adam, by_muon in zip(moved["adam"], moved["muon"], strict=True):
        assert 0.2 < by_muon / by_adam < 2.0


@pytest.mark.parametrize("config", [OptimizerConfig(), MUON], ids=["adam", "muon"])
def test_shares_together_take_the_step_of_the_whole(config: OptimizerConfig) -> None:
    whole, shared = small_model(), small_model()
    one, other = (
        build_optimizer(whole, config, precision="float32"),
        build_optimizer(shared, config, precision="float32"),
    )
    weights = list(shared.parameters())
    shares = [optimizer_of_shard(other, weights[start::3]) for start in range(2)]
    shares += [optimizer_of_shard(other, [weight]) for weight in weights[2::3]]
    for step in range(1, 4):
        set_gradients(whole, step)
        set_gradients(shared, step)
        apply_gradients(one, scale=0.5, learning_rate=0.01)
        for share in shares:
            apply_gradients(share, scale=0.5, learning_rate=0.01)
        assert_same_weights(whole, shared)


def test_what_muon_updates_is_partitioned_evenly() -> None:
    model = small_model(src_vocab_size=500, tgt_vocab_size=500, num_encoder_layers=4)
    weights = dict(model.named_parameters())
    for config in (OptimizerConfig(), MUON):
        optimizer = build_optimizer(model, config, precision="float32")
        shares = partition_weights(weights, optimizer, 3)
        assert sorted(name for share in shares for name in share) == sorted(weights)
        costs = update_costs(optimizer)
        loads = [sum(costs[weight] for weight in share.values()) for share in shares]
        if config is MUON:
            assert min(loads) > 0.8 * max(loads)
        else:  # the embedding alone is most of the work
            assert set(shares[0]) == {"encoder.embedding.tokens.weight"}


def test_the_cost_of_an_update_follows_the_size_of_the_matrix() -> None:
    model = small_model(d_model=64, d_ff=256, src_vocab_size=500, tgt_vocab_size=500)
    weights = dict(model.named_parameters())
    by_adam = update_costs(build_optimizer(model, OptimizerConfig(), precision="float32"))
    assert all(by_adam[weight] == weight.numel() for weight in weights.values())
    costs = update_costs(build_optimizer(model, MUON, precision="float32"))
    matrices = hidden_matrices(model)
    for weight in weights.values():
        is_muons = any(weight is matrix for matrix in matrices)
        multiplications = costs[weight] - weight.numel()
        assert multiplications == (num_multiplications(weight, "float32") // 25 if is_muons else 0)
    square, wide = (
        weights["encoder.layers.0.self_attention.query.weight"],
        weights["encoder.layers.0.feed_forward.inner.weight"],
    )
    assert wide.numel() == 4 * square.numel()
    assert costs[square] < costs[wide] < 4 * costs[square]


def test_frozen_matrices_are_not_muons_either() -> None:
    model = small_model()
    for matrix in hidden_matrices(model):
        matrix.requires_grad = False
    optimizer = build_optimizer(model, MUON, precision="float32")
    held = {id(weight) for group in optimizer.param_groups for weight in group["params"]}
    assert held == {id(weight) for weight in model.parameters() if weight.requires_grad}
    set_gradients(model, 1)
    apply_gradients(optimizer, scale=1.0, learning_rate=0.01)
    untouched = small_model()
    for after, before in zip(hidden_matrices(model), hidden_matrices(untouched), strict=True):
        assert torch.equal(after, before)


class Operations(TorchDispatchMode):
    """Notes the names of all operations."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:  # noqa: ANN401
        self.names.append(func.name())
        return func(*args, **kwargs or {})


@pytest.mark.parametrize("name", ["adam", "muon"])
@pytest.mark.parametrize("weight_decay", [0.0, 0.1])
def test_on_a_gpu_one_kernel_updates_all_weights_of_adam(
    name: Literal["adam", "muon"], weight_decay: float
) -> None:
    with fake_gpu():
        model = small_model().to("cuda")
        config = OptimizerConfig(name=name, weight_decay=weight_decay)
        optimizer = build_optimizer(model, config, precision="float32")
        for weight in model.parameters():
            weight.grad = torch.ones_like(weight)
        with Operations() as operations:
            apply_gradients(optimizer, scale=1.0, learning_rate=0.01)
    fused = [each for each in operations.names if "_fused_adam" in each]
    of_adam = [group for group in optimizer.param_groups if "betas" in group and group["params"]]
    assert len(fused) == len(of_adam) > 0
    assert not any("addcdiv" in each for each in operations.names)
