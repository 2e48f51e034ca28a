import math

import pytest
from searches import searched_by_beam
from step_tables import EOS, TableStep, probability_table, task_of

from heedful.decoding.hypotheses import Hypothesis
from heedful.decoding.options import SearchOptions
from heedful.decoding.strategies.beam import BeamSearch

A, B = 3, 4

# Greedy goes A, A (0.6 * 0.5 * 0.9 = 0.27); the best output is B, B (0.4 * 0.9 * 1 = 0.36).
GARDEN_PATH = probability_table(
    {
        (): {A: 0.6, B: 0.4},
        (A,): {A: 0.5, B: 0.45, EOS: 0.05},
        (A, A): {EOS: 0.9, A: 0.1},
        (A, B): {EOS: 0.5, A: 0.5},
        (B,): {B: 0.9, EOS: 0.1},
        (B, B): {EOS: 1.0},
    },
    5,
)


def search(step: TableStep, max_lengths: list[int], **options: object) -> list[list[Hypothesis]]:
    of_beam = {name: options.pop(name) for name in ("beam_size", "early_stopping") if name in options}
    asked = SearchOptions(strategy=BeamSearch(**of_beam), **options)  # type: ignore[arg-type]
    return searched_by_beam(step, task_of(max_lengths, asked))


def test_a_beam_of_two_leaves_the_path_that_greedy_takes() -> None:
    [[greedy]] = search(TableStep(GARDEN_PATH, 1), [9], beam_size=1)
    [[best]] = search(TableStep(GARDEN_PATH, 1), [9], beam_size=2)
    assert (greedy.ids, best.ids) == ((A, A), (B, B))
    assert greedy.log_prob == pytest.approx(math.log(0.27))
    assert best.log_prob == pytest.approx(math.log(0.36))
    assert best.score == pytest.approx(math.log(0.36) / (8 / 6) ** 0.6)


def test_the_n_best_list_holds_different_outputs_best_first() -> None:
    [found] = search(TableStep(GARDEN_PATH, 1), [9], beam_size=16, n_best=4)
    assert [hypothesis.ids for hypothesis in found] == [(B, B), (A, A), (A, B), (B,)]
    assert [math.exp(hypothesis.log_prob) for hypothesis in found] == pytest.approx([0.36, 0.27, 0.135, 0.04])


def test_the_length_penalty_prefers_longer_outputs() -> None:
    table = probability_table({(): {EOS: 0.5, A: 0.5}, (A,): {EOS: 0.9, A: 0.1}, (A, A): {EOS: 1.0}}, 5)
    [[short]] = search(TableStep(table, 1), [9], beam_size=8, length_penalty=0.0)
    [[longer]] = search(TableStep(table, 1), [9], beam_size=8, length_penalty=1.0)
    assert (short.ids, longer.ids) == ((), (A,))
    assert longer.score == pytest.approx(math.log(0.45) / (7 / 6))


@pytest.mark.parametrize(
    ("ends", "early_stopping", "second"),
    [
        (0.6, "first", (A,)),  # two are finished: 0.5 and 0.18
        (0.6, "estimate", (B, B)),  # log 0.2 is better than log 0.18 at the same length
        (0.9, "estimate", (A,)),  # log 0.2 is worse than log 0.27
        (0.9, "optimal", (B, B)),  # log 0.2 / (8 / 6) ** 2 is better than log 0.27 / (7 / 6) ** 2
    ],
)
def test_each_way_to_stop_early(ends: float, early_stopping: str, second: tuple[int, ...]) -> None:
    table = probability_table(
        {
            (): {EOS: 0.5, A: 0.3, B: 0.2},
            (A,): {EOS: ends, A: 1 - ends},
            (B,): {B: 1.0},
            (B, B): {EOS: 1.0},
        },
        5,
    )
    [found] = search(
        TableStep(table, 1), [9], beam_size=2, n_best=2, length_penalty=2.0, early_stopping=early_stopping
    )
    assert [hypothesis.ids for hypothesis in found] == [(), second]


def test_a_beam_of_one_ends_with_its_first_finished_hypothesis() -> None:
    table = probability_table({(): {EOS: 0.51, A: 0.49}, (A,): {B: 1.0}, (A, B): {EOS: 1.0}}, 5)
    for early_stopping in ("optimal", "estimate", "first"):
        [[found]] = search(
            TableStep(table, 1), [9], beam_size=1, length_penalty=2.0, early_stopping=early_stopping
        )
        assert found.ids == ()
    [[found]] = search(TableStep(table, 1), [9], beam_size=2, length_penalty=2.0)
    assert found.ids == (A, B)


def test_an_end_token_finishes_only_among_the_first_of_the_beam() -> None:
    table = probability_table({(): {A: 0.5, B: 0.3, EOS: 0.2}, (A,): {A: 1.0}, (B,): {B: 1.0}}, 5)
    step = TableStep(lambda _b, ids: table(0, ids[:1]), 1)
    [found] = search(step, [2], beam_size=2, n_best=2)
    assert [hypothesis.ids for hypothesis in found] == [(A, A), (B, B)]
    step = TableStep(lambda _b, ids: table(0, ids[:1]), 1)
    [found] = search(step, [2], beam_size=3, n_best=3, length_penalty=0.0)
    assert [hypothesis.ids for hypothesis in found] == [(A, A), (B, B), ()]


def test_optimal_stops_once_nothing_live_can_win() -> None:
    table = probability_table({(): {EOS: 0.9, A: 0.1}, (A,): {A: 1.0}}, 5)
    step = TableStep(lambda _b, ids: table(0, ids[:1]), 1)
    [[best]] = search(step, [50], beam_size=4, length_penalty=0.6)
    assert best.ids == ()
    assert len(step.row_counts) == 1  # log 0.1 / (55 / 6) ** 0.6 < log 0.9


def test_outputs_cut_at_the_limit_compete_by_score() -> None:
    endless = probability_table({(): {A: 0.9, EOS: 0.1}, (A,): {A: 0.9, EOS: 0.1}}, 5)
    step = TableStep(lambda _b, ids: endless(0, ids[:1]), 1)
    [found] = search(step, [3], beam_size=2, n_best=2, length_penalty=0.0)
    assert [(each.ids, each.finished) for each in found] == [((A, A, A), False), ((), True)]
    assert found[0].log_prob == pytest.approx(3 * math.log(0.9))


def test_equal_probabilities_go_to_lower_ids() -> None:
    def table(_sentence: int, prefix: tuple[int, ...]) -> list[float]:
        return [math.log(0.2)] * 5 if len(prefix) < 2 else [-math.inf, -math.inf, 0.0, -math.inf, -math.inf]

    [found] = search(TableStep(table, 1), [9], beam_size=3, n_best=3, min_length=2)
    assert [hypothesis.ids for hypothesis in found] == [(A, A), (A, B), (B, A)]


def test_the_beam_keeps_its_width_and_ended_sentences_leave() -> None:
    def table(sentence: int, prefix: tuple[int, ...]) -> list[float]:
        end = EOS if len(prefix) == (1, 4)[sentence] else A
        return [math.log(0.96 if i == end else 0.01) for i in range(5)]

    step = TableStep(table, 2)
    found = search(step, [9, 9], beam_size=3, length_penalty=0.0)
    assert [hypothesis.ids for [hypothesis] in found] == [(A,), (A,) * 4]
    assert step.row_counts == [2, 4, 3, 3, 3]  # at first only two tokens besides the end token
