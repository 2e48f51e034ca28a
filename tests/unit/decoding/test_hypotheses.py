import math
from collections.abc import Callable

import numpy as np
import pytest
import torch

from heedful.decoding.backends.torch import TorchTokens
from heedful.decoding.options import SearchOptions
from heedful.decoding.steps import ArrayTokens, NextTokens
from heedful.decoding.task import NO_CONTINUATION, PartialOutputs, hypothesis_of
from heedful.errors import InputError


def test_the_average_is_over_tokens() -> None:
    for length, alpha, penalty in ((1, 0.6, 1.0), (7, 1.0, 7.0), (9, 0.5, 3.0)):
        options = SearchOptions(length_penalty=alpha, length_normalization="power")
        assert options.penalty(length) == penalty


def test_the_end_token_counts_in_the_score_but_is_no_part_of_the_output() -> None:
    finished = hypothesis_of([5, 6, 2], [-1.0, -2.0, -3.0], eos_id=2, penalty=2.0)
    assert (finished.ids, finished.log_prob, finished.score, finished.finished) == ((5, 6), -6.0, -3.0, True)
    cut = hypothesis_of([5, 6], [-1.0, -2.0], eos_id=2, penalty=2.0)
    assert (cut.ids, cut.log_prob, cut.score, cut.finished) == ((5, 6), -3.0, -1.5, False)


def test_outputs_end_with_their_end_token_or_at_their_limits() -> None:
    outputs = PartialOutputs([9, 2, 9], eos_id=2)
    assert outputs.written.shape == (3, 0)
    assert outputs.append(np.array([5, 6, 7]), np.array([-1.0, -2.0, -3.0])).tolist() == [0, 1, 2]
    assert outputs.append(np.array([8, 9, 2]), np.array([-4.0, -5.0, -6.0])).tolist() == [0]
    assert (outputs.live.tolist(), outputs.written.tolist()) == ([0], [[5, 8]])
    assert outputs.append(np.array([2]), np.array([-7.0])).tolist() == []
    found = outputs.hypotheses(lambda length: 2.0 * length)
    assert [each.ids for each in found] == [(5, 8), (6, 9), (7,)]
    assert [each.finished for each in found] == [True, False, True]
    assert [each.score for each in found] == [-12 / 6, -7 / 4, -9 / 4]


def test_an_output_that_cannot_go_on_is_reported() -> None:
    with pytest.raises(InputError, match=NO_CONTINUATION):
        PartialOutputs([9], eos_id=2).append(np.array([5]), np.array([-np.inf]))


KINDS = {"numpy": lambda log_probs: ArrayTokens(log_probs.numpy()), "torch": TorchTokens}
of_both_kinds = pytest.mark.parametrize("tokens_of", KINDS.values(), ids=KINDS.keys())
TokensOf = Callable[[torch.Tensor], NextTokens]


@of_both_kinds
def test_suppressed_ids_are_impossible_where_nothing_else_is_left(tokens_of: TokensOf) -> None:
    values, ids = tokens_of(torch.zeros(1, 3)).top(3, [0, 1])
    assert ids.tolist() == [[2, 0, 1]]
    assert values.tolist() == [[0.0, -math.inf, -math.inf]]


@of_both_kinds
@pytest.mark.parametrize("vocab_size", [5, 40, 3000])
def test_ties_go_to_the_lower_id_also_at_the_edge(tokens_of: TokensOf, vocab_size: int) -> None:
    log_probs = torch.full((3, vocab_size), -5.0)
    log_probs[1, vocab_size - 1] = -1.0
    log_probs[2, :3] = -9.0
    values, ids = tokens_of(log_probs).top(2, [])
    assert ids.tolist() == [[0, 1], [vocab_size - 1, 0], [3, 4]]
    assert values.tolist() == [[-5.0, -5.0], [-1.0, -5.0], [-5.0, -5.0]]


@of_both_kinds
def test_it_equals_a_full_stable_sort(tokens_of: TokensOf) -> None:
    generator = torch.Generator().manual_seed(1)
    log_probs = torch.randint(-6, 0, (50, 17), generator=generator).float()
    values, ids = tokens_of(log_probs).top(5, [3])
    log_probs[:, 3] = -math.inf
    expected = torch.sort(log_probs, dim=-1, descending=True, stable=True)
    assert ids.tolist() == expected.indices[:, :5].tolist()
    assert values.tolist() == expected.values[:, :5].tolist()


@of_both_kinds
def test_the_argument_is_left_alone(tokens_of: TokensOf) -> None:
    log_probs = torch.randn(4, 9, generator=torch.Generator().manual_seed(2))
    before = log_probs.clone()
    tokens_of(log_probs).top(3, [0, 1])
    assert torch.equal(log_probs, before)
