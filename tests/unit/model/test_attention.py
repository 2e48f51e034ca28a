"""Masks keep their promise in every precision. Values: tests/equivalence."""

import pytest
import torch
from tolerances import FLOAT32, FLOAT64, assert_close, format_of
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention
from transformers import LlamaConfig
from transformers.models.llama.modeling_llama import LlamaAttention, LlamaRotaryEmbedding

from heedful.model.attention import MultiHeadAttention, attention_weights, causal_mask, padding_mask
from heedful.model.variants import RotaryPositions

B, H, T, S, K = 2, 3, 5, 7, 11
DTYPES = pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])


def some_mask() -> torch.Tensor:
    """Two positions of padding in the second sentence; its query 3 may look nowhere."""
    mask = torch.ones(B, 1, T, S, dtype=torch.bool)
    mask[1, :, :, 5:] = False
    mask[1, :, 3] = False
    return mask


@DTYPES
@pytest.mark.parametrize("size", [1.0, 30.0])
def test_masked_keys_get_no_weight_and_the_rest_sums_to_one_in_every_precision(
    dtype: torch.dtype, size: float
) -> None:
    torch.manual_seed(37)
    queries, keys, mask = size * torch.randn(B, H, T, K), torch.randn(B, H, S, K), some_mask()
    weights = attention_weights(queries.to(dtype), keys.to(dtype), mask)
    assert weights.dtype == dtype
    assert bool(weights.isfinite().all())
    assert float(weights[~mask.expand_as(weights)].abs().max()) == 0.0
    sums = weights.double().sum(-1)
    wanted = mask.any(-1).expand_as(sums).double()
    assert_close(sums, wanted, format_of(dtype).ROW)


@DTYPES
def test_masked_values_and_keys_get_no_gradient_in_every_precision(dtype: torch.dtype) -> None:
    torch.manual_seed(41)
    leaves = [torch.randn(B, H, L, K).to(dtype).requires_grad_() for L in (T, S, S)]
    queries, keys, values = leaves
    (attention_weights(queries, keys, some_mask()) @ values).float().pow(2).sum().backward()
    for leaf in leaves:
        assert leaf.grad is not None
        assert bool(leaf.grad.isfinite().all())
        assert float(leaf.grad.abs().max()) > 0.0
    assert keys.grad is not None
    assert values.grad is not None
    assert queries.grad is not None
    assert float(keys.grad[1, :, 5:].abs().max()) == 0.0
    assert float(values.grad[1, :, 5:].abs().max()) == 0.0
    assert float(queries.grad[1, :, 3].abs().max()) == 0.0


@DTYPES
def test_a_row_with_no_allowed_key_gives_zeros_forward_and_backward(dtype: torch.dtype) -> None:
    leaves = [torch.randn(B, H, L, K).to(dtype).requires_grad_() for L in (T, S, S)]
    queries, keys, values = leaves
    heads = attention_weights(queries, keys, torch.zeros(1, 1, 1, S, dtype=torch.bool)) @ values
    heads.sum().backward()
    assert float(heads.detach().abs().max()) == 0.0
    for leaf in leaves:
        assert leaf.grad is not None
        assert leaf.grad.abs().max() == 0.0  # and so no NaN


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_under_autocast_masks_hold_and_nothing_overflows(dtype: torch.dtype) -> None:
    torch.manual_seed(43)
    attention = MultiHeadAttention(33, H)
    torch.nn.init.zeros_(attention.output.bias)
    x, context = torch.randn(B, T, 33), torch.randn(B, S, 33)
    with torch.autocast("cpu", dtype=dtype):
        found = attention(x, context, some_mask())
    found.float().sum().backward()
    assert bool(found.isfinite().all())
    assert float(found[1, 3].detach().abs().max()) == 0.0
    for parameter in attention.parameters():
        assert parameter.grad is not None
        assert bool(parameter.grad.isfinite().all())
    assert_close(found.float(), attention(x, context, some_mask()), format_of(dtype).ROW)


def test_the_scores_are_divided_by_the_root_of_the_size_of_a_key() -> None:
    """Two keys, one equal to the query and one zero: the weights are those of the scores d_k / √d_k and 0."""
    query = torch.ones(1, 1, 1, 9)
    keys = torch.cat([torch.ones(1, 1, 1, 9), torch.zeros(1, 1, 1, 9)], dim=2)
    wanted = torch.tensor([3.0, 0.0]).softmax(0)
    assert_close(attention_weights(query, keys, None)[0, 0, 0], wanted, FLOAT32.ROW)


def test_heads_have_weights_of_their_own() -> None:
    """Changing the rows of one head's query changes that head's map and no other."""
    torch.manual_seed(47)
    attention = MultiHeadAttention(17, H, d_k=K, d_v=13)
    maps: list[torch.Tensor] = []
    attention.attention.dropout.register_forward_pre_hook(lambda _, inputs: maps.append(inputs[0].detach()))
    x, context = torch.randn(B, T, 17), torch.randn(B, S, 17)
    attention(x, context, None)
    with torch.no_grad():
        attention.query.weight[K : 2 * K] += 1.0
    attention(x, context, None)
    changed = (maps[0] - maps[1]).abs().amax(dim=(0, 2, 3))
    assert changed[1] > 0.01
    assert changed[[0, 2]].max() == 0.0


def test_a_padding_mask_allows_exactly_the_real_tokens_to_every_head_and_query() -> None:
    ids = torch.tensor([[5, 9, 7], [9, 4, 4]])
    mask = padding_mask(ids, pad_id=4)
    assert mask.shape == (2, 1, 1, 3)
    assert mask.dtype == torch.bool
    assert mask[:, 0, 0].tolist() == [[True, True, True], [True, False, False]]


def test_a_causal_mask_allows_the_past_and_the_present() -> None:
    mask = causal_mask(5)
    assert mask.shape == (1, 1, 5, 5)
    assert mask.dtype == torch.bool
    for t in range(5):
        for s in range(5):
            assert mask[0, 0, t, s] == (s <= t)


def test_a_causal_mask_allows_all_keys_before_the_first_query() -> None:
    assert torch.equal(causal_mask(2, past=3), causal_mask(5)[:, :, 3:])


BATCH, QUERIES, KEYS, D = 2, 5, 7, 17
GROUPS = pytest.mark.parametrize(("num_heads", "num_kv_heads"), [(6, 6), (6, 3), (6, 2), (6, 1), (4, 2)])
SIZES = pytest.mark.parametrize("sizes", [{"d_k": 3, "d_v": 3}, {"d_k": 5, "d_v": 2}, {"d_k": 1, "d_v": 11}])


def grouped_mask() -> Tensor:
    mask = torch.ones(BATCH, 1, QUERIES, KEYS, dtype=torch.bool)
    mask[1, :, :, 4:] = False
    return mask


def inputs() -> tuple[Tensor, Tensor]:
    torch.manual_seed(107)
    return (
        torch.randn(BATCH, QUERIES, D, dtype=torch.float64, requires_grad=True),
        torch.randn(BATCH, KEYS, D, dtype=torch.float64, requires_grad=True),
    )


@GROUPS
@SIZES
def test_grouped_attention_equals_torchs(num_heads: int, num_kv_heads: int, sizes: dict[str, int]) -> None:
    x, context = inputs()
    attention = MultiHeadAttention(D, num_heads, num_kv_heads=num_kv_heads, **sizes).double()
    assert attention.key.out_features == num_kv_heads * sizes["d_k"]
    assert attention.value.out_features == num_kv_heads * sizes["d_v"]
    queries = attention.query(x).view(BATCH, QUERIES, num_heads, sizes["d_k"]).transpose(1, 2)
    keys = attention.key(context).view(BATCH, KEYS, num_kv_heads, sizes["d_k"]).transpose(1, 2)
    values = attention.value(context).view(BATCH, KEYS, num_kv_heads, sizes["d_v"]).transpose(1, 2)
    heads = scaled_dot_product_attention(queries, keys, values, grouped_mask(), enable_gqa=True)
    wanted = attention.output(heads.transpose(1, 2).reshape(BATCH, QUERIES, num_heads * sizes["d_v"]))
    found = attention(x, context, grouped_mask())
    assert_close(found, wanted, FLOAT64.ROW)
    leaves = [x, context, *attention.parameters()]
    coefficients = torch.randn_like(found)
    for one, two in zip(
        torch.autograd.grad(found, leaves, coefficients),
        torch.autograd.grad(wanted, leaves, coefficients),
        strict=True,
    ):
        assert_close(one, two, FLOAT64.ROW)


@pytest.mark.parametrize("num_kv_heads", [1, 2, 4])
@pytest.mark.parametrize("bias", [False, True])
def test_grouped_rotary_attention_equals_llamas(num_kv_heads: int, bias: bool) -> None:
    config = LlamaConfig(
        hidden_size=20, num_attention_heads=4, num_key_value_heads=num_kv_heads, head_dim=6,
        attention_bias=bias, attn_implementation="eager",
    )  # fmt: skip
    torch.manual_seed(109)
    theirs = LlamaAttention(config, layer_idx=0).eval()
    sizes = {"d_k": 6, "d_v": 6, "num_kv_heads": num_kv_heads}
    ours = MultiHeadAttention(20, 4, positions=RotaryPositions(), bias=bias, **sizes)
    same = {"query": "q_proj", "key": "k_proj", "value": "v_proj", "output": "o_proj"}
    for name, other in same.items():
        ours.get_submodule(name).load_state_dict(theirs.get_submodule(other).state_dict())
    x = torch.randn(BATCH, KEYS, 20)
    angles = LlamaRotaryEmbedding(config)(x, torch.arange(KEYS)[None])
    additive = torch.zeros(1, 1, KEYS, KEYS).masked_fill(~causal_mask(KEYS), float("-inf"))
    wanted, _ = theirs(x, position_embeddings=angles, attention_mask=additive)
    found = ours(x, x, causal_mask(KEYS))
    assert_close(found, wanted, FLOAT32.ROW)
