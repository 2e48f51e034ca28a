"""Many samples take bounded memory, and are the same as drawn at once, to the last bit."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import numpy as np
import pytest
from searches import searched
from step_tables import EOS, TableStep, random_table, task_of

from heedful.decoding.options import SearchOptions
from heedful.decoding.steps import Array, StepFunction
from heedful.decoding.strategies import sampling as module
from heedful.decoding.strategies.sampling import Sampling, random_numbers, samples_at_once

SOURCES = [[7, 8, 9], [7], [9, 8, 7, 5]]
LIMITS = [9, 80, 70]
CHOOSING = Sampling(temperature=1.3, top_k=6, top_p=0.95, min_p=0.01, epsilon=0.001, seed=3)


def test_blocks_of_rows_change_no_bit(monkeypatch: pytest.MonkeyPatch) -> None:
    table = random_table(3, 9, sharpness=0.2)
    options = SearchOptions(n_best=40, strategy=CHOOSING, repetition_penalty=1.2, renormalize=True)
    task = task_of(LIMITS, options, sources=SOURCES)
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
    task = task_of(LIMITS, SearchOptions(n_best=40, strategy=CHOOSING), sources=SOURCES)
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
