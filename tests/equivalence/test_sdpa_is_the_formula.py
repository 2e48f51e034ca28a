"""SDPA attention, as on a GPU, against the paper's formula, forward and backward, whatever the mask."""

import pytest
import torch
from option_models import OPTIONS, SRC_PAD, T, option_inputs, option_model
from tolerances import FLOAT32, FLOAT64, assert_close, close, largest, sampled
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from heedful.model.attention import MultiHeadAttention, attention_weights, causal_mask, padding_mask
from heedful.ops import use_fused_ops
from heedful.ops.attention import AttentionImplementation, attention_implementation, record_attention, sdpa

B, H, L, S, K, V = 2, 3, 5, 7, 11, 13


def random_mask(queries: int, keys: int) -> Tensor:
    """Half of all pairs, others for each head; some queries may look nowhere."""
    mask = torch.rand(B, H, queries, keys) < 0.5
    mask[0, 1, 2] = mask[0, 0, -1] = False
    return mask


def padding(*lengths: int) -> Tensor:
    return padding_mask((torch.arange(S) < torch.tensor(lengths)[:, None]).long(), 0)


def random_heads(queries: int, d_v: int = V, dtype: torch.dtype = torch.float64) -> list[Tensor]:
    shapes = (B, H, queries, K), (B, H, S, K), (B, H, S, d_v)
    return [torch.randn(shape, dtype=dtype, requires_grad=True) for shape in shapes]


def assert_equal_with_gradients(found: Tensor, wanted: Tensor, inputs: list[Tensor]) -> None:
    gradient = torch.randn_like(wanted)
    ours, theirs = (torch.autograd.grad(output, inputs, gradient) for output in (found, wanted))
    for one, other in zip((found, *ours), (wanted, *theirs), strict=True):
        assert_close(one, other, FLOAT64.ROW)


MASKS = {
    "none": lambda: None,
    "padding": lambda: padding(7, 3),
    "a sentence of nothing": lambda: padding(7, 0),
    "any": lambda: random_mask(L, S),
}


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("d_v", [K, V])
def test_sdpa_is_the_formula(mask: str, d_v: int) -> None:
    torch.manual_seed(61)
    allowed = MASKS[mask]()
    queries, keys, values = heads = random_heads(L, d_v)
    found = sdpa(*heads, allowed, causal=False, dropout=0.0)
    assert_equal_with_gradients(found, attention_weights(queries, keys, allowed) @ values, heads)


@pytest.mark.parametrize("d_v", [K, V])
def test_causal_sdpa_is_the_formula_with_its_mask(d_v: int) -> None:
    torch.manual_seed(63)
    queries, keys, values = heads = random_heads(S, d_v)
    found = sdpa(*heads, None, causal=True, dropout=0.0)
    assert_equal_with_gradients(found, attention_weights(queries, keys, causal_mask(S)) @ values, heads)


@pytest.mark.parametrize("backend", [SDPBackend.MATH, SDPBackend.FLASH_ATTENTION])
def test_a_query_without_a_key_gets_zeros_from_whichever_kernel_torch_takes(backend: SDPBackend) -> None:
    torch.manual_seed(73)
    heads = random_heads(L, K, torch.float32)
    with sdpa_kernel(backend):
        found = sdpa(*heads, random_mask(L, S), causal=False, dropout=0.0)
        gradients = torch.autograd.grad(found, heads, torch.randn_like(found))
    assert all(bool(each.isfinite().all()) for each in (found, *gradients))
    for each in (found, gradients[0]):
        assert not each[0, 1, 2].any()
        assert not each[0, 0, -1].any()
        assert each[1].any()


def test_dropped_weights_keep_their_mean() -> None:
    """Values of one make each output a sum of weights: 1 on average, no more 1 where some are dropped."""
    torch.manual_seed(83)
    queries, keys = torch.randn(1, 1, 400, K), torch.randn(1, 1, 300, K) / K**0.5
    sums = sdpa(queries, keys, torch.ones(1, 1, 300, K), None, causal=False, dropout=0.5)
    deviation = float(sums[..., 0].std())
    assert deviation > 0.03
    assert float(sums[..., 0].mean()) == close(1.0, sampled(deviation, 400))


@pytest.mark.parametrize("option", ["paper", *OPTIONS])
def test_a_model_computes_the_same_by_sdpa_and_eagerly(option: str) -> None:
    """With every option: those that put a bias on the scores stay with the formula."""
    model = option_model(**OPTIONS.get(option, {}))
    src, tgt_in = option_inputs()
    src[1] = SRC_PAD  # a sentence of nothing
    outputs = []
    implementations: list[AttentionImplementation] = ["eager", "sdpa"]
    for implementation in implementations:
        with attention_implementation(model, implementation):
            cache = model.start_cache(model.encode(src))
            steps = [model.decode_step(tgt_in[:, t], cache) for t in range(T)]
            outputs.append([model(src, tgt_in), torch.stack(steps, dim=1)])
    weights = list(model.parameters())
    assert_close(outputs[1][1], outputs[0][1], FLOAT64.MODEL.at(largest(outputs[0][1])))
    gradient = torch.randn_like(outputs[0][0])
    gradients = [torch.autograd.grad(each[0], weights, gradient, allow_unused=True) for each in outputs]
    scale = largest(*gradients[0])
    for one, other in zip((outputs[1][0], *gradients[1]), (outputs[0][0], *gradients[0]), strict=True):
        assert_close(one, other, FLOAT64.MODEL.at(scale))


@pytest.mark.parametrize("fused", [False, True])
def test_only_sdpa_makes_no_weights(fused: bool) -> None:
    """A CPU makes them by itself; recording has them made, and then all is as before."""
    model = option_model()
    if fused:
        use_fused_ops(model, kernels=True)
    attention = model.get_submodule("decoder.layers.1.self_attention")
    assert isinstance(attention, MultiHeadAttention)
    heard: list[Tensor] = []
    usual = attention.attention
    attention.attention.dropout.register_forward_pre_hook(lambda _, inputs: heard.append(inputs[0]))
    model(*option_inputs())
    assert len(heard) == 1
    with attention_implementation(model, "sdpa"):
        model(*option_inputs())
        assert len(heard) == 1
        with record_attention(model) as recorder:
            model(*option_inputs())
        assert len(recorder.maps) == 6
        assert len(heard) == 2
        model(*option_inputs())
    assert len(heard) == 2
    assert attention.attention is usual


def test_sdpa_drops_weights_in_training_and_none_in_evaluation() -> None:
    torch.manual_seed(89)
    attention, x = MultiHeadAttention(24, 4, dropout=0.5), torch.randn(B, S, 24)
    with attention_implementation(attention, "sdpa"):
        one, other = attention(x, x, padding(7, 3)), attention(x, x, padding(7, 3))
        assert not torch.equal(one, other)
        attention.eval()
        assert_close(attention(x, x, None), attention(x, x, None), FLOAT32.ROW)
        found = attention(x, x, None, causal=True)
    assert_close(found, attention(x, x, causal_mask(S)), FLOAT32.ROW)
