"""Comparisons within the table's bounds hold, all others fail; how near they came is written if asked for."""

import json
import math
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from tolerances import BF16, FLOAT32, FLOAT64, VARIABLE, assert_apart, assert_close, close, sampled

from near_bounds import nearest

ROW = FLOAT32.ROW
TENSOR = partial(torch.tensor, dtype=torch.float64)


@pytest.fixture(autouse=True)
def _writes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """The failures here are no failures of a test."""
    monkeypatch.delenv(VARIABLE, raising=False)


def test_a_bound_follows_from_the_roundings_and_the_scale() -> None:
    assert ROW.rtol == ROW.atol == 2 * math.sqrt(256) * torch.finfo(torch.float32).eps
    assert FLOAT64.MODEL.atol / FLOAT32.MODEL.atol == 2.0**-29
    assert BF16.MODEL.at(0.5).atol == BF16.MODEL.atol / 2
    assert FLOAT32.SENTENCE.printed(3).atol == FLOAT32.SENTENCE.atol + 0.001
    assert sampled(2.0, 100).over(1.0) == pytest.approx(1.6)


@pytest.mark.parametrize("wrap", [float, lambda x: [1.0, x], lambda x: {"a": (2.0, x)}, np.array, TENSOR])
def test_what_is_within_the_bound_is_close_and_what_is_not_fails(wrap: object) -> None:
    assert callable(wrap)
    wanted, allowed = wrap(3.0), ROW.over(3.0)
    assert wrap(3.0 + 0.9 * allowed) == close(wanted, ROW)
    assert_close(wrap(3.0 - 0.9 * allowed), wanted, ROW)
    for other in (3.0 + 1.1 * allowed, math.nan, math.inf):
        assert wrap(other) != close(wanted, ROW)
        with pytest.raises(AssertionError, match=r"ROW"):
            assert_close(wrap(other), wanted, ROW)


def test_infinity_is_close_to_itself_and_nan_to_nothing() -> None:
    assert_close([-math.inf, 1.0], [-math.inf, 1.0], ROW)
    assert_close(torch.tensor([-math.inf, 1.0]), [-math.inf, 1.0], ROW)
    for wanted in (math.inf, math.nan, 1.0):
        assert math.nan != close(wanted, ROW)
    assert -math.inf != close(math.inf, ROW)


@pytest.mark.parametrize(
    ("found", "wanted"),
    [
        ([1.0], [1.0, 1.0]),
        ({"a": 1.0}, {"b": 1.0}),
        (None, 1.0),
        ("1", 1.0),
        (torch.ones(2, 1), torch.ones(2)),
        (torch.ones(3), [1.0, 1.0]),
        (torch.ones(2), torch.ones(2, dtype=torch.float64)),
        (["a", 1.0], ["b", 1.0]),
    ],
)
def test_other_shapes_types_and_texts_are_not_close(found: object, wanted: object) -> None:
    assert found != close(wanted, ROW)


def test_what_must_be_apart_may_not_be_within_the_bound() -> None:
    assert_apart(np.array([1.0, 1.0 + 4 * ROW.over(1.0)]), np.ones(2), ROW)
    with pytest.raises(AssertionError):
        assert_apart(np.array([1.0, 1.0 + 0.9 * ROW.over(1.0)]), np.ones(2), ROW)


def test_how_near_each_comparison_came_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, str(tmp_path / "nearness"))
    for part in (0.25, 0.75, 0.0):
        assert_close([5.0, part * ROW.atol], [5.0, 0.0], ROW)
    assert_apart(np.array([4 * ROW.atol, 0.0]), np.zeros(2), ROW)
    rows = [json.loads(line) for line in (tmp_path / "nearness").read_text().splitlines()]
    assert [row["ratio"] for row in rows] == pytest.approx([0.25, 0.75, 0.0, 0.25])
    assert {row["bound"] for row in rows} == {"FLOAT32.ROW"}
    assert all(row["test"].endswith("test_how_near_each_comparison_came_is_written") for row in rows)
    assert [row["ratio"] for row in nearest(rows)] == pytest.approx([0.75, 0.25])  # of two lines
