"""Comparisons within the bounds of the table hold, and all others fail."""

import math
from functools import partial

import numpy as np
import pytest
import torch
from tolerances import BF16, FLOAT32, FLOAT64, VARIABLE, assert_apart, assert_close, close, sampled

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
    assert sampled(2.0, 100).over(1.0) == pytest.approx(1.6)


@pytest.mark.parametrize("wrap", [float, lambda x: [1.0, x], lambda x: {"a": (2.0, x)}, np.array, TENSOR])
def test_values_within_the_bound_are_close_and_others_fail(wrap: object) -> None:
    assert callable(wrap)
    wanted, allowed = wrap(3.0), ROW.over(3.0)
    assert wrap(3.0 + 0.9 * allowed) == close(wanted, ROW)
    for other in (3.0 + 1.1 * allowed, math.nan, math.inf):
        assert wrap(other) != close(wanted, ROW)
        with pytest.raises(AssertionError, match="ROW"):
            assert_close(wrap(other), wanted, ROW)


def test_infinity_is_close_to_itself_and_nan_to_nothing() -> None:
    assert_close([-math.inf, 1.0], [-math.inf, 1.0], ROW)
    assert all(math.nan != close(wanted, ROW) for wanted in (math.inf, math.nan, 1.0))
    assert -math.inf != close(math.inf, ROW)


@pytest.mark.parametrize(
    ("found", "wanted"),
    [
        ([1.0], [1.0, 1.0]), ({"a": 1.0}, {"b": 1.0}), (None, 1.0), ("1", 1.0), (["a", 1.0], ["b", 1.0]),
        (torch.ones(2, 1), torch.ones(2)), (torch.ones(2), torch.ones(2, dtype=torch.float64)),
    ],
)  # fmt: skip
def test_other_shapes_types_and_texts_are_not_close(found: object, wanted: object) -> None:
    assert found != close(wanted, ROW)


def test_values_within_the_bound_are_not_apart() -> None:
    assert_apart(np.array([1.0, 1.0 + 4 * ROW.over(1.0)]), np.ones(2), ROW)
    with pytest.raises(AssertionError):
        assert_apart(np.array([1.0, 1.0 + 0.9 * ROW.over(1.0)]), np.ones(2), ROW)
