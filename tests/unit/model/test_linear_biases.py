"""ALiBi: a score falls by a slope of its head times the distance."""

import pytest
import torch
from transformers.models.bloom.modeling_bloom import build_alibi_tensor

from heedful.model.attention import MultiHeadAttention, causal_mask
from heedful.model.variants import LinearBiases, alibi_slopes

HEADS = [1, 2, 3, 5, 6, 7, 8, 12, 16, 20, 31, 32, 71, 112]
LIKE = torch.zeros(1, dtype=torch.float64)


@pytest.mark.parametrize("num_heads", HEADS)
def test_slopes_are_blooms(num_heads: int) -> None:
    """Bloom's tensor is the slope times the position of the key: at position 1, the slope."""
    bloom = build_alibi_tensor(torch.ones(1, 2), num_heads, torch.float32)
    torch.testing.assert_close(torch.tensor(alibi_slopes(num_heads)), bloom[:, 0, 1])


@pytest.mark.parametrize("num_heads", [1, 2, 4, 8, 16, 32])
def test_slopes_are_the_papers_geometric_sequence(num_heads: int) -> None:
    """It starts at 2^(-8/n) and its ratio is the same number; for 8 heads 1/2, 1/4, ..., 1/256."""
    ratio = 2 ** (-8 / num_heads)
    wanted = [ratio]
    while len(wanted) < num_heads:
        wanted.append(wanted[-1] * ratio)
    assert alibi_slopes(num_heads) == pytest.approx(wanted, rel=1e-12)
    assert alibi_slopes(8) == [1 / 2, 1 / 4, 1 / 8, 1 / 16, 1 / 32, 1 / 64, 1 / 128, 1 / 256]


def test_slopes_of_other_numbers_of_heads_are_taken_from_the_powers_of_two_around() -> None:
    assert alibi_slopes(3) == [2**-4, 2**-8, 2**-2]
    assert alibi_slopes(6) == [2**-2, 2**-4, 2**-6, 2**-8, 2**-1, 2**-3]
    for num_heads in HEADS:
        assert len(set(alibi_slopes(num_heads))) == num_heads


@pytest.mark.parametrize("start", [0, 4])
def test_the_bias_is_minus_slope_times_distance_both_ways(start: int) -> None:
    biases = LinearBiases(6).bias(start, 3, 11, LIKE)
    assert biases.shape == (6, 3, 11)
    assert biases.dtype == LIKE.dtype
    for head, slope in enumerate(alibi_slopes(6)):
        for t in range(3):
            for s in range(11):
                assert biases[head, t, s].item() == pytest.approx(-slope * abs(start + t - s), rel=1e-6)


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
    torch.testing.assert_close(attention(x, x, causal_mask(7)), wanted, rtol=0.0, atol=1e-6)
    unbiased = MultiHeadAttention(18, 6).double()
    unbiased.load_state_dict(attention.state_dict())
    assert (unbiased(x, x, causal_mask(7)) - wanted).abs().max() > 0.01


def test_nothing_is_trained_or_stored() -> None:
    biases = LinearBiases(6)
    assert dict(biases.state_dict()) == {}
    assert list(biases.parameters()) == []


def test_distances_are_exact_where_half_precision_cannot_count_them() -> None:
    """A distance of 1,001 is no bfloat16; its product with a slope is rounded once."""
    found = LinearBiases(8).bias(1001, 1, 1, torch.zeros(1, dtype=torch.bfloat16))
    wanted = torch.tensor([-1001 * slope for slope in alibi_slopes(8)]).bfloat16()
    assert torch.equal(found[:, 0, 0], wanted)
