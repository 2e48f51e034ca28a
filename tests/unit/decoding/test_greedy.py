import math

import pytest
from searches import searched
from step_tables import EOS, TableStep, probability_table, task_of

from heedful.decoding.hypotheses import Hypothesis
from heedful.decoding.options import SearchOptions
from heedful.decoding.strategies.protocol import Greedy

A, B = 3, 4


def search(step: TableStep, max_lengths: list[int], **options: object) -> list[list[Hypothesis]]:
    asked = SearchOptions(strategy=Greedy(), **options)  # type: ignore[arg-type]
    return searched(step, task_of(max_lengths, asked))


def test_the_most_probable_token_is_taken_until_the_end() -> None:
    table = probability_table(
        {(): {A: 0.6, B: 0.3, EOS: 0.1}, (A,): {B: 0.7, EOS: 0.3}, (A, B): {EOS: 0.8, A: 0.2}}, 5
    )
    [[found]] = search(TableStep(table, 1), [9], length_penalty=0.6)
    assert found.ids == (A, B)
    assert found.finished
    assert found.token_log_probs == pytest.approx([math.log(0.6), math.log(0.7), math.log(0.8)])
    assert found.log_prob == pytest.approx(math.log(0.6 * 0.7 * 0.8))
    assert found.score == pytest.approx(math.log(0.6 * 0.7 * 0.8) / (8 / 6) ** 0.6)


def test_finished_sentences_leave_the_batch() -> None:
    def table(sentence: int, prefix: tuple[int, ...]) -> list[float]:
        likely = EOS if len(prefix) == (5, 1, 3)[sentence] else A
        return [math.log(0.9 if i == likely else 0.025) for i in range(5)]

    step = TableStep(table, 3)
    found = search(step, [9, 9, 9])
    assert [len(hypothesis.ids) for [hypothesis] in found] == [5, 1, 3]
    assert step.row_counts == [3, 3, 2, 2, 1, 1]
