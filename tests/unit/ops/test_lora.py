"""Low-rank adapters (Hu et al., 2021), in one layer and in a whole model."""

import copy

import pytest
import torch
from small_models import small_config
from tolerances import FLOAT64, assert_apart, assert_close, close, sampled
from torch import Tensor, nn

from heedful.model.transformer import Transformer
from heedful.ops.lora import AdaptedLinear, add_adapters, inner_linear_layers, merge_layers
from heedful.settings.run import LoraConfig

RANK, ALPHA, IN, OUT = 3, 5.0, 7, 11
ALL = ("query", "key", "value", "output", "inner", "outer")


def adapted_layer(dropout: float = 0.0, bias: bool = True) -> AdaptedLinear:
    """In float64; B is not zero any more."""
    torch.manual_seed(71)
    layer = AdaptedLinear(nn.Linear(IN, OUT, bias=bias).double(), rank=RANK, alpha=ALPHA, dropout=dropout)
    nn.init.normal_(layer.lora_b)
    return layer


def model_and_ids(targets: tuple[str, ...] = ALL) -> tuple[Transformer, Transformer, tuple[Tensor, Tensor]]:
    """A model in float64, itself with adapters that still do nothing, and ids (2, 5) and (2, 3)."""
    torch.manual_seed(73)
    base = Transformer.from_config(small_config(d_ff=13)).double().eval()
    adapted = copy.deepcopy(base)
    add_adapters(adapted, LoraConfig(rank=RANK, alpha=ALPHA, targets=targets))
    return base, adapted, (torch.randint(1, 11, (2, 5)), torch.randint(1, 11, (2, 3)))


def randomise(model: Transformer) -> None:
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if name.endswith("lora_b"):
                weight.normal_()


@pytest.mark.parametrize("bias", [True, False])
def test_a_layer_is_the_formula_written_out(bias: bool) -> None:
    layer = adapted_layer(bias=bias)
    x = torch.randn(2, IN, dtype=torch.float64)
    w, a, b = layer.weight.tolist(), layer.lora_a.tolist(), layer.lora_b.tolist()
    offset = layer.bias.tolist() if bias else [0.0] * OUT
    found = layer(x)
    for row in range(2):
        ax = [sum(a[r][i] * x[row, i].item() for i in range(IN)) for r in range(RANK)]
        for o in range(OUT):
            wx = sum(w[o][i] * x[row, i].item() for i in range(IN))
            bax = sum(b[o][r] * ax[r] for r in range(RANK))
            assert found[row, o].item() == close(wx + offset[o] + ALPHA / RANK * bax, FLOAT64.ROW)


def test_dropout_falls_on_the_adapter_alone_and_in_training_alone() -> None:
    layer = adapted_layer(dropout=0.5)
    plain = nn.functional.linear(x := torch.randn(2, IN, dtype=torch.float64), layer.weight, layer.bias)
    assert not torch.equal(layer(x), layer(x))
    assert torch.equal(layer.eval()(x), layer(x))
    nn.init.zeros_(layer.lora_b)
    assert torch.equal(layer.train()(x), plain)


def test_what_comes_out_of_a_is_as_large_as_what_goes_in() -> None:
    torch.manual_seed(79)
    layer = AdaptedLinear(nn.Linear(500, 3), rank=200, alpha=1.0, dropout=0.0)
    x = torch.randn(100, 500)
    assert (x @ layer.lora_a.T).std().item() == close(1.0, sampled(1.0, 100))


def test_a_model_begins_as_the_one_that_is_adapted() -> None:
    base, adapted, ids = model_and_ids()
    assert torch.equal(adapted(*ids), base(*ids))


def test_gradients_reach_the_adapters_alone_and_all_of_them() -> None:
    _, adapted, ids = model_and_ids()
    randomise(adapted)
    adapted(*ids).square().sum().backward()
    moved = {name for name, weight in adapted.named_parameters() if weight.grad is not None}
    assert moved == {
        f"{name}.{matrix}" for name in inner_linear_layers(adapted) for matrix in ("lora_a", "lora_b")
    }
    assert all(weight.grad.any() for weight in adapted.parameters() if weight.grad is not None)


def test_a_merged_model_computes_the_same_and_has_the_weights_of_a_plain_one() -> None:
    base, adapted, ids = model_and_ids()
    randomise(adapted)
    unmerged = adapted(*ids)
    assert_apart(unmerged, base(*ids), FLOAT64.MODEL)
    merge_layers(adapted)
    assert_close(adapted(*ids), unmerged, FLOAT64.MODEL)
    shapes = {name: weight.shape for name, weight in base.named_parameters()}
    assert {name: weight.shape for name, weight in adapted.named_parameters()} == shapes
    assert adapted.output.weight is adapted.encoder.embedding.tokens.weight


def test_only_targets_are_adapted_and_never_the_pre_softmax_matrix() -> None:
    _, adapted, _ = model_and_ids(("output", "value"))
    layers = {name for name, layer in adapted.named_modules() if isinstance(layer, AdaptedLinear)}
    attentions = ("encoder.layers.0.self", "decoder.layers.0.self", "decoder.layers.0.cross")
    assert layers == {f"{name}_attention.{last}" for name in attentions for last in ("output", "value")}
    assert type(adapted.output) is nn.Linear
