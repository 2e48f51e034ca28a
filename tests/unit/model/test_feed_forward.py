"""Activations and gates of the feed-forward network that the paper does not have."""

import math

import pytest
import torch
from torch import Tensor
from torch.autograd import gradcheck
from transformers import T5Config
from transformers.activations import ACT2FN
from transformers.models.llama.modeling_llama import LlamaConfig, LlamaMLP
from transformers.models.t5.modeling_t5 import T5DenseActDense, T5DenseGatedActDense

from heedful.model.layers import ACTIVATIONS, FeedForward
from heedful.model.variants import GatedFeedForward

D, D_FF = 7, 11
X = torch.linspace(-6, 6, 401, dtype=torch.float64)
FORMULAS = {
    "relu": lambda x: max(0.0, x),
    "gelu": lambda x: x * 0.5 * (1 + math.erf(x / math.sqrt(2))),
    "gelu_tanh": lambda x: x * 0.5 * (1 + math.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))),
    "swish": lambda x: x / (1 + math.exp(-x)),
}
THEIRS = {"relu": "relu", "gelu": "gelu", "gelu_tanh": "gelu_new", "swish": "silu"}


def states() -> tuple[Tensor, Tensor]:
    torch.manual_seed(101)
    x = torch.randn(2, 3, D, dtype=torch.float64)
    return x.requires_grad_(), x.detach().clone().requires_grad_()


def test_every_activation_has_its_formula() -> None:
    assert ACTIVATIONS.keys() == FORMULAS.keys()
    for name, formula in FORMULAS.items():
        wanted = torch.tensor([formula(x) for x in X.tolist()], dtype=torch.float64)
        torch.testing.assert_close(ACTIVATIONS[name](X), wanted, rtol=0.0, atol=1e-12)
        torch.testing.assert_close(ACT2FN[THEIRS[name]](X), wanted, rtol=0.0, atol=1e-12)
    assert (ACTIVATIONS["gelu"](X) - ACTIVATIONS["gelu_tanh"](X)).abs().max() > 1e-4


@pytest.mark.parametrize("activation", FORMULAS)
@pytest.mark.parametrize("gated", [False, True])
def test_a_network_without_biases_equals_t5s_forward_and_backward(activation: str, gated: bool) -> None:
    config = T5Config(d_model=D, d_ff=D_FF, feed_forward_proj=THEIRS[activation])
    theirs = (T5DenseGatedActDense if gated else T5DenseActDense)(config).double().eval()
    ours = (GatedFeedForward if gated else FeedForward)(D, D_FF, activation=activation, bias=False).double()
    same = {"inner": "wi_1", "gate": "wi_0", "outer": "wo"} if gated else {"inner": "wi", "outer": "wo"}
    assert {f"{name}.weight" for name in same} == dict(ours.named_parameters()).keys()
    ours.load_state_dict({f"{name}.weight": theirs.get_parameter(f"{same[name]}.weight") for name in same})
    x, other = states()
    found, wanted = ours(x), theirs(other)
    torch.testing.assert_close(found, wanted)
    coefficients = torch.randn_like(found)
    (found * coefficients).sum().backward()
    (wanted * coefficients).sum().backward()
    torch.testing.assert_close(x.grad, other.grad)
    for name in same:
        mine, yours = ours.get_parameter(f"{name}.weight"), theirs.get_parameter(f"{same[name]}.weight")
        torch.testing.assert_close(mine.grad, yours.grad)


def test_a_gated_network_with_biases_equals_llamas() -> None:
    config = LlamaConfig(hidden_size=D, intermediate_size=D_FF, num_attention_heads=D, mlp_bias=True)
    theirs = LlamaMLP(config).double()
    ours = GatedFeedForward(D, D_FF, activation="swish").double()
    same = {"inner": "up_proj", "gate": "gate_proj", "outer": "down_proj"}
    ours.load_state_dict({
        f"{name}.{kind}": theirs.get_parameter(f"{other}.{kind}")
        for name, other in same.items() for kind in ("weight", "bias")
    })  # fmt: skip
    x, _ = states()
    torch.testing.assert_close(ours(x), theirs(x))


@pytest.mark.parametrize("activation", ["gelu_tanh", "swish"])
def test_gradients_of_a_gated_network_are_those_of_finite_differences(activation: str) -> None:
    network = GatedFeedForward(3, 2, activation=activation).double()
    assert gradcheck(network, (torch.randn(1, 2, 3, dtype=torch.float64, requires_grad=True),))


def test_dropout_stands_after_the_gate() -> None:
    network = GatedFeedForward(D, D_FF, activation="swish", dropout=0.5)
    torch.nn.init.constant_(network.outer.bias, 3.0)
    network.dropout.forward = torch.zeros_like  # type: ignore[method-assign]
    assert torch.equal(network(torch.randn(2, 3, D)), torch.full((2, 3, D), 3.0))
