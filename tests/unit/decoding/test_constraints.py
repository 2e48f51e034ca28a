import math

import numpy as np
import pytest
import torch
from tolerances import FLOAT32, assert_close

from heedful.decoding.backends.torch import TorchTokens
from heedful.decoding.constraints import Candidates, Constraints
from heedful.decoding.options import SearchOptions
from heedful.decoding.task import SearchTask
from heedful.errors import InputError, NotNumbersError

PAD, START, EOS = 0, 1, 2
LOG_PROBS = torch.tensor([[0.1, 0.3, 0.25, 0.2, 0.15], [0.3, 0.1, 0.15, 0.2, 0.25]]).log()


def candidates(
    log_probs: torch.Tensor, count: int, *, written: list[list[int]], start_id: int = START,
    max_lengths: tuple[int, ...] = (99, 99), prefixes: list[list[int]] | None = None,
    sources: list[list[int]] | None = None, **options: object,
) -> Candidates:  # fmt: skip
    asked = SearchOptions(**options)  # type: ignore[arg-type]
    task = SearchTask(
        max_lengths=max_lengths,
        start_id=start_id,
        eos_id=EOS,
        pad_id=PAD,
        options=asked,
        prefixes=prefixes,
        sources=sources or (),
    )
    so_far = np.array(written, dtype=np.int64).reshape(len(written), -1)
    return Constraints(task).candidates(
        TorchTokens(log_probs), count, written=so_far, sentences=np.arange(len(written))
    )


def best(
    count: int, *, length: int = 4, is_last: tuple[bool, bool] = (False, False), **options: object
) -> tuple[list[list[float]], list[list[int]]]:
    limits = tuple(length + 1 if last else 99 for last in is_last)
    written = [[3] * length] * 2
    found = candidates(LOG_PROBS, count, written=written, max_lengths=limits, **options)  # type: ignore[arg-type]
    assert found.log_probs is found.scores
    return np.exp(found.scores).round(4).tolist(), found.ids.tolist()


def test_padding_and_start_are_suppressed_and_nothing_is_renormalised() -> None:
    assert best(2) == ([[0.25, 0.2], [0.25, 0.2]], [[EOS, 3], [4, 3]])


def test_a_list_of_suppressed_ids_replaces_the_usual_ones() -> None:
    assert best(1, suppressed_ids=()) == ([[0.3], [0.3]], [[START], [PAD]])
    assert best(1, suppressed_ids=(START, EOS, 4)) == ([[0.2], [0.3]], [[3], [PAD]])


def test_what_may_be_chosen_is_scaled_up_to_one_where_asked() -> None:
    values, ids = best(3, renormalize=True)
    assert ids == [[EOS, 3, 4], [4, 3, EOS]]
    assert_close(values, [[5 / 12, 4 / 12, 3 / 12]] * 2, FLOAT32.ELEMENT.printed(4))


def test_a_start_that_is_the_end_token_may_be_chosen() -> None:
    assert best(2, start_id=EOS) == ([[0.3, 0.25], [0.25, 0.2]], [[START, EOS], [4, 3]])


def test_the_last_token_is_forced_only_where_the_limit_is() -> None:
    forced = {"forced_last_id": EOS, "min_length": 9}
    assert best(2, is_last=(False, True), **forced) == ([[0.2, 0.15], [1.0, 0.0]], [[3, 4], [EOS, 3]])


@pytest.mark.parametrize("name", ["forced_first_id", "forced_last_id"])
def test_a_forced_token_that_the_model_does_not_have_is_reported(name: str) -> None:
    with pytest.raises(InputError, match=f"^{name}=5"):
        best(1, length=0, is_last=(True, True), **{name: 5})


def test_numbers_that_are_none_are_reported() -> None:
    with pytest.raises(NotNumbersError):
        candidates(torch.full((1, 5), math.nan), 1, written=[[]], max_lengths=(9,), forced_first_id=3)


def test_a_prefix_is_forced_where_it_lasts_with_the_models_own_probability() -> None:
    prefixes = [[START, 3], [4]]
    first = candidates(LOG_PROBS, 2, written=[[], []], prefixes=prefixes)
    assert first.ids[:, 0].tolist() == [START, 4]
    assert np.exp(first.scores).round(4).tolist() == [[0.3, 0.0], [0.25, 0.0]]
    assert np.array_equal(first.log_probs, first.scores)
    second = candidates(LOG_PROBS, 2, written=[[START], [4]], prefixes=prefixes)
    assert second.ids[:, 0].tolist() == [3, 4]
    assert np.exp(second.scores).round(4).tolist() == [[0.2, 0.0], [0.25, 0.2]]


def test_a_prefix_comes_before_what_the_options_force_forbid_and_renormalise() -> None:
    found = candidates(
        LOG_PROBS, 1, written=[[3], [3]], max_lengths=(2, 2), prefixes=[[3, EOS], [3, PAD]], min_length=9,
        forced_last_id=4, renormalize=True, no_repeat_ngram_size=1,
    )  # fmt: skip
    assert found.ids.tolist() == [[EOS], [PAD]]
    assert np.exp(found.scores).round(4).tolist() == [[0.25], [0.3]]


def test_a_prefix_that_the_model_cannot_write_is_reported() -> None:
    with pytest.raises(InputError, match=r"^prefix with the id=5"):
        candidates(LOG_PROBS, 1, written=[[], []], prefixes=[[3], [3, 5]])


def test_no_ngram_of_the_source_comes_again_and_ids_beyond_the_vocabulary_do_not_matter() -> None:
    sources = [[3, START, 4, START, 99], [4, 3]]
    ids = {
        size: candidates(
            LOG_PROBS,
            1,
            written=[[4], [4]],
            sources=sources,
            suppressed_ids=(),
            encoder_no_repeat_ngram_size=size,
        ).ids.ravel()
        for size in (0, 1, 2, 3, 4)
    }
    # The start token is the first of an output, so there is a trigram to repeat.
    wanted = {0: [START, PAD], 1: [EOS, PAD], 2: [EOS, PAD], 3: [EOS, PAD], 4: [START, PAD]}
    assert {size: each.tolist() for size, each in ids.items()} == wanted


def test_no_ngram_comes_twice() -> None:
    written = [[3, 4, 3], [4, 4, 4]]
    ids = {
        size: candidates(LOG_PROBS, 2, written=written, no_repeat_ngram_size=size).ids.tolist()
        for size in (1, 2, 3, 4)
    }
    assert ids[1][0] == [EOS, PAD]  # impossible ones come last, in their order
    assert ids[2] == [[EOS, 3], [3, EOS]]
    assert ids[3] == [[EOS, 3], [3, EOS]]
    assert ids[4] == [[EOS, 3], [4, 3]]


def test_a_repetition_penalty_moves_the_choice_and_no_log_probability() -> None:
    found = candidates(LOG_PROBS, 3, written=[[EOS], [PAD]], repetition_penalty=1.5)
    assert found.ids.tolist() == [[3, 4, EOS], [4, 3, EOS]]
    assert np.exp(found.log_probs).round(4).tolist() == [[0.2, 0.15, 0.25], [0.25, 0.2, 0.15]]
    assert np.exp(found.scores).round(4).tolist() == [[0.2, 0.15, 0.25**1.5], [0.25, 0.2, 0.15]]


def test_what_is_held_back_is_renormalised_on_both_sides() -> None:
    found = candidates(LOG_PROBS[:1], 3, written=[[EOS]], repetition_penalty=2.0, renormalize=True)
    assert_close(np.exp(found.log_probs), [[0.2 / 0.6, 0.15 / 0.6, 0.25 / 0.6]], FLOAT32.ELEMENT)
    assert_close(np.exp(found.scores) * (0.2 + 0.15 + 0.0625), [[0.2, 0.15, 0.0625]], FLOAT32.ELEMENT)
