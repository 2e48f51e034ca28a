import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import numpy as np
import pytest
import torch
from sacrebleu import sentence_chrf as sacrebleus_chrf
from searches import searched
from step_tables import EOS, TableStep, random_table, task_of
from tolerances import FLOAT64, close

from heedful.decoding.options import SearchOptions
from heedful.decoding.steps import Array, StepFunction
from heedful.decoding.strategies import sampling as module
from heedful.decoding.strategies.sampling import (
    Sampling,
    least_risk,
    probable,
    random_numbers,
    samples_at_once,
    sentence_chrf,
)
from heedful.decoding.task import Hypothesis
from heedful.decoding.translation import TextHypothesis, Translation

A, B = 3, 4
SOURCES = [[7, 8, 9], [7], [9, 8, 7, 5], [5, 5]]
LIMITS = [9, 3, 12, 7]


def sample(
    step: TableStep, max_lengths: list[int], sources: list[list[int]], *,
    prefixes: list[list[int]] | None = None, sampling: Sampling | None = None, **options: object,
) -> list[list[Hypothesis]]:  # fmt: skip
    asked = SearchOptions(strategy=sampling or Sampling(), **options)  # type: ignore[arg-type]
    return searched(step, task_of(max_lengths, asked, sources=sources, prefixes=prefixes))


def test_a_sentence_draws_the_same_whatever_its_neighbours_and_its_place() -> None:
    table = random_table(3, 9)
    together = sample(TableStep(table, 4), LIMITS, SOURCES, n_best=3)
    for order in ([0], [1], [2], [3], [3, 1], [2, 3, 0, 1]):
        step = TableStep(lambda b, ids, order=order: table(order[b], ids), len(order))
        found = sample(step, [LIMITS[b] for b in order], [SOURCES[b] for b in order], n_best=3)
        assert found == [together[b] for b in order]


def test_fewer_samples_and_a_shorter_limit_are_a_part_of_more() -> None:
    table = random_table(3, 9)
    many = sample(TableStep(table, 4), LIMITS, SOURCES, n_best=5)
    assert sample(TableStep(table, 4), LIMITS, SOURCES, n_best=2) == [found[:2] for found in many]
    short = sample(TableStep(table, 4), [2] * 4, SOURCES, n_best=5)
    for found, cut in zip(many, short, strict=True):
        assert [each.ids[:2] for each in found] == [each.ids for each in cut]


def test_samples_differ_and_another_seed_gives_others() -> None:
    table = random_table(3, 9, sharpness=0.3)
    [first] = sample(TableStep(table, 1), [12], [[7]], n_best=20)
    [second] = sample(TableStep(table, 1), [12], [[7]], n_best=20, sampling=Sampling(seed=1))
    assert len({each.ids for each in first}) > 10
    assert sum(one == other for one, other in zip(first, second, strict=True)) < 5


def test_log_probabilities_are_the_models_own_whatever_is_cut_off() -> None:
    table = random_table(5, 8)
    sampling = Sampling(temperature=1.7, top_k=3, top_p=0.8, min_p=0.1, epsilon=0.05, seed=4)
    prefixes = [[A], [], [B, A], [A, EOS]]
    found = sample(
        TableStep(table, 4), LIMITS, SOURCES, n_best=4, sampling=sampling, repetition_penalty=1.4,
        no_repeat_ngram_size=2, prefixes=prefixes, length_penalty=1.0,
    )  # fmt: skip
    for b, hypotheses in enumerate(found):
        for each in hypotheses:
            tokens = (*each.ids, EOS) if each.finished else each.ids
            assert list(tokens[: len(prefixes[b])]) == prefixes[b]
            assert list(each.token_log_probs) == [table(b, tokens[:t])[i] for t, i in enumerate(tokens)]
            assert each.score == each.log_prob / ((5 + len(tokens)) / 6)
    assert found[3][0].ids == (A,)


def test_a_low_temperature_or_one_token_to_choose_from_is_greedy() -> None:
    table = random_table(5, 8)
    for sampling in (Sampling(temperature=1e-4), Sampling(top_k=1), Sampling(top_p=1e-9), Sampling(min_p=1)):
        for b, [found] in enumerate(sample(TableStep(table, 4), LIMITS, SOURCES, sampling=sampling)):
            for t, token in enumerate(found.ids):
                row = [-math.inf, -math.inf, *table(b, found.ids[:t])[2:]]
                assert row[token] == max(row)


def test_forced_tokens_are_drawn_for_certain() -> None:
    table = random_table(5, 8)
    [found] = sample(TableStep(table, 1), [3], [[7]], n_best=9, forced_first_id=6, forced_last_id=EOS)
    assert {each.ids[0] for each in found} == {6}
    assert all(each.finished and each.token_log_probs[0] == 0 for each in found)


def test_equal_sentences_draw_equally_and_ended_ones_leave_the_batch() -> None:
    step = TableStep(lambda _b, ids: random_table(2, 7)(0, ids), 3)
    one, other, third = sample(step, [20, 20, 20], [[4, 4], [4, 4], [4]], n_best=2)
    assert one == other != third
    assert step.row_counts[0] == 3
    assert step.row_counts[1:] == sorted(step.row_counts[1:], reverse=True)
    assert len(step.row_counts) == max(len(each.token_log_probs) for each in one + other + third)


def test_random_numbers_are_the_same_on_every_machine() -> None:
    numbers = random_numbers(1, [5, 6], 0, 1000)
    assert numbers[:3].tolist() == [0.6057962170042419, 0.5042837777109068, 0.009586300299932793]
    assert np.array_equal(random_numbers(1, [5, 6], 0, 3), numbers[:3])
    assert 0 <= numbers.min() < 0.02 < 0.98 < numbers.max() < 1
    others = [(2, [5, 6], 0), (1, [5, 6], 1), (1, [6, 5], 0), (15, [6], 0), (1, [56], 0)]
    for seed, source, index in others:
        assert not set(random_numbers(seed, source, index, 1000)) & set(numbers)


def test_cut_offs_keep_what_they_say() -> None:
    scores = torch.tensor([[0.4, 0.25, 0.2, 0.1, 0.05]]).log()

    def kept(**settings: float) -> list[int]:
        left = probable(scores, Sampling(**settings))  # type: ignore[arg-type]
        return torch.isfinite(left[0]).nonzero().flatten().tolist()

    assert kept() == [0, 1, 2, 3, 4]
    assert kept(top_k=2) == [0, 1]
    assert kept(top_k=9) == [0, 1, 2, 3, 4]
    assert kept(top_p=0.3) == [0]
    assert kept(top_p=0.6) == [0, 1]
    assert kept(top_p=0.86) == [0, 1, 2, 3]
    assert kept(min_p=0.3) == [0, 1, 2]
    assert kept(epsilon=0.15) == [0, 1, 2]
    assert kept(epsilon=0.5) == [0]
    assert kept(top_k=2, top_p=0.5) == [0]  # of the two, the first has 0.62
    assert kept(temperature=0.5, epsilon=0.1) == [0, 1, 2]  # squared: 0.56, 0.22, 0.14, 0.04, 0.01


def test_equal_probabilities_at_the_border_of_top_k_are_all_kept() -> None:
    left = probable(torch.tensor([[0.4, 0.2, 0.2, 0.2]]).log(), Sampling(top_k=2))
    assert torch.isfinite(left).all()


SAMPLES = ["the cat sat", "a cat sat", "the cat sat", "the dog sat down", "cat", "a cat sits", "the cat sat"]


def drawn(texts: list[str]) -> Translation:
    hypotheses = tuple(
        TextHypothesis(text, -1.0 * n, -2.0 * n, (n,), (-2.0 * n,), finished=True, written_ids=(n, 2))
        for n, text in enumerate(texts)
    )
    return Translation("die Katze saß", texts[0], 0.0, hypotheses) if texts else Translation("", "", 0.0, ())


def test_the_expected_utility_is_the_mean_over_all_samples() -> None:
    found = least_risk(drawn(SAMPLES), sentence_chrf, n_best=9)
    expected = {
        text: sum(sacrebleus_chrf(text, [other]).score for other in SAMPLES) / len(SAMPLES)
        for text in SAMPLES
    }
    ranked = sorted(expected, key=lambda text: -expected[text])
    assert [each.text for each in found.hypotheses] == ranked
    assert [each.score for each in found.hypotheses] == close(
        [expected[text] for text in ranked], FLOAT64.ROW
    )
    assert (found.text, found.score) == (ranked[0], found.hypotheses[0].score)
    assert found.source == "die Katze saß"


def test_equality_as_utility_takes_what_was_drawn_most_often() -> None:
    samples = ["b", "a", "c", "a", "b", "a"]
    found = least_risk(drawn(samples), lambda text, reference: float(text == reference), n_best=2)
    assert [(each.text, each.score) for each in found.hypotheses] == [("a", 0.5), ("b", 2 / 6)]
    assert [each.ids for each in found.hypotheses] == [(1,), (0,)]  # the first that was drawn, as it was
    assert found.hypotheses[0].log_prob == -2.0


def test_equal_utilities_stay_as_they_were_drawn_and_nothing_stays_nothing() -> None:
    assert least_risk(drawn(["b", "a"]), lambda _text, _reference: 1.0).text == "b"
    assert least_risk(drawn([]), sentence_chrf) == Translation("", "", 0.0, ())


def test_a_utility_may_be_of_one_side_alone() -> None:
    longest_reference = least_risk(drawn(["aa", "b"]), lambda text, reference: float(reference > text))
    assert longest_reference.text == "aa"


THREE_SOURCES = [[7, 8, 9], [7], [9, 8, 7, 5]]
THREE_LIMITS = [9, 80, 70]
CHOOSING = Sampling(temperature=1.3, top_k=6, top_p=0.95, min_p=0.01, epsilon=0.001, seed=3)


def test_blocks_of_rows_change_no_bit(monkeypatch: pytest.MonkeyPatch) -> None:
    table = random_table(3, 9, sharpness=0.2)
    options = SearchOptions(n_best=40, strategy=CHOOSING, repetition_penalty=1.2, renormalize=True)
    task = task_of(THREE_LIMITS, options, sources=THREE_SOURCES)
    wanted = searched(TableStep(table, 3), task)
    sizes: list[int] = []
    probable = module.probable

    def counted(scores: Array, sampling: Sampling) -> Array:
        sizes.append(scores.size)
        return probable(scores, sampling)

    monkeypatch.setattr(module, "probable", counted)
    for most in (1, 9, 20, 9 * 41, 9 * 120):
        monkeypatch.setattr(module, "_NUMBERS_AT_ONCE", most)
        sizes.clear()
        assert searched(TableStep(table, 3), task) == wanted
        assert max(sizes) <= max(most, 9)


@pytest.mark.parametrize("rows", [1, 3, 7, 50, 119, 120])
def test_parts_of_the_samples_are_the_samples(monkeypatch: pytest.MonkeyPatch, rows: int) -> None:
    table = random_table(3, 9, sharpness=0.2)
    task = task_of(THREE_LIMITS, SearchOptions(n_best=40, strategy=CHOOSING), sources=THREE_SOURCES)
    wanted = searched(TableStep(table, 3), task)
    steps: list[TableStep] = []

    @contextmanager
    def start() -> Iterator[StepFunction]:
        steps.append(TableStep(table, 3))
        yield steps[-1]

    monkeypatch.setattr(module, "_ROWS_AT_ONCE", rows)
    assert CHOOSING.search(start, replace(task, vocab_size=9)) == wanted
    assert max(count for step in steps for count in step.row_counts) <= max(rows, 3)


def test_random_numbers_can_be_drawn_from_anywhere() -> None:
    whole = random_numbers(1, [5, 6], 2, 1000)
    for start in (0, 4, 64, 640, 996):
        assert np.array_equal(random_numbers(1, [5, 6], 2, 1000 - start, start=start), whole[start:])


def test_a_large_vocabulary_leaves_fewer_samples_at_once() -> None:
    assert samples_at_once(100) == 1024
    assert samples_at_once(250_000) == 134
    assert samples_at_once(2**40) == 1


def test_no_tensor_has_all_samples_in_float64(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_NUMBERS_AT_ONCE", 64 * 9)
    largest: list[int] = []
    softmax = module.softmax

    def counted(array: Array) -> Array:
        largest.append(array.size)
        return softmax(array)

    monkeypatch.setattr(module, "softmax", counted)
    table = random_table(3, 9, sharpness=0.2)
    task = task_of([9], SearchOptions(n_best=500, strategy=Sampling()), sources=[[7]])
    found = searched(TableStep(table, 1), task)
    assert len(found[0]) == 500
    assert max(largest) <= 64 * 9
    assert all(EOS not in each.ids for each in found[0])
