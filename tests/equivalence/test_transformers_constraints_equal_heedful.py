"""What holds tokens back and what forces them: the searches of transformers and of heedful over one model."""

import functools
from collections.abc import Sequence
from typing import Any

import pytest
import torch
import transformers
from searches import searched
from tolerances import FLOAT32, assert_close, close
from torch import Tensor
from transformers_step import (
    EOS,
    NUM_SENTENCES,
    PAD,
    START,
    TransformersStep,
    random_model,
    random_sources,
)

from heedful.decoding.options import SearchOptions
from heedful.decoding.strategies.beam import BeamSearch
from heedful.decoding.task import Hypothesis, SearchTask

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


def ours(
    options: SearchOptions,
    prefixes: list[list[int]] | None = None,
    sources: Sequence[Sequence[int]] = (),
) -> list[Hypothesis]:
    task = SearchTask(
        max_lengths=[LIMIT] * NUM_SENTENCES, start_id=START, eos_id=EOS, pad_id=PAD, options=options,
        prefixes=prefixes, sources=sources,
    )  # fmt: skip
    with torch.inference_mode():
        found = searched(TransformersStep(), task)
    return [hypothesis for hypotheses in found for hypothesis in hypotheses]


def theirs(
    options: SearchOptions,
    prefix: tuple[int, ...] = (),
    processors: Sequence[transformers.LogitsProcessor] = (),
) -> tuple[list[list[int]], Tensor | None]:
    config = transformers.GenerationConfig(
        num_beams=options.strategy.beam_size, num_return_sequences=options.n_best, do_sample=False,
        use_cache=False, length_penalty=options.length_penalty, early_stopping="never",
        max_new_tokens=LIMIT - len(prefix),
        min_length=options.min_length + 1, no_repeat_ngram_size=options.no_repeat_ngram_size,
        repetition_penalty=options.repetition_penalty, renormalize_logits=options.renormalize,
        bad_words_ids=[[PAD]], decoder_start_token_id=START, eos_token_id=EOS, pad_token_id=PAD,
        return_dict_in_generate=True, output_scores=True,
    )  # fmt: skip
    src, mask = random_sources()
    starts = torch.tensor([[START, *prefix]]).expand(NUM_SENTENCES, -1)
    found = log_prob_model().generate(
        src,
        attention_mask=mask,
        generation_config=config,
        decoder_input_ids=starts,
        logits_processor=transformers.LogitsProcessorList(processors),
    )
    return found.sequences[:, 1:].tolist(), found.get("sequences_scores")


def assert_same_ids(found: list[Hypothesis], sequences: list[list[int]]) -> None:
    tokens = [[*each.ids, EOS] if each.finished else list(each.ids) for each in found]
    assert [ids + [PAD] * (len(sequences[0]) - len(ids)) for ids in tokens] == sequences


@pytest.mark.parametrize("beam_size", [1, 4])
@pytest.mark.parametrize("size", [1, 2, 3])
def test_no_ngram_is_repeated_in_either(size: int, beam_size: int) -> None:
    changes = {"strategy": BeamSearch(beam_size=beam_size), "n_best": beam_size}
    options = SearchOptions(**vars(OPTIONS) | changes | {"no_repeat_ngram_size": size})
    found = ours(options)
    sequences, scores = theirs(options)
    assert_same_ids(found, sequences)
    if scores is not None:
        assert [each.score for each in found] == close(scores.tolist(), FLOAT32.SENTENCE)
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
    sequences, scores = theirs(options, processors=[processor])
    assert_same_ids(found, sequences)
    if scores is not None:
        assert [each.score for each in found] == close(scores.tolist(), FLOAT32.SENTENCE)
    assert sum(a.ids != b.ids for a, b in zip(found, without, strict=True)) > len(found) / 2


@pytest.mark.parametrize("renormalize", [False, True])
@pytest.mark.parametrize("beam_size", [1, 4])
@pytest.mark.parametrize("penalty", [0.8, 1.3])
def test_repetition_costs_the_same_in_both(penalty: float, beam_size: int, renormalize: bool) -> None:
    changes = {"strategy": BeamSearch(beam_size=beam_size), "n_best": beam_size, "renormalize": renormalize}
    options = SearchOptions(**vars(OPTIONS) | changes | {"repetition_penalty": penalty})
    found = ours(options)
    assert_same_ids(found, theirs(options)[0])
    without = ours(SearchOptions(**vars(OPTIONS) | changes))
    assert sum(a.ids != b.ids for a, b in zip(found, without, strict=True)) > len(found) / 10


@pytest.mark.parametrize("beam_size", [1, 4])
def test_a_prefix_is_continued_as_in_transformers_and_its_log_probability_is_the_models(
    beam_size: int,
) -> None:
    prefix = (5, 17, 5)
    changes = {"strategy": BeamSearch(beam_size=beam_size), "n_best": beam_size, "length_penalty": 0.0}
    options = SearchOptions(**vars(OPTIONS) | changes)
    found = ours(options, [list(prefix)] * NUM_SENTENCES)
    sequences, scores = theirs(options, prefix)
    assert_same_ids(found, sequences)
    if scores is not None:
        added = [sum(each.token_log_probs[len(prefix) :]) for each in found]
        assert added == close(scores.tolist(), FLOAT32.SENTENCE)
    src, mask = random_sources()
    fed = torch.tensor([[START, *prefix]]).expand(NUM_SENTENCES, -1)
    with torch.inference_mode():
        logits = random_model()(input_ids=src, attention_mask=mask, decoder_input_ids=fed).logits
    own = logits.log_softmax(dim=-1)[:, range(len(prefix)), prefix]
    firsts = [each.token_log_probs[: len(prefix)] for each in found[::beam_size]]
    assert_close(torch.tensor(firsts, dtype=torch.float64), own, FLOAT32.MODEL)
