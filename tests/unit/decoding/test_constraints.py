import math

import numpy as np
import pytest
import torch

from heedful.decoding.constraints import Constraints
from heedful.decoding.options import SearchOptions
from heedful.errors import InputError

PAD, START, EOS = 0, 1, 2
LOG_PROBS = torch.tensor([[0.1, 0.3, 0.25, 0.2, 0.15], [0.3, 0.1, 0.15, 0.2, 0.25]]).log()


def best(
    count: int, *, length: int = 4, is_last: tuple[bool, bool] = (False, False), start_id: int = START,
    **options: object,
) -> tuple[list[list[float]], list[list[int]]]:  # fmt: skip
    asked = SearchOptions(**options)  # type: ignore[arg-type]
    constraints = Constraints.of(asked, start_id=start_id, eos_id=EOS, pad_id=PAD)
    values, ids = constraints.candidates(LOG_PROBS, count, length=length, is_last=np.array(is_last))
    return np.exp(values).round(4).tolist(), ids.tolist()


def test_padding_and_start_are_suppressed_and_nothing_is_renormalised() -> None:
    assert best(2) == ([[0.25, 0.2], [0.25, 0.2]], [[EOS, 3], [4, 3]])


def test_a_list_of_suppressed_ids_replaces_the_usual_ones() -> None:
    assert best(1, suppressed_ids=()) == ([[0.3], [0.3]], [[START], [PAD]])
    assert best(1, suppressed_ids=(START, EOS, 4)) == ([[0.2], [0.3]], [[3], [PAD]])


def test_what_may_be_chosen_is_scaled_up_to_one_where_asked() -> None:
    values, ids = best(3, renormalize=True)
    assert ids == [[EOS, 3, 4], [4, 3, EOS]]
    assert np.allclose(values, [[5 / 12, 4 / 12, 3 / 12]] * 2, atol=1e-4)


def test_a_start_that_is_the_end_token_may_be_chosen() -> None:
    assert best(2, start_id=EOS) == ([[0.3, 0.25], [0.25, 0.2]], [[START, EOS], [4, 3]])


def test_the_end_token_waits_for_the_minimal_length() -> None:
    assert best(1, length=3, min_length=3)[1] == [[EOS], [4]]
    assert best(1, length=2, min_length=3)[1] == [[3], [4]]


def test_a_forced_token_is_the_only_one_and_certain() -> None:
    assert best(1, length=0, forced_first_id=4, suppressed_ids=(4,)) == ([[1.0], [1.0]], [[4], [4]])
    assert best(2, length=0, forced_first_id=4)[0] == [[1.0, 0.0], [1.0, 0.0]]
    assert best(1, length=1, forced_first_id=4)[1] == [[EOS], [4]]


def test_the_last_token_is_forced_only_where_the_limit_is() -> None:
    forced = {"forced_last_id": EOS, "min_length": 9}
    assert best(2, is_last=(False, True), **forced) == ([[0.2, 0.15], [1.0, 0.0]], [[3, 4], [EOS, 3]])


def test_a_place_that_is_first_and_last_goes_to_the_last_token() -> None:
    assert best(1, length=0, is_last=(True, False), forced_first_id=4, forced_last_id=EOS)[1] == [[EOS], [4]]


@pytest.mark.parametrize("name", ["forced_first_id", "forced_last_id"])
def test_a_forced_token_that_the_model_does_not_have_is_reported(name: str) -> None:
    with pytest.raises(InputError, match=f"^{name}=5: the model has 5 tokens"):
        best(1, length=0, is_last=(True, True), **{name: 5})


def test_numbers_that_are_none_are_reported() -> None:
    constraints = Constraints.of(SearchOptions(forced_first_id=3), start_id=START, eos_id=EOS, pad_id=PAD)
    with pytest.raises(InputError, match="not numbers"):
        constraints.candidates(torch.full((1, 5), math.nan), 1, length=0, is_last=np.zeros(1, dtype=bool))
