"""Masks keep their promise in every precision. Values: tests/equivalence."""

import pytest
import torch

from heedful.model.attention import MultiHeadAttention, attention_weights

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
    torch.testing.assert_close(sums, wanted, rtol=0.0, atol=4 * S * torch.finfo(dtype).eps)


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
    torch.testing.assert_close(found.float(), attention(x, context, some_mask()), rtol=0.0, atol=0.02)


def test_the_scores_are_divided_by_the_root_of_the_size_of_a_key() -> None:
    """Two keys, one equal to the query and one zero: the weights are those of the scores d_k / √d_k and 0."""
    query = torch.ones(1, 1, 1, 9)
    keys = torch.cat([torch.ones(1, 1, 1, 9), torch.zeros(1, 1, 1, 9)], dim=2)
    wanted = torch.tensor([3.0, 0.0]).softmax(0)
    torch.testing.assert_close(attention_weights(query, keys, None)[0, 0, 0], wanted)


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
