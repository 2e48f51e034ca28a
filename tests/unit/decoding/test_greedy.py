import math

import pytest
import torch
from searches import searched
from step_tables import BOS, EOS, PAD, TableStep, probability_table, random_table, task_of

from heedful.decoding.hypotheses import Hypothesis
from heedful.decoding.options import SearchOptions
from heedful.decoding.strategies.protocol import Greedy
from heedful.errors import InputError

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


def test_equal_probabilities_go_to_the_lower_id() -> None:
    table = probability_table({(): {A: 0.5, B: 0.5}, (A,): {EOS: 0.5, B: 0.5}}, 5)
    [[found]] = search(TableStep(table, 1), [9])
    assert found.ids == (A,)


def test_pad_and_bos_never_come_out_however_probable() -> None:
    table = probability_table({(): {PAD: 0.6, BOS: 0.3, A: 0.1}, (A,): {BOS: 0.9, EOS: 0.1}}, 5)
    [[found]] = search(TableStep(table, 1), [9])
    assert found.ids == (A,)
    assert found.log_prob == pytest.approx(math.log(0.01))


def test_the_length_limit_cuts_an_endless_output() -> None:
    table = lambda _b, _ids: torch.tensor([0, 0, 0.1, 0.5, 0.4]).log().tolist()  # noqa: E731
    [[found]] = search(TableStep(table, 1), [4])
    assert found.ids == (A, A, A, A)
    assert not found.finished
    assert len(found.token_log_probs) == 4


def test_min_length_delays_the_end() -> None:
    table = lambda _b, _ids: torch.tensor([0, 0, 0.7, 0.2, 0.1]).log().tolist()  # noqa: E731
    [[found]] = search(TableStep(table, 1), [9], min_length=3)
    assert found.ids == (A, A, A)


def test_forced_and_suppressed_tokens() -> None:
    table = lambda _b, _ids: torch.tensor([0.1, 0, 0.2, 0.4, 0.3]).log().tolist()  # noqa: E731
    [[found]] = search(
        TableStep(table, 1), [4], forced_first_id=PAD, forced_last_id=EOS, suppressed_ids=(A,), min_length=9
    )
    assert (found.ids, found.finished) == ((PAD, B, B), True)
    assert found.token_log_probs == pytest.approx([0.0, math.log(0.3), math.log(0.3), 0.0])


def test_no_possible_continuation_is_reported() -> None:
    with pytest.raises(InputError, match="no possible continuation"):
        search(TableStep(random_table(1, 5), 1), [4], suppressed_ids=(PAD, BOS, EOS, A, B))


def test_finished_sentences_leave_the_batch() -> None:
    def table(sentence: int, prefix: tuple[int, ...]) -> list[float]:
        likely = EOS if len(prefix) == (5, 1, 3)[sentence] else A
        return [math.log(0.9 if i == likely else 0.025) for i in range(5)]

    step = TableStep(table, 3)
    found = search(step, [9, 9, 9])
    assert [len(hypothesis.ids) for [hypothesis] in found] == [5, 1, 3]
    assert step.row_counts == [3, 3, 2, 2, 1, 1]


def test_a_batch_equals_its_sentences_one_by_one() -> None:
    table = random_table(7, 6, sharpness=1.5)
    together = search(TableStep(table, 11), [3, 9, 4, 9, 9, 2, 9, 1, 9, 9, 9])
    for sentence, limit in enumerate([3, 9, 4, 9, 9, 2, 9, 1, 9, 9, 9]):
        alone = search(TableStep(lambda _b, ids, s=sentence: table(s, ids), 1), [limit])
        assert alone == [together[sentence]]


def test_no_sentences_are_no_work() -> None:
    assert search(TableStep(random_table(1, 5), 0), []) == []


def test_log_probabilities_that_are_no_numbers_are_reported() -> None:
    with pytest.raises(InputError, match="not numbers"):
        search(TableStep(lambda _b, _ids: [math.nan] * 5, 1), [4])
