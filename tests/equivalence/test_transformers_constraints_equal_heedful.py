"""What holds tokens back and what forces them: the searches of transformers and of heedful over one model."""

import functools
from collections.abc import Sequence
from typing import Any

import pytest
import torch
import transformers
from tolerances import FLOAT32, assert_close
from transformers_step import (
    NUM_SENTENCES,
    PAD,
    START,
    assert_same,
    generated,
    random_model,
    random_sources,
    searched_here,
)

from heedful.decoding.options import SearchOptions
from heedful.decoding.strategies.beam import BeamSearch
from heedful.decoding.task import Hypothesis

LIMIT = 12
OPTIONS = SearchOptions(
    strategy=BeamSearch(beam_size=4),
    n_best=4,
    length_penalty=1.0,
    length_normalization="power",
    min_length=7,
)


class LogProbModel(transformers.MarianMTModel):
    """A model whose logits are log-probabilities: their greedy search, alone, holds back raw logits."""

    def forward(self, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
        found = super().forward(*args, **kwargs)
        found.logits = found.logits.float().log_softmax(dim=-1)
        return found


@functools.cache
def log_prob_model() -> LogProbModel:
    """The random model, with an end token so improbable that outputs have time to repeat themselves."""
    model = LogProbModel(random_model().config).double().eval()
    model.load_state_dict(random_model().state_dict())
    return model


def ours(options: SearchOptions, **task: Any) -> list[Hypothesis]:  # noqa: ANN401
    found = searched_here(options, limit=LIMIT, **task)
    return [hypothesis for hypotheses in found for hypothesis in hypotheses]


def theirs(options: SearchOptions, *, prefix: Sequence[int] = (), **more: Any) -> Any:  # noqa: ANN401
    return generated(
        options, model=log_prob_model(), prefix=prefix, early_stopping="never",
        max_new_tokens=LIMIT - len(prefix), min_length=options.min_length + 1, bad_words_ids=[[PAD]],
        no_repeat_ngram_size=options.no_repeat_ngram_size, repetition_penalty=options.repetition_penalty,
        renormalize_logits=options.renormalize, **more,
    )  # fmt: skip


@pytest.mark.parametrize("beam_size", [1, 4])
@pytest.mark.parametrize("size", [1, 2, 3])
def test_no_ngram_is_repeated_in_either(size: int, beam_size: int) -> None:
    changes = {"strategy": BeamSearch(beam_size=beam_size), "n_best": beam_size}
    options = SearchOptions(**vars(OPTIONS) | changes | {"no_repeat_ngram_size": size})
    found = ours(options)
    assert_same(found, theirs(options))
    without = ours(SearchOptions(**vars(OPTIONS) | changes))
    assert sum(a.ids != b.ids for a, b in zip(found, without, strict=True)) > len(found) / 10


@pytest.mark.parametrize("beam_size", [1, 4])
@pytest.mark.parametrize("size", [1, 2, 3])
def test_no_ngram_of_the_source_is_repeated_in_either(size: int, beam_size: int) -> None:
    changes = {"strategy": BeamSearch(beam_size=beam_size), "n_best": beam_size}
    without = ours(SearchOptions(**vars(OPTIONS) | changes))
    # What is written without the constraint has n-grams to forbid.
    sources = [list(each.ids) + [PAD] * (LIMIT - len(each.ids)) for each in without[::beam_size]]
    options = SearchOptions(**vars(OPTIONS) | changes | {"encoder_no_repeat_ngram_size": size})
    found = ours(options, sources=sources)
    processor = transformers.EncoderNoRepeatNGramLogitsProcessor(size, torch.tensor(sources))
    assert_same(found, theirs(options, processors=[processor]))
    assert sum(a.ids != b.ids for a, b in zip(found, without, strict=True)) > len(found) / 2


@pytest.mark.parametrize("renormalize", [False, True])
@pytest.mark.parametrize("beam_size", [1, 4])
@pytest.mark.parametrize("penalty", [0.8, 1.3])
def test_repetition_costs_the_same_in_both(penalty: float, beam_size: int, renormalize: bool) -> None:
    changes = {"strategy": BeamSearch(beam_size=beam_size), "n_best": beam_size, "renormalize": renormalize}
    options = SearchOptions(**vars(OPTIONS) | changes | {"repetition_penalty": penalty})
    found = ours(options)
    assert_same(found, (theirs(options)[0], None))
    without = ours(SearchOptions(**vars(OPTIONS) | changes))
    assert sum(a.ids != b.ids for a, b in zip(found, without, strict=True)) > len(found) / 10


@pytest.mark.parametrize("beam_size", [1, 4])
def test_a_prefix_is_continued_as_in_transformers_and_its_log_probability_is_the_models(
    beam_size: int,
) -> None:
    prefix = (5, 17, 5)
    changes = {"strategy": BeamSearch(beam_size=beam_size), "n_best": beam_size, "length_penalty": 0.0}
    options = SearchOptions(**vars(OPTIONS) | changes)
    found = ours(options, prefixes=[list(prefix)] * NUM_SENTENCES)
    assert_same(found, theirs(options, prefix=prefix), but=len(prefix))
    src, mask = random_sources()
    fed = torch.tensor([[START, *prefix]]).expand(NUM_SENTENCES, -1)
    with torch.inference_mode():
        logits = random_model()(input_ids=src, attention_mask=mask, decoder_input_ids=fed).logits
    own = logits.log_softmax(dim=-1)[:, range(len(prefix)), prefix]
    firsts = [each.token_log_probs[: len(prefix)] for each in found[::beam_size]]
    assert_close(torch.tensor(firsts, dtype=torch.float64), own, FLOAT32.MODEL)
