"""The searches of transformers and of heedful over one and the same model: only the search differs."""

import pytest
from searches import searched_by_beam, searched_greedily
from transformers_step import BOS, EOS, NUM_SENTENCES, PAD, START, assert_same, generated, searched_here

from heedful.decoding.options import SearchOptions
from heedful.decoding.strategies.beam import BeamSearch
from heedful.decoding.task import Hypothesis
from heedful.settings.options import EarlyStopping

LIMIT = 11
THEIR_STOPPING: dict[EarlyStopping, bool | str] = {"estimate": False, "first": True, "optimal": "never"}


def check(options: SearchOptions, *, limit: int = LIMIT, start_id: int = START) -> list[Hypothesis]:
    found = [
        hypothesis
        for hypotheses in searched_here(options, searched_by_beam, limit=limit, start_id=start_id)
        for hypothesis in hypotheses
    ]
    suppressed = {PAD, start_id} - {EOS} if options.suppressed_ids is None else options.suppressed_ids
    theirs = generated(
        options, start_id=start_id, max_new_tokens=limit, min_new_tokens=options.min_length or None,
        early_stopping=THEIR_STOPPING[options.strategy.early_stopping],
        forced_bos_token_id=options.forced_first_id, forced_eos_token_id=options.forced_last_id,
        bad_words_ids=[[i] for i in suppressed] or None, renormalize_logits=options.renormalize,
    )  # fmt: skip
    assert len(found) == NUM_SENTENCES * options.n_best
    assert_same(found, theirs)
    return found


@pytest.mark.parametrize("alpha", [0.0, 0.6, 1.0, 2.0])
@pytest.mark.parametrize("early_stopping", ["estimate", "first", "optimal"])
@pytest.mark.parametrize(("beam_size", "n_best"), [(2, 2), (4, 1), (5, 5)])
def test_every_beam_ending_and_penalty(
    beam_size: int, n_best: int, early_stopping: EarlyStopping, alpha: float
) -> None:
    found = check(
        SearchOptions(
            strategy=BeamSearch(beam_size=beam_size, early_stopping=early_stopping),
            n_best=n_best,
            length_penalty=alpha,
            length_normalization="power",
        )
    )
    lengths = {len(each.ids) for each in found if each.finished}
    assert len(lengths) > (1 if alpha == 2 else 4)  # outputs end anywhere, or most of them late
    assert {each.finished for each in found} == {True, False}


@pytest.mark.parametrize("early_stopping", ["estimate", "first", "optimal"])
@pytest.mark.parametrize(
    ("limit", "start_id", "changes"),
    [
        (1, START, {}),
        (3, START, {}),
        (6, START, {"min_length": 3}),
        (6, START, {"forced_last_id": EOS}),
        (7, START, {"forced_first_id": 9}),
        (5, EOS, {"forced_first_id": BOS, "forced_last_id": EOS, "suppressed_ids": ()}),
        (6, START, {"suppressed_ids": (PAD, 4, 5, 6, 7), "min_length": 2, "forced_last_id": EOS}),
        (6, START, {"suppressed_ids": (PAD, 4, 5, 6, 7), "min_length": 2, "renormalize": True}),
    ],
)
def test_limits_and_forced_and_suppressed_tokens(
    limit: int, start_id: int, changes: dict[str, object], early_stopping: EarlyStopping
) -> None:
    options = SearchOptions(
        strategy=BeamSearch(beam_size=4, early_stopping=early_stopping),
        n_best=4,
        length_penalty=1.0,
        length_normalization="power",
        **changes,  # type: ignore[arg-type]
    )
    found = check(options, limit=limit, start_id=start_id)
    assert max(len(each.token_log_probs) for each in found) == limit
    assert all(each.finished for each in found) == ("forced_last_id" in changes)


@pytest.mark.parametrize(
    "changes",
    [{}, {"forced_first_id": BOS, "forced_last_id": EOS}, {"suppressed_ids": (PAD, 4, 5), "min_length": 2}],
)
def test_a_beam_of_one_is_their_greedy_search(changes: dict[str, object]) -> None:
    options = SearchOptions(strategy=BeamSearch(beam_size=1), **changes)  # type: ignore[arg-type]
    assert [[each] for each in check(options)] == searched_here(options, searched_greedily, limit=LIMIT)
