"""The engine with guesses, which it takes several at a time, beside the same engine without."""

from collections.abc import Sequence
from copy import deepcopy
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from tiny_bundle import PAIRS, memorised
from torch import Tensor

from heedful import Translator
from heedful.config import ModelConfig
from heedful.decoding.engine import Engine, EnginePrecision
from heedful.decoding.engine_step import EngineStep
from heedful.decoding.engine_tokens import EngineShortlist, EngineTokens
from heedful.decoding.options import SearchOptions
from heedful.decoding.search import search
from heedful.decoding.speculation import Lookup
from heedful.decoding.task import SearchTask
from heedful.errors import InputError
from heedful.model import Transformer
from heedful.text import TokenizerPair
from heedful.training.parallel.threads import using_threads

PRECISIONS: tuple[EnginePrecision, ...] = ("float32", "bf16", "int8")
PAD, BOS, EOS, VOCAB_SIZE = 0, 1, 2, 40
OPTIONS = {
    "plain": SearchOptions(beam_size=1),
    "suppressed": SearchOptions(beam_size=1, suppressed_ids=(0, 1, 7, 9, 30), renormalize=True),
    "long": SearchOptions(beam_size=1, min_length=30, no_repeat_ngram_size=9),
    "forced ends": SearchOptions(beam_size=1, forced_first_id=5, forced_last_id=2),
}


class CountingStep(EngineStep):
    """Counts how often it is asked, and for how many rows."""

    def __init__(
        self, engine: Engine, sources: list[list[int]], allowed: list[NDArray[np.int64]] | None = None
    ) -> None:
        super().__init__(engine, sources, shortlist=allowed and EngineShortlist(engine, allowed))
        self.row_counts: list[int] = []

    def __call__(self, last_ids: Tensor) -> EngineTokens:
        self.row_counts.append(len(last_ids))
        return super().__call__(last_ids)

    def feed(self, ids: Tensor, counts: NDArray[np.int64]) -> EngineTokens:
        self.row_counts.append(len(ids))
        return super().feed(ids, counts)


@cache
def engine(precision: EnginePrecision) -> Engine:
    """One with random weights, which falls into repetition, as such models do, and is guessed then."""
    torch.manual_seed(4)
    sizes = ModelConfig(d_model=64, num_heads=2, d_ff=96, num_encoder_layers=1, num_decoder_layers=2)
    model = Transformer.from_config(
        sizes.replace(src_vocab_size=VOCAB_SIZE, tgt_vocab_size=VOCAB_SIZE)
    ).eval()
    with torch.no_grad():
        for weight in model.parameters():
            weight.add_(0.15 * torch.randn_like(weight))
    if reason := Engine.why_not(model, precision):
        pytest.skip(reason)
    return Engine(model, precision)


def sentences(count: int, seed: int) -> list[list[int]]:
    rng = np.random.default_rng(seed)
    return [rng.integers(3, VOCAB_SIZE, rng.integers(1, 20)).tolist() for _ in range(count)]


def task_of(limits: list[int], options: SearchOptions, sources: list[list[int]]) -> SearchTask:
    return SearchTask(
        max_lengths=limits, start_id=BOS, eos_id=EOS, pad_id=PAD, options=options, sources=sources
    )


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("name", OPTIONS)
def test_guesses_change_no_bit_and_save_steps(name: str, precision: EnginePrecision) -> None:
    sources = sentences(12, seed=3)
    limits = [*range(1, 9), 40, 60, 60, 60]
    found, steps = [], []
    for most in (0, 1, 4, 11):
        step = CountingStep(engine(precision), sources)
        options = replace(OPTIONS[name], speculate=most)
        found.append(search(step, task_of(limits, options, sources)))
        steps.append(len(step.row_counts))
    assert found[1:] == found[:1] * 3
    assert steps == sorted(steps, reverse=True)
    assert name == "long" or steps[2] <= 0.7 * steps[0]


@pytest.mark.parametrize("precision", PRECISIONS)
def test_guesses_change_no_bit_within_shortlists_and_save_steps(precision: EnginePrecision) -> None:
    sources, rng = sentences(20, seed=5), np.random.default_rng(6)
    allowed = [np.unique([EOS, *rng.integers(3, VOCAB_SIZE, rng.integers(1, 40))]) for _ in sources]
    found, steps = [], []
    for most in (0, 5):
        step = CountingStep(engine(precision), sources, allowed)
        options = SearchOptions(beam_size=1, speculate=most)
        found.append(search(step, task_of([*range(1, 17), *[60] * 4], options, sources)))
        steps.append(len(step.row_counts))
    assert found[1] == found[0]
    assert steps[1] <= 0.7 * steps[0]
    for [hypothesis], ids in zip(found[0], allowed, strict=True):
        assert set(hypothesis.ids) <= set(ids.tolist())


@pytest.mark.parametrize("precision", PRECISIONS)
def test_a_trained_translator_writes_the_same_with_guesses(precision: EnginePrecision) -> None:
    bundle = memorised()
    if reason := Engine.why_not(bundle.model, precision):
        pytest.skip(reason)
    sources = [source for source, _ in PAIRS] + ["the cat", "", "dog dog sleeps the cat ?", "."]
    prefixes = ["der", "", "die Katze", "", "", "", "ein", "", "", ""]
    translator = Translator(bundle, precision=precision, engine="compiled")
    plain, guessed = SearchOptions(beam_size=1), SearchOptions(beam_size=1, speculate=4)
    for given in (None, prefixes):
        wanted = translator.translations(sources, options=plain, prefixes=given)
        assert translator.translations(sources, options=guessed, prefixes=given) == wanted
        with using_threads(3):
            assert translator.translations(sources, options=guessed, prefixes=given) == wanted
    ways = [
        translator.alternatives(sources[:3], prefixes=[""] * 3, count=2, options=o) for o in (plain, guessed)
    ]
    assert ways[0] == ways[1]


def test_sources_are_guessed_from_where_their_ids_mean_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    joint = memorised()
    if reason := Engine.why_not(joint.model, "float32"):
        pytest.skip(reason)
    separate = replace(joint, tokenizers=TokenizerPair(joint.tokenizers.src, deepcopy(joint.tokenizers.tgt)))
    read: list[Sequence[int]] = []

    class ReadingLookup(Lookup):
        def __init__(self, ids: Sequence[int]) -> None:
            read.append(ids)
            super().__init__(ids)

    monkeypatch.setattr("heedful.decoding.speculation.Lookup", ReadingLookup)
    options = SearchOptions(beam_size=1, speculate=4)
    found = [
        Translator(bundle).translate(["the cat sleeps ."], options=options) for bundle in (joint, separate)
    ]
    assert found == [["die Katze schläft ."]] * 2
    assert read[0] == [*joint.tokenizers.src.encode("the cat sleeps ."), joint.tokenizers.src.eos_id]
    assert read[1:] == [()]


def test_where_nothing_checks_guesses_they_are_refused() -> None:
    bundle = memorised()
    translators = [Translator(bundle, engine="torch"), Translator(bundle, ensemble=[bundle])]
    for translator in translators:
        with pytest.raises(InputError, match="speculate=4: only the compiled engine checks guesses"):
            translator.translate(["the cat"], options=SearchOptions(beam_size=1, speculate=4))
