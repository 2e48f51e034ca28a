"""Groups of query heads that share a head of keys and values, of any size."""

import pytest
import torch
from torch import Tensor, nn
from torch.autograd import gradcheck
from torch.nn.functional import scaled_dot_product_attention
from transformers import LlamaConfig
from transformers.models.llama.modeling_llama import LlamaAttention, LlamaRotaryEmbedding

from heedful.model.attention import MultiHeadAttention, causal_mask
from heedful.model.variants import BucketedBiases, RotaryPositions

B, T, S, D = 2, 5, 7, 17
GROUPS = pytest.mark.parametrize(("num_heads", "num_kv_heads"), [(6, 6), (6, 3), (6, 2), (6, 1), (4, 2)])
SIZES = pytest.mark.parametrize("sizes", [{"d_k": 3, "d_v": 3}, {"d_k": 5, "d_v": 2}, {"d_k": 1, "d_v": 11}])


def some_mask() -> Tensor:
    mask = torch.ones(B, 1, T, S, dtype=torch.bool)
    mask[1, :, :, 4:] = False
    return mask


def inputs() -> tuple[Tensor, Tensor]:
    torch.manual_seed(107)
    return (
        torch.randn(B, T, D, dtype=torch.float64, requires_grad=True),
        torch.randn(B, S, D, dtype=torch.float64, requires_grad=True),
    )


@GROUPS
@SIZES
def test_grouped_attention_equals_torchs(num_heads: int, num_kv_heads: int, sizes: dict[str, int]) -> None:
    x, context = inputs()
    attention = MultiHeadAttention(D, num_heads, num_kv_heads=num_kv_heads, **sizes).double()
    assert attention.key.out_features == num_kv_heads * sizes["d_k"]
    assert attention.value.out_features == num_kv_heads * sizes["d_v"]
    queries = attention.query(x).view(B, T, num_heads, sizes["d_k"]).transpose(1, 2)
    keys = attention.key(context).view(B, S, num_kv_heads, sizes["d_k"]).transpose(1, 2)
    values = attention.value(context).view(B, S, num_kv_heads, sizes["d_v"]).transpose(1, 2)
    heads = scaled_dot_product_attention(queries, keys, values, some_mask(), enable_gqa=True)
    wanted = attention.output(heads.transpose(1, 2).reshape(B, T, num_heads * sizes["d_v"]))
    found = attention(x, context, some_mask())
    torch.testing.assert_close(found, wanted)
    leaves = [x, context, *attention.parameters()]
    coefficients = torch.randn_like(found)
    for one, two in zip(
        torch.autograd.grad(found, leaves, coefficients),
        torch.autograd.grad(wanted, leaves, coefficients),
        strict=True,
    ):
        torch.testing.assert_close(one, two, rtol=1e-9, atol=1e-11)


@GROUPS
@SIZES
@pytest.mark.parametrize("kind", ["none", "rotary", "relative"])
def test_groups_are_full_heads_whose_weights_are_repeated(
    num_heads: int, num_kv_heads: int, sizes: dict[str, int], kind: str
) -> None:
    x, _ = inputs()
    sizes = sizes | {"d_k": sizes["d_k"] + sizes["d_k"] % 2}
    positions = {
        "none": lambda: None,
        "rotary": RotaryPositions,
        "relative": lambda: BucketedBiases(num_heads, num_buckets=8, max_distance=11, bidirectional=True),
    }[kind]()
    if isinstance(positions, BucketedBiases):
        nn.init.normal_(positions.weight)
    grouped = MultiHeadAttention(
        D, num_heads, num_kv_heads=num_kv_heads, positions=positions, **sizes
    ).double()
    full = MultiHeadAttention(D, num_heads, positions=positions, **sizes).double()
    weights = grouped.state_dict()
    for part, size in (("key", "d_k"), ("value", "d_v")):
        for name in (f"{part}.weight", f"{part}.bias"):
            heads = weights[name].unflatten(0, (num_kv_heads, sizes[size]))
            repeated = [heads[head * num_kv_heads // num_heads] for head in range(num_heads)]
            weights[name] = torch.cat(repeated)
    full.load_state_dict(weights)
    torch.testing.assert_close(grouped(x, x, causal_mask(T)), full(x, x, causal_mask(T)))


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
    x = torch.randn(B, S, 20)
    angles = LlamaRotaryEmbedding(config)(x, torch.arange(S)[None])
    additive = torch.zeros(1, 1, S, S).masked_fill(~causal_mask(S), float("-inf"))
    wanted, _ = theirs(x, position_embeddings=angles, attention_mask=additive)
    found = ours(x, x, causal_mask(S))
    torch.testing.assert_close(found, wanted, rtol=1e-5, atol=1e-6)


def test_gradients_of_grouped_attention_are_those_of_finite_differences() -> None:
    attention = MultiHeadAttention(3, 4, d_k=2, d_v=1, num_kv_heads=2).double()
    x, context = (torch.randn(1, length, 3, dtype=torch.float64, requires_grad=True) for length in (2, 3))
    assert gradcheck(lambda x, context: attention(x, context, None), (x, context))
