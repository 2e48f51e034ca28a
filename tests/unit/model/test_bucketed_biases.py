"""T5's relative positions: which distances share a bucket, and what a bucket's number does to the scores."""

from itertools import pairwise
from typing import Any

import pytest
import torch
from transformers import T5Config
from transformers.models.t5.modeling_t5 import T5Attention

from heedful.model.attention import MultiHeadAttention, causal_mask
from heedful.model.variants import BucketedBiases

SIZES = pytest.mark.parametrize(
    ("num_buckets", "max_distance"),
    [(32, 128), (4, 3), (5, 20), (7, 11), (8, 16), (8, 1000), (32, 17), (64, 256), (50, 101), (320, 800)],
)
BOTH = pytest.mark.parametrize("bidirectional", [True, False])
DISTANCES = torch.arange(-1000, 1001)


def biases(num_heads: int = 3, **settings: Any) -> BucketedBiases:  # noqa: ANN401
    part = BucketedBiases(num_heads, **{"num_buckets": 8, "max_distance": 11, **settings}).double()
    torch.nn.init.normal_(part.weight, generator=torch.Generator().manual_seed(89))
    return part


@SIZES
@BOTH
def test_buckets_are_t5s(num_buckets: int, max_distance: int, bidirectional: bool) -> None:
    part = BucketedBiases(1, num_buckets=num_buckets, max_distance=max_distance, bidirectional=bidirectional)
    wanted = T5Attention._relative_position_bucket(DISTANCES, bidirectional, num_buckets, max_distance)
    found = part.buckets(DISTANCES)
    assert torch.equal(found, wanted)
    assert found.dtype == torch.int64


@SIZES
@BOTH
def test_buckets_grow_with_the_distance_and_are_all_in_range(
    num_buckets: int, max_distance: int, bidirectional: bool
) -> None:
    part = BucketedBiases(1, num_buckets=num_buckets, max_distance=max_distance, bidirectional=bidirectional)
    found = part.buckets(DISTANCES).tolist()
    left, right = found[1000::-1], found[1001:]
    count = num_buckets // 2 if bidirectional else num_buckets
    exact = count // 2
    assert left[: exact + 1] == list(range(exact + 1))
    assert all(a <= b for a, b in pairwise(left))
    assert set(left[max_distance:]) == {count - 1}
    assert right == ([bucket + count for bucket in left[1:]] if bidirectional else [0] * 1000)


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


@BOTH
def test_the_bias_is_added_to_the_scaled_scores(bidirectional: bool) -> None:
    torch.manual_seed(97)
    attention = MultiHeadAttention(15, 3, positions=biases(bidirectional=bidirectional)).double()
    x = torch.randn(2, 17, 15, dtype=torch.float64)
    mask = None if bidirectional else causal_mask(17)
    queries, keys, values = (
        part(x).view(2, 17, 3, 5).transpose(1, 2)
        for part in (attention.query, attention.key, attention.value)
    )
    distances = torch.arange(17)[None, :] - torch.arange(17)[:, None]
    table = T5Attention._relative_position_bucket(distances, bidirectional, 8, 11)
    bias = torch.stack([attention.positions.weight[:, head][table] for head in range(3)])
    scores = torch.einsum("bhtk,bhsk->bhts", queries, keys) / 5**0.5 + bias
    scores = scores if mask is None else scores.masked_fill(~mask, float("-inf"))
    heads = torch.einsum("bhts,bhsv->bthv", scores.softmax(-1), values)
    wanted = attention.output(heads.reshape(2, 17, 15))
    torch.testing.assert_close(attention(x, x, mask), wanted)


@BOTH
def test_a_buckets_gradient_is_the_sum_over_its_distances(bidirectional: bool) -> None:
    part = biases(bidirectional=bidirectional)
    coefficients = torch.randn(3, 5, 23, dtype=torch.float64)
    (part.bias(4, 5, 23, part.weight) * coefficients).sum().backward()
    wanted = torch.zeros(8, 3, dtype=torch.float64)
    for t in range(5):
        for s in range(23):
            distance = torch.tensor(s - t - 4)
            wanted[T5Attention._relative_position_bucket(distance, bidirectional, 8, 11)] += coefficients[
                :, t, s
            ]
    torch.testing.assert_close(part.weight.grad, wanted)


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
