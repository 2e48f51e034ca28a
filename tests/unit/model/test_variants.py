"""What the paper does not have: rotary positions, linear and bucketed biases, RMS norms, gates."""

import math
from typing import Any

import pytest
import torch
from option_models import option_config
from tolerances import FLOAT32, FLOAT64, assert_apart, assert_close, close, format_of
from torch import Tensor, nn
from torch.nn.functional import rms_norm
from transformers import LlamaConfig, T5Config
from transformers.activations import ACT2FN
from transformers.models.bloom.modeling_bloom import build_alibi_tensor
from transformers.models.llama.modeling_llama import (
    LlamaMLP,
    LlamaRMSNorm,
    LlamaRotaryEmbedding,
    apply_rotary_pos_emb,
)
from transformers.models.t5.modeling_t5 import T5Attention, T5DenseActDense, T5DenseGatedActDense, T5LayerNorm

from heedful.model.attention import GrowingCache, MultiHeadAttention, causal_mask
from heedful.model.layers import ACTIVATIONS, FeedForward
from heedful.model.transformer import Transformer
from heedful.model.variants import (
    SSRU,
    BucketedBiases,
    GatedFeedForward,
    LinearBiases,
    RotaryPositions,
    alibi_slopes,
)

B, H, L = 2, 3, 7
SIZES = pytest.mark.parametrize("d_k", [2, 6, 64])


def heads(d_k: int, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(B, H, L, d_k, dtype=dtype, generator=torch.Generator().manual_seed(79))


def turned(x: Tensor, start: int) -> Tensor:
    """The formula in complex numbers: pair i is a number of the plane, times e^(i * position * theta_i)."""
    first, second = x.double().chunk(2, dim=-1)
    theta = [10_000.0 ** (-i / first.shape[-1]) for i in range(first.shape[-1])]
    angles = torch.tensor(
        [[position * angle for angle in theta] for position in range(start, start + L)], dtype=torch.float64
    )
    product = torch.complex(first, second) * torch.exp(1j * angles)
    return torch.cat([product.real, product.imag], dim=-1)


@SIZES
@pytest.mark.parametrize("start", [0, 3, 4001])
def test_rotation_is_a_product_of_complex_numbers(d_k: int, start: int) -> None:
    x = heads(d_k)
    assert_close(RotaryPositions().rotate(x, start), turned(x, start), FLOAT64.ELEMENT.at(start + L))


@SIZES
@pytest.mark.parametrize("start", [0, 29])
def test_rotation_is_llamas(d_k: int, start: int) -> None:
    config = LlamaConfig(hidden_size=H * d_k, num_attention_heads=H, head_dim=d_k)
    queries, keys = heads(d_k, torch.float32), heads(d_k, torch.float32).flip(0)
    cos, sin = LlamaRotaryEmbedding(config)(queries, torch.arange(start, start + L)[None])
    wanted = apply_rotary_pos_emb(queries, keys, cos, sin)
    for x, other in zip((queries, keys), wanted, strict=True):
        assert_close(RotaryPositions().rotate(x, start), other, FLOAT32.ELEMENT.at(start + L))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_angles_far_away_are_as_exact_in_half_precision_as_near(dtype: torch.dtype) -> None:
    """An angle of 4,001 in bfloat16 would be off by several turns."""
    x = heads(64).to(dtype)
    found = RotaryPositions().rotate(x, 4001)
    assert found.dtype == dtype
    assert_close(found.double(), turned(x, 4001), format_of(dtype).ELEMENT.at(float(x.abs().max())))


HEADS = [1, 2, 3, 5, 6, 7, 8, 12, 16, 20, 31, 32, 71, 112]
LIKE = torch.zeros(1, dtype=torch.float64)


@pytest.mark.parametrize("num_heads", HEADS)
def test_slopes_are_blooms(num_heads: int) -> None:
    """Bloom's tensor is the slope times the position of the key: at position 1, the slope."""
    bloom = build_alibi_tensor(torch.ones(1, 2), num_heads, torch.float32)
    assert_close(torch.tensor(alibi_slopes(num_heads)), bloom[:, 0, 1], FLOAT32.ELEMENT)
    assert alibi_slopes(8) == [1 / 2, 1 / 4, 1 / 8, 1 / 16, 1 / 32, 1 / 64, 1 / 128, 1 / 256]  # the paper's


@pytest.mark.parametrize("start", [0, 4])
def test_the_bias_is_minus_slope_times_distance_both_ways(start: int) -> None:
    biases = LinearBiases(6).bias(start, 3, 11, LIKE)
    assert biases.shape == (6, 3, 11)
    assert biases.dtype == LIKE.dtype
    for head, slope in enumerate(alibi_slopes(6)):
        for t in range(3):
            for s in range(11):
                assert biases[head, t, s].item() == close(-slope * abs(start + t - s), FLOAT64.ELEMENT)


def test_causal_attention_with_biases_equals_blooms_which_count_from_the_left() -> None:
    """A softmax is the same with slope * key and with -slope * (query - key)."""
    torch.manual_seed(83)
    attention = MultiHeadAttention(18, 6, positions=LinearBiases(6)).double()
    x = torch.randn(2, 7, 18, dtype=torch.float64)
    queries, keys, values = (
        part(x).view(2, 7, 6, 3).transpose(1, 2) for part in (attention.query, attention.key, attention.value)
    )
    alibi = build_alibi_tensor(torch.ones(2, 7), 6, torch.float64).view(2, 6, 1, 7)
    scores = (queries @ keys.mT / 3**0.5 + alibi).masked_fill(~causal_mask(7), float("-inf"))
    wanted = attention.output((scores.softmax(-1) @ values).transpose(1, 2).reshape(2, 7, 18))
    assert_close(attention(x, x, causal_mask(7)), wanted, FLOAT64.ROW)
    unbiased = MultiHeadAttention(18, 6).double()
    unbiased.load_state_dict(attention.state_dict())
    assert_apart(unbiased(x, x, causal_mask(7)), wanted, FLOAT64.ROW)


def test_distances_are_exact_where_half_precision_cannot_count_them() -> None:
    """A distance of 1,001 is no bfloat16; its product with a slope is rounded once."""
    found = LinearBiases(8).bias(1001, 1, 1, torch.zeros(1, dtype=torch.bfloat16))
    wanted = torch.tensor([-1001 * slope for slope in alibi_slopes(8)]).bfloat16()
    assert torch.equal(found[:, 0, 0], wanted)


BUCKETS = pytest.mark.parametrize(
    ("num_buckets", "max_distance"),
    [(32, 128), (4, 3), (5, 20), (7, 11), (8, 16), (8, 1000), (32, 17), (64, 256), (50, 101), (320, 800)],
)
BOTH = pytest.mark.parametrize("bidirectional", [True, False])
DISTANCES = torch.arange(-1000, 1001)


def biases(num_heads: int = 3, **settings: Any) -> BucketedBiases:  # noqa: ANN401
    part = BucketedBiases(num_heads, **{"num_buckets": 8, "max_distance": 11, **settings}).double()
    torch.nn.init.normal_(part.weight, generator=torch.Generator().manual_seed(89))
    return part


@BUCKETS
@BOTH
def test_buckets_are_t5s(num_buckets: int, max_distance: int, bidirectional: bool) -> None:
    part = BucketedBiases(1, num_buckets=num_buckets, max_distance=max_distance, bidirectional=bidirectional)
    wanted = T5Attention._relative_position_bucket(DISTANCES, bidirectional, num_buckets, max_distance)
    found = part.buckets(DISTANCES)
    assert torch.equal(found, wanted)
    assert found.dtype == torch.int64


@BOTH
@pytest.mark.parametrize("start", [0, 13])
def test_the_bias_is_t5s(bidirectional: bool, start: int) -> None:
    config = T5Config(
        num_heads=3, is_decoder=not bidirectional, relative_attention_num_buckets=8,
        relative_attention_max_distance=11,
    )  # fmt: skip
    theirs = T5Attention(config, has_relative_attention_bias=True, layer_idx=0).double()
    ours = biases(bidirectional=bidirectional)
    with torch.no_grad():
        theirs.relative_attention_bias.weight.copy_(ours.weight)
    found = ours.bias(start, 5, 23, ours.weight)
    assert torch.equal(found, theirs.compute_bias(5, 23, past_seen_tokens=start)[0])


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
def test_the_bias_has_the_type_of_what_it_is_added_to(dtype: torch.dtype) -> None:
    """Under autocast the weights stay in float32, and get their gradients in it."""
    part = biases(bidirectional=True).float()
    found = part.bias(0, 3, 5, torch.zeros(1, dtype=dtype))
    assert found.dtype == dtype
    found.float().sum().backward()
    assert part.weight.grad is not None
    assert part.weight.grad.dtype == torch.float32
    assert part.weight.grad.sum() == 3 * 5 * 3


EPS = 0.01
NORMS = {"norm_kind": "rms", "embedding_norm": True, "final_norm": True, "layer_norm_eps": EPS}


def norms(norm: str = "post") -> dict[str, nn.Module]:
    """Every norm of a model, with gains that are not 1."""
    torch.manual_seed(103)
    model = Transformer.from_config(option_config(norm=norm, **NORMS))
    found = {name: part for name, part in model.named_modules() if name.endswith("norm")}
    for part in found.values():
        nn.init.normal_(part.get_parameter("weight"))
    return found


@pytest.mark.parametrize("norm", ["post", "pre"])
def test_every_norm_of_the_model_becomes_one(norm: str) -> None:
    found = norms(norm)
    assert len(found) == 2 + 2 * 2 + 2 * 3 + 2  # embeddings, layers, ends of the stacks
    assert all(isinstance(part, nn.RMSNorm) and part.eps == EPS for part in found.values())
    assert {name for part in found.values() for name, _ in part.named_parameters()} == {"weight"}


@pytest.mark.parametrize("other", ["torch", "formula", "T5", "Llama"])
def test_a_norm_equals_others_forward_and_backward(other: str) -> None:
    part = next(iter(norms().values()))
    gain = part.get_parameter("weight")
    theirs = {
        "torch": lambda x: rms_norm(x, (20,), gain, EPS),
        "formula": lambda x: gain * x / (x.pow(2).sum(-1, keepdim=True) / 20 + EPS).sqrt(),
    }  # fmt: skip
    for name, kind in (("T5", T5LayerNorm), ("Llama", LlamaRMSNorm)):
        theirs[name] = kind(20, eps=EPS)
        theirs[name].weight = gain
    x = (3 * torch.randn(2, 3, 20) + 1).requires_grad_()
    found, wanted = part(x), theirs[other](x)
    assert_close(found, wanted, FLOAT32.MODEL)
    coefficients = torch.randn_like(found)
    for one, two in zip(
        torch.autograd.grad(found, (x, gain), coefficients),
        torch.autograd.grad(wanted, (x, gain), coefficients),
        strict=True,
    ):
        assert_close(one, two, FLOAT32.MODEL)


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
        assert_close(ACTIVATIONS[name](X), wanted, FLOAT64.ELEMENT)
        assert_close(ACT2FN[THEIRS[name]](X), wanted, FLOAT64.ELEMENT)
    assert_apart(ACTIVATIONS["gelu"](X), ACTIVATIONS["gelu_tanh"](X), FLOAT64.ROW)


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
    assert_close(found, wanted, FLOAT64.ROW)
    coefficients = torch.randn_like(found)
    (found * coefficients).sum().backward()
    (wanted * coefficients).sum().backward()
    assert_close(x.grad, other.grad, FLOAT64.ROW)
    for name in same:
        mine, yours = ours.get_parameter(f"{name}.weight"), theirs.get_parameter(f"{same[name]}.weight")
        assert_close(mine.grad, yours.grad, FLOAT64.ROW)


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
    assert_close(ours(x), theirs(x), FLOAT32.ROW)


def test_dropout_stands_after_the_gate() -> None:
    network = GatedFeedForward(D, D_FF, activation="swish", dropout=0.5)
    torch.nn.init.constant_(network.outer.bias, 3.0)
    network.dropout.forward = torch.zeros_like  # type: ignore[method-assign]
    assert torch.equal(network(torch.randn(2, 3, D)), torch.full((2, 3, D), 3.0))


@pytest.mark.parametrize("length", [1, 2, 13, 64])
def test_a_recurrent_unit_is_the_recurrence_step_by_step(length: int) -> None:
    torch.manual_seed(5)
    unit, x = SSRU(6), torch.randn(3, length, 6)
    state, outputs = torch.zeros(3, 6), []
    for t in range(length):
        forget = torch.sigmoid(x[:, t] @ unit.forget.weight.T + unit.forget.bias)
        state = forget * state + (1 - forget) * (x[:, t] @ unit.input.weight.T)
        outputs.append(torch.relu(state))
    expected = torch.stack(outputs, dim=1)
    assert_close(unit(x, x, None), expected, FLOAT32.ROW)
    cache = GrowingCache()
    parts = [unit(part, part, None, cache=cache) for part in (x[:, :1], x[:, 1:3], x[:, 3:]) if part.numel()]
    assert_close(torch.cat(parts, dim=1), expected, FLOAT32.ROW)
    assert cache.tensors[0].shape == (3, 1, 6)


def test_a_model_with_recurrent_units_sees_no_later_token_and_learns() -> None:
    torch.manual_seed(7)
    model = Transformer.from_config(option_config(decoder_unit="ssru", positions="sinusoidal"))
    src, tgt = torch.randint(5, 19, (2, 5)), torch.randint(5, 23, (2, 9))
    other = torch.cat([tgt[:, :6], tgt[:, 6:] % 17 + 5], dim=1)
    assert_close(model(src, tgt)[:, :6], model(src, other)[:, :6], FLOAT32.MODEL)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    losses = []
    for _ in range(30):
        loss = torch.nn.functional.cross_entropy(model(src, tgt[:, :-1]).flatten(0, 1), tgt[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.5 * losses[0]
