import numpy as np
import pytest

from heedful.decoding.hypotheses import (
    History,
    best_first,
    finished_hypothesis,
    length_penalty,
    unfinished_hypothesis,
)


def test_the_length_penalty_is_gnmts() -> None:
    assert length_penalty(1, 0.6) == 1.0
    assert length_penalty(7, 1.0) == 2.0
    assert length_penalty(19, 0.5) == 2.0
    assert length_penalty(30, 0.0) == 1.0


def test_the_end_token_counts_in_the_score() -> None:
    finished = finished_hypothesis([5, 6], [-1.0, -2.0, -3.0], 1.0)
    assert (finished.log_prob, finished.finished) == (-6.0, True)
    assert finished.score == pytest.approx(-6.0 / (8 / 6))
    assert unfinished_hypothesis([5, 6], [-1.0, -2.0], 1.0).score == pytest.approx(-3.0 / (7 / 6))


def test_equal_scores_are_ordered_by_ids() -> None:
    one, two = finished_hypothesis([7], [-1.0, 0.0], 0.6), finished_hypothesis([5], [0.0, -1.0], 0.6)
    assert best_first([one, two]) == [two, one]


def test_a_history_is_traced_through_moves_and_losses() -> None:
    history = History()
    history.append(np.array([0, 0, 1]), np.array([10, 11, 12]), np.array([-1.0, -2.0, -3.0]))
    history.append(np.array([2, 0]), np.array([20, 21]), np.array([-4.0, -5.0]))
    history.append(np.array([1, 1, 0]), np.array([30, 31, 32]), np.array([-6.0, -7.0, -8.0]))
    assert history.trace(1) == ([10, 21, 31], [-1.0, -5.0, -7.0])
    assert history.trace(2) == ([12, 20, 32], [-3.0, -4.0, -8.0])
    assert History().trace(0) == ([], [])
