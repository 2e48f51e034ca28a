"""The searches of transformers and of heedful over one and the same model: only the search differs."""

from collections.abc import Callable

import pytest
import torch
import transformers
from searches import searched_by_beam, searched_greedily
from tolerances import FLOAT32, close
from torch import Tensor
from transformers_step import (
    BOS,
    EOS,
    NUM_SENTENCES,
    PAD,
    START,
    TransformersStep,
    random_model,
    random_sources,
)

from heedful.decoding.options import SearchOptions
from heedful.decoding.steps import StepFunction
from heedful.decoding.strategies.beam import BeamSearch
from heedful.decoding.task import Hypothesis, SearchTask
from heedful.settings.options import EarlyStopping

LIMIT = 11
THEIR_STOPPING: dict[EarlyStopping, bool | str] = {"estimate": False, "first": True, "optimal": "never"}


def ours(
    search: Callable[[StepFunction, SearchTask], list[list[Hypothesis]]],
    options: SearchOptions,
    *,
    limit: int,
    start_id: int,
) -> list[Hypothesis]:
    task = SearchTask(
        max_lengths=[limit] * NUM_SENTENCES, start_id=start_id, eos_id=EOS, pad_id=PAD, options=options
    )
    with torch.inference_mode():
        found = search(TransformersStep(), task)
    assert all(len(hypotheses) == options.n_best for hypotheses in found)
    return [hypothesis for hypotheses in found for hypothesis in hypotheses]


def theirs(options: SearchOptions, *, limit: int, start_id: int) -> tuple[list[list[int]], Tensor | None]:
    """Their outputs, padded at the end to one length, and their scores, if this search of theirs has any."""
    suppressed = {PAD, start_id} - {EOS} if options.suppressed_ids is None else options.suppressed_ids
    config = transformers.GenerationConfig(
        num_beams=options.strategy.beam_size, num_return_sequences=options.n_best, do_sample=False,
        use_cache=False, length_penalty=options.length_penalty,
        early_stopping=THEIR_STOPPING[options.strategy.early_stopping],
        max_new_tokens=limit, min_new_tokens=options.min_length or None,
        forced_bos_token_id=options.forced_first_id, forced_eos_token_id=options.forced_last_id,
        bad_words_ids=[[i] for i in suppressed] or None, decoder_start_token_id=start_id, eos_token_id=EOS,
        pad_token_id=PAD, renormalize_logits=options.renormalize, return_dict_in_generate=True,
        output_scores=True,
    )  # fmt: skip
    src, mask = random_sources()
    found = random_model().generate(src, attention_mask=mask, generation_config=config)
    return found.sequences[:, 1:].tolist(), found.get("sequences_scores")


def check(options: SearchOptions, *, limit: int = LIMIT, start_id: int = START) -> list[Hypothesis]:
    found = ours(searched_by_beam, options, limit=limit, start_id=start_id)
    sequences, scores = theirs(options, limit=limit, start_id=start_id)
    tokens = [[*each.ids, EOS] if each.finished else list(each.ids) for each in found]
    assert [ids + [PAD] * (len(sequences[0]) - len(ids)) for ids in tokens] == sequences
    if scores is not None:
        assert [each.score for each in found] == close(scores.tolist(), FLOAT32.SENTENCE)
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
    assert check(options) == ours(searched_greedily, options, limit=LIMIT, start_id=START)
