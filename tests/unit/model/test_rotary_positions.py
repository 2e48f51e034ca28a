"""RoPE: queries and keys turn with their positions, and their products tell the distance alone."""

import pytest
import torch
from torch import Tensor
from torch.autograd import gradcheck
from transformers import LlamaConfig
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding, apply_rotary_pos_emb

from heedful.model.variants import RotaryPositions

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
    torch.testing.assert_close(RotaryPositions().rotate(x, start), turned(x, start), rtol=0.0, atol=1e-9)


@SIZES
@pytest.mark.parametrize("start", [0, 29])
def test_rotation_is_llamas(d_k: int, start: int) -> None:
    config = LlamaConfig(hidden_size=H * d_k, num_attention_heads=H, head_dim=d_k)
    queries, keys = heads(d_k, torch.float32), heads(d_k, torch.float32).flip(0)
    cos, sin = LlamaRotaryEmbedding(config)(queries, torch.arange(start, start + L)[None])
    wanted = apply_rotary_pos_emb(queries, keys, cos, sin)
    for x, other in zip((queries, keys), wanted, strict=True):
        torch.testing.assert_close(RotaryPositions().rotate(x, start), other, rtol=0.0, atol=2e-5)


@SIZES
def test_scores_depend_on_distances_only_and_on_them_they_do(d_k: int) -> None:
    positions, queries, keys = RotaryPositions(), heads(d_k), heads(d_k).flip(2)

    def scores(query_start: int, key_start: int) -> Tensor:
        return positions.rotate(queries, query_start) @ positions.rotate(keys, key_start).mT

    torch.testing.assert_close(scores(1000, 1000), scores(0, 0), rtol=0.0, atol=1e-9)
    torch.testing.assert_close(scores(1005, 1000), scores(5, 0), rtol=0.0, atol=1e-9)
    assert (scores(1, 0) - scores(0, 0)).abs().max() > 0.1


def test_rotation_keeps_lengths_and_leaves_position_0_alone() -> None:
    x = heads(6)
    found = RotaryPositions().rotate(x, 0)
    torch.testing.assert_close(found.norm(dim=-1), x.norm(dim=-1))
    assert torch.equal(found[:, :, 0], x[:, :, 0])


def test_one_position_at_a_time_equals_all_at_once() -> None:
    x, positions = heads(6), RotaryPositions()
    steps = [positions.rotate(x[:, :, t : t + 1], 100 + t) for t in range(L)]
    assert torch.equal(torch.cat(steps, dim=2), positions.rotate(x, 100))


def test_gradients_of_the_rotation_are_those_of_finite_differences() -> None:
    x = torch.randn(1, 2, 3, 4, dtype=torch.float64, requires_grad=True)
    assert gradcheck(lambda x: RotaryPositions().rotate(x, 5), (x,))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_angles_far_away_are_as_exact_in_half_precision_as_near(dtype: torch.dtype) -> None:
    """An angle of 4,001 in bfloat16 would be off by several turns."""
    x = heads(64).to(dtype)
    found = RotaryPositions().rotate(x, 4001)
    assert found.dtype == dtype
    torch.testing.assert_close(
        found.double(), turned(x, 4001), rtol=0.0, atol=8 * float(x.abs().max()) * torch.finfo(dtype).eps
    )
