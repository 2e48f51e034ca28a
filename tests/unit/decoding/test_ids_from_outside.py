"""Ids that a caller gives: what no model has is refused before anything is looked up, whatever computes."""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from unittest import TestCase

import numpy as np
import pytest
import torch
from machine_class import need_native
from tiny_bundle import memorised

from heedful import Translator
from heedful.decoding.backends.torch import TorchBackend
from heedful.decoding.options import SearchOptions
from heedful.decoding.strategies.beam import BeamSearch
from heedful.decoding.strategies.protocol import Greedy, Strategy
from heedful.decoding.strategies.sampling import Sampling
from heedful.errors import InputError
from heedful.model.transformer import Transformer
from heedful.storage.bundle import Bundle

GREEDY = SearchOptions(strategy=BeamSearch(beam_size=1))
SIZE = memorised().config.model.src_vocab_size


@pytest.fixture(params=["native", "torch"])
def translator(request: pytest.FixtureRequest) -> Translator:
    if request.param == "native":
        need_native()
    return Translator(memorised(), engine=request.param)


BAD_IDS = {"size": SIZE, "5,000": 5_000, "10^7": 10**7, "10^30": 10**30, "huge": 2**20_000, "negative": -1}


@pytest.mark.parametrize("bad", BAD_IDS.values(), ids=BAD_IDS)
def test_an_id_that_the_model_does_not_have_is_named_with_its_sentence(
    translator: Translator, bad: int
) -> None:
    with pytest.raises(InputError, match="sources: sentence 2"):
        translator.search_ids([[5, 2], [5, bad, 2]], options=GREEDY)
    with pytest.raises(InputError, match=r"prefixes: sentence 1: .* at position 0"):
        translator.search_ids([[5, 2]], options=GREEDY, prefixes=[[bad]])
    with pytest.raises(InputError, match=r"outputs: sentence 1: .* at position 2"):
        translator.score_ids([[5, 2]], [[5, 6, bad]], options=GREEDY)
    with pytest.raises(InputError, match="sources: sentence 1: "):
        translator.score_ids([[bad]], [[5, 2]], options=GREEDY)


@pytest.mark.parametrize("bad", [[5, 2], [[5.0, 2]], ["the"], [[None]], [[[5]]]])
def test_what_is_no_list_of_ids_is_named(translator: Translator, bad: list[object]) -> None:
    with pytest.raises(InputError, match="sources: sentence 1"):
        translator.search_ids(bad, options=GREEDY)  # type: ignore[arg-type]


def test_empty_lists_and_numpys_integers_are_ids(translator: Translator) -> None:
    assert translator.search_ids([], options=GREEDY) == []
    assert translator.search_ids([[], []], options=GREEDY) == [[], []]
    [wanted] = translator.search_ids([[5, 7, 2]], options=GREEDY)
    for same in (np.array([5, 7, 2]), torch.tensor([5, 7, 2]), (5, 7, 2)):
        assert translator.search_ids([[], same], options=GREEDY) == [[], wanted]  # type: ignore[list-item]
    assert [each.score for each in translator.score_ids([[], []], [[], []], options=GREEDY)] == [0, 0]
    for source, output in (([], [5, 2]), ([5, 2], [])):
        with pytest.raises(InputError, match="sentence 2"):
            translator.score_ids([[5, 2], source], [[2], output], options=GREEDY)
    for one, other in (([[5]], [[5], [6]]), ([[5]], [])):
        with pytest.raises(InputError, match="give one for each"):
            translator.score_ids(one, other, options=GREEDY)
        with pytest.raises(InputError, match="give one for each"):
            translator.search_ids(one, options=GREEDY, prefixes=other)


def seven_positions(engine: str) -> Bundle:
    torch.manual_seed(1)
    config = memorised().config.model.replace(positions="learned", max_positions=7)
    model = Transformer.from_config(config).eval()
    if engine == "native":
        need_native()
    changed = memorised().config.model_copy(update={"model": config})
    return replace(memorised(), config=changed, network=model)


@pytest.mark.parametrize("engine", ["native", "torch"])
def test_what_is_longer_than_learned_positions_is_named(engine: str) -> None:
    translator = Translator(seven_positions(engine), engine=engine)  # type: ignore[arg-type]
    translator.search_ids([[5] * 7], options=GREEDY, prefixes=[[5] * 100])
    with pytest.raises(InputError, match="sources: sentence 2"):
        translator.search_ids([[5], [5] * 8], options=GREEDY)
    with pytest.raises(InputError, match="outputs: sentence 1"):
        translator.score_ids([[5]], [[5] * 8], options=GREEDY)
    with TestCase().assertLogs() as logs:
        [scored] = translator.score(["the cat " * 9], ["die Katze"])
    assert math.isnan(scored.score)
    assert "source line 1: " in logs.output[0]
    assert "max_positions=7" in logs.output[0]


@pytest.mark.parametrize(
    "error",
    [MemoryError("decoding: no memory left"), RuntimeError("DefaultCPUAllocator: not enough memory: you")],
)
def test_a_lack_of_memory_names_the_longest_sentence(
    monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    @contextmanager
    def failing(*_: object, **__: object) -> Iterator[None]:
        raise error
        yield

    monkeypatch.setattr(TorchBackend, "step", failing)
    with pytest.raises(InputError, match="sentence 2, has 3 tokens"):
        Translator(memorised(), engine="torch").search_ids([[5, 2], [5, 6, 2]], options=GREEDY)


def test_other_errors_stay_what_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(*_: object, **__: object) -> None:
        raise RuntimeError("a bug")

    monkeypatch.setattr(TorchBackend, "step", failing)
    with pytest.raises(RuntimeError, match="a bug"):
        Translator(memorised(), engine="torch").search_ids([[5, 2]], options=GREEDY)


@pytest.mark.parametrize("strategy", [BeamSearch(beam_size=1), Sampling()])
def test_a_limit_far_away_takes_no_memory(translator: Translator, strategy: Strategy) -> None:
    source = [*memorised().tokenizers.src.encode("the cat sleeps ."), memorised().tokenizers.src.eos_id]
    options = replace(GREEDY, strategy=strategy)
    wanted = translator.search_ids([source], options=options)
    far = replace(options, max_length_offset=2**31, max_length=2**31)
    assert translator.search_ids([source], options=far) == wanted


@pytest.mark.parametrize(
    "search",
    [
        {"strategy": Greedy()},
        {"strategy": BeamSearch(beam_size=3)},
        {"strategy": Sampling(seed=2), "n_best": 3},
    ],
)
@pytest.mark.parametrize("renormalize", [False, True])
def test_suppressed_ids_beyond_the_vocabulary_are_never_written_anyway(
    translator: Translator, search: dict[str, object], renormalize: bool
) -> None:
    options = SearchOptions(**search, suppressed_ids=(0, 1), renormalize=renormalize)  # type: ignore[arg-type]
    more = replace(options, suppressed_ids=(0, 1, SIZE, 10**9, 10**30))
    texts = ["the cat sleeps .", "the dog"]
    assert translator.translations(texts, options=more) == translator.translations(texts, options=options)
