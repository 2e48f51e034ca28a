import math

import pytest
from searches import searched_by_beam
from step_tables import EOS, TableStep, probability_table, task_of

from heedful.decoding.options import SearchOptions
from heedful.decoding.strategies.beam import BeamSearch
from heedful.decoding.task import Hypothesis

A, B = 3, 4


def search(step: TableStep, max_lengths: list[int], **options: object) -> list[list[Hypothesis]]:
    of_beam = {name: options.pop(name) for name in ("beam_size", "early_stopping") if name in options}
    asked = SearchOptions(strategy=BeamSearch(**of_beam), **options)  # type: ignore[arg-type]
    return searched_by_beam(step, task_of(max_lengths, asked))


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
