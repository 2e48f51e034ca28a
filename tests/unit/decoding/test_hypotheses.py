import numpy as np

from heedful.decoding.hypotheses import History, best_first, ended_hypothesis, length_penalty


def test_the_length_penalty_is_gnmts() -> None:
    assert length_penalty(1, 0.6) == 1.0
    assert length_penalty(7, 1.0) == 2.0
    assert length_penalty(19, 0.5) == 2.0
    assert length_penalty(30, 0.0) == 1.0


def test_the_average_is_over_tokens() -> None:
    assert length_penalty(1, 0.6, "average") == 1.0
    assert length_penalty(7, 1.0, "average") == 7.0
    assert length_penalty(9, 0.5, "average") == 3.0


def test_the_end_token_counts_in_the_score_but_is_no_part_of_the_output() -> None:
    finished = ended_hypothesis([5, 6, 2], [-1.0, -2.0, -3.0], eos_id=2, penalty=2.0)
    assert (finished.ids, finished.log_prob, finished.score, finished.finished) == ((5, 6), -6.0, -3.0, True)
    cut = ended_hypothesis([5, 6], [-1.0, -2.0], eos_id=2, penalty=2.0)
    assert (cut.ids, cut.log_prob, cut.score, cut.finished) == ((5, 6), -3.0, -1.5, False)


def test_equal_scores_are_ordered_by_ids() -> None:
    one = ended_hypothesis([7, 2], [-1.0, 0.0], eos_id=2, penalty=1.0)
    two = ended_hypothesis([5, 2], [0.0, -1.0], eos_id=2, penalty=1.0)
    assert best_first([one, two]) == [two, one]


def test_a_history_is_traced_through_moves_and_losses() -> None:
    history = History()
    history.append(np.array([0, 0, 1]), np.array([10, 11, 12]), np.array([-1.0, -2.0, -3.0]))
    history.append(np.array([2, 0]), np.array([20, 21]), np.array([-4.0, -5.0]))
    history.append(np.array([1, 1, 0]), np.array([30, 31, 32]), np.array([-6.0, -7.0, -8.0]))
    assert history.trace(1) == ([10, 21, 31], [-1.0, -5.0, -7.0])
    assert history.trace(2) == ([12, 20, 32], [-3.0, -4.0, -8.0])
    assert History().trace(0) == ([], [])
