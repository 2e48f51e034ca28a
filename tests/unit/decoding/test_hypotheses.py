import numpy as np
import pytest

from heedful.decoding.hypotheses import PartialOutputs, hypothesis_of
from heedful.decoding.options import SearchOptions
from heedful.errors import InputError


def test_the_average_is_over_tokens() -> None:
    for length, alpha, penalty in ((1, 0.6, 1.0), (7, 1.0, 7.0), (9, 0.5, 3.0)):
        options = SearchOptions(length_penalty=alpha, length_normalization="average")
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
    with pytest.raises(InputError, match="no possible continuation"):
        PartialOutputs([9], eos_id=2).append(np.array([5]), np.array([-np.inf]))
