import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any
from unittest import TestCase

import pytest
import torch
from tagged_bundle import nllb_like
from tiny_bundle import PAIRS, SOURCES, SURE, TARGETS, memorised
from tolerances import FLOAT32, FLOAT64, assert_apart, close, format_of

from heedful.decoding.backends.choice import choose_backend
from heedful.decoding.backends.torch import ForcedStep, ModelStep
from heedful.decoding.options import SearchOptions
from heedful.decoding.strategies.beam import BeamSearch, DiverseBeamSearch
from heedful.decoding.strategies.sampling import Sampling
from heedful.decoding.texts import Target
from heedful.decoding.translation import ScoredText, TextHypothesis
from heedful.decoding.translator import Translator
from heedful.errors import InputError
from heedful.model.transformer import Transformer
from heedful.settings.options import Precision
from heedful.settings.run import Config
from heedful.storage.bundle import Bundle

pytestmark = pytest.mark.by_class

NOTHING = ScoredText("", 0.0, 0.0, (), (), finished=True, written_ids=(), model_log_probs=())


def fresh(**changes: object) -> Bundle:
    """A random model with the tokenizers of the one that knows the pairs."""
    bundle = memorised()
    config = bundle.config.model.replace(**changes)
    torch.manual_seed(4)
    return Bundle(Config(model=config), bundle.tokenizers, Transformer.from_config(config).eval())


SEARCHES = {
    "the bundle's": None,
    "greedy": SearchOptions(strategy=BeamSearch(beam_size=1)),
    "average": SearchOptions(n_best=4, length_penalty=1.0, length_normalization="power"),
    "renormalised": SearchOptions(n_best=4, renormalize=True, suppressed_ids=(0, 1, 2)),
    "without repetition": SearchOptions(
        n_best=3, no_repeat_ngram_size=2, repetition_penalty=1.3, renormalize=True
    ),
    "in groups": SearchOptions(n_best=4, strategy=DiverseBeamSearch(num_groups=2, diversity_penalty=1.0)),
    "sampled": SearchOptions(n_best=5, strategy=Sampling(seed=3, temperature=1.5)),
}


def assert_scored_as_found(translator: Translator, options: SearchOptions | None) -> None:
    """Compare all hypotheses as they were written, and as texts where the tokenizer cuts them like that."""
    encode, texts_compared = memorised().tokenizers.tgt.encode, 0
    for translation in translator.translations(SOURCES, options=options):
        found = translation.hypotheses
        given: list[Target] = [each.written_ids for each in found]
        scored = translator.score([translation.source] * len(found), given, options=options)
        as_texts = translator.score(
            [translation.source] * len(found), [each.text for each in found], options=options
        )
        for one, as_text, other in zip(scored, as_texts, found, strict=True):
            assert_same(one, other)
            if other.finished and [*other.ids] == encode(other.text):
                assert_same(as_text, other)
                texts_compared += 1
    assert texts_compared >= len(SOURCES)


def assert_same(scored: ScoredText, found: TextHypothesis) -> None:
    assert (scored.text, scored.written_ids, scored.finished) == (
        found.text,
        found.written_ids,
        found.finished,
    )
    assert scored.token_log_probs == close(found.token_log_probs, FLOAT32.MODEL)
    assert (scored.log_prob, scored.score) == close((found.log_prob, found.score), FLOAT32.SENTENCE)


@pytest.mark.parametrize("name", SEARCHES)
def test_a_translation_has_the_numbers_it_was_found_with(name: str) -> None:
    assert_scored_as_found(Translator(memorised(), engine="torch"), SEARCHES[name])


def test_pairs_keep_their_order_and_a_pair_of_nothing_is_certain() -> None:
    translator = Translator(memorised())
    sources, targets = ["", *SOURCES, "  ", SOURCES[0]], ["", *TARGETS, "\t", TARGETS[0]]
    found = translator.score(sources, targets)
    assert [each.text for each in found] == targets
    assert (found[0], found[-2]) == (NOTHING, replace(NOTHING, text="\t"))
    assert translator.translations([""])[0].score == NOTHING.score
    assert found[1].score == close(found[-1].score, FLOAT32.SENTENCE)
    assert translator.score([], []) == []


def test_where_one_side_is_empty_the_model_is_asked() -> None:
    model, tokenizers = memorised().model, memorised().tokenizers
    src, tgt = tokenizers.src, tokenizers.tgt
    nothing_said, nothing_read = Translator(memorised()).score([SOURCES[0], " "], ["", TARGETS[0]])
    first = model(torch.tensor([[*src.encode(SOURCES[0]), src.eos_id]]), torch.tensor([[tgt.bos_id]]))
    assert nothing_said.ids == ()
    assert nothing_said.token_log_probs == close(
        [first.log_softmax(-1)[0, 0, tgt.eos_id].item()], FLOAT32.MODEL
    )
    assert len(nothing_read.token_log_probs) == len(tgt.encode(TARGETS[0])) + 1
    assert nothing_said.score < -2 and nothing_read.score < -2


@pytest.mark.parametrize("chunk_lines", [1, 4, 1024])
def test_a_stream_gives_what_lists_give_and_is_read_a_chunk_ahead(chunk_lines: int) -> None:
    read = 0

    def pairs() -> Iterator[tuple[str, str]]:
        nonlocal read
        for pair in PAIRS:
            read += 1
            yield pair

    translator = Translator(memorised())
    stream = translator.score_lines(pairs(), chunk_lines=chunk_lines)
    first = next(stream)
    assert read == min(chunk_lines, len(PAIRS))
    found = [each.score for each in (first, *stream)]
    assert found == close([each.score for each in translator.score(SOURCES, TARGETS)], FLOAT32.SENTENCE)


def test_the_tag_of_the_language_is_certain_and_counts() -> None:
    bundle = nllb_like()
    model, src, tgt = bundle.model, bundle.tokenizers.src, bundle.tokenizers.tgt
    german = tgt.tag_id("deu_Latn")
    [found] = Translator(bundle).score(["the house"], ["das Haus"])
    ids = [german, *tgt.encode("das Haus"), tgt.eos_id]
    logits = model(
        torch.tensor([[src.tag_id("eng_Latn"), *src.encode("the house"), src.eos_id]]),
        torch.tensor([[tgt.eos_id, *ids[:-1]]]),
    )
    wanted = logits.log_softmax(-1)[0, range(len(ids)), ids].tolist()
    assert found.ids == tuple(ids[:-1])
    assert found.token_log_probs == close([0.0, *wanted[1:]], FLOAT32.MODEL)
    assert found.score == close(found.log_prob / ((5 + len(ids)) / 6) ** 0.6, FLOAT64.ELEMENT)
    [french] = Translator(bundle).for_languages(tgt_lang="fra_Latn").score(["the house"], ["das Haus"])
    assert french.ids == (tgt.tag_id("fra_Latn"), *ids[1:-1])
    assert french.token_log_probs[0] == 0.0
    assert_apart(french.log_prob, found.log_prob, FLOAT32.SENTENCE)


def test_a_forced_first_token_that_the_text_does_not_show_stands_before_it() -> None:
    translator = Translator(memorised())
    forced = SearchOptions(forced_first_id=1)
    [found] = translator.score(SOURCES[:1], TARGETS[:1], options=forced)
    ids = memorised().tokenizers.tgt.encode(TARGETS[0])
    assert found.ids == (1, *ids)
    assert found.token_log_probs[0] == 0.0
    [shown] = translator.score(SOURCES[:1], TARGETS[:1], options=replace(forced, forced_first_id=ids[0]))
    assert shown.ids == tuple(ids)
    assert shown.token_log_probs[0] == 0.0


def test_a_line_beyond_learned_positions_is_named_with_its_side() -> None:
    translator = Translator(fresh(positions="learned", max_positions=12))
    long_line = " ".join(["der Hund"] * 6)
    with TestCase().assertLogs() as logs:
        alone, left_out = translator.score(["the dog", " ".join(["the dog"] * 6)], ["der Hund"] * 2)
    assert "source line 2: " in logs.output[0]
    assert math.isnan(left_out.score)
    pair = ("the dog", "der Hund")
    with TestCase().assertLogs() as logs:
        *scored, last = translator.score_lines([pair, pair, ("the dog", long_line), pair], chunk_lines=2)
    assert [scored[0], scored[1], last] == [alone] * 3
    assert (scored[2].text, scored[2].token_log_probs) == (long_line, ())
    assert math.isnan(scored[2].model_log_prob)
    [said] = logs.output
    assert "target line 3: " in said
    assert "max_positions=12" in said


@pytest.mark.parametrize(
    ("precision", "kind"), [("float32", ForcedStep), ("bf16", ModelStep), ("fp16", ModelStep)]
)
def test_torch_takes_all_places_at_once_only_where_rounding_is_small(
    precision: Precision, kind: type
) -> None:
    backend = choose_backend([memorised().model], precision=precision, engine="torch")
    with backend.forced_step([[5, 3]], [[6, 3]], start_id=2) as step:
        assert isinstance(step, kind)


@pytest.mark.parametrize("precision", ["bf16", "fp16"])
def test_scores_are_computed_in_the_precision(precision: Precision) -> None:
    exact = Translator(memorised()).score(SOURCES, TARGETS)
    rounded = Translator(memorised(), precision=precision).score(SOURCES, TARGETS)
    assert [each.score for each in rounded] != [each.score for each in exact]
    assert [each.score for each in rounded] == close(
        [each.score for each in exact], format_of(precision).MODEL.at(SURE)
    )


def test_bad_arguments_are_input_errors() -> None:
    translator = Translator(memorised())
    with pytest.raises(InputError, match=r"^targets"):
        translator.score(SOURCES, TARGETS[:5])
    with pytest.raises(InputError, match="sources='ab'"):
        translator.score("ab", ["a", "b"])
    with pytest.raises(InputError, match="targets='ab'"):
        translator.score(["a", "b"], "ab")
    with pytest.raises(InputError, match="chunk_lines=0"):
        next(translator.score_lines(PAIRS, chunk_lines=0))


@pytest.mark.parametrize("ids", [[1.5], [-1, 3], [10**6], [2**70]])
def test_ids_that_are_none_are_named_as_such(ids: list[Any]) -> None:
    with pytest.raises(InputError, match=r"^target(s: number| line) 1"):
        Translator(memorised()).score(["the cat"], [ids])
