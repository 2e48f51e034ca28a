"""A translator with the native engine, beside the same one with torch."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from copy import deepcopy
from dataclasses import replace
from typing import Any

import pytest
from machine_class import need_native
from tiny_bundle import PAIRS, memorised
from tolerances import FLOAT32, close

from heedful import Translator
from heedful.decoding.backends.native import NativeBackend
from heedful.decoding.options import SearchOptions
from heedful.decoding.strategies.beam import BeamSearch
from heedful.decoding.strategies.sampling import Sampling
from heedful.errors import InputError
from heedful.runtime.threads import using_threads
from heedful.settings.options import Precision
from heedful.storage.torch_weights import meta_model

pytestmark = pytest.mark.by_class

SOURCES = [source for source, _ in PAIRS] + ["the cat", "", "dog dog sleeps the cat ?", "."]
SEARCHES = {
    "greedy": SearchOptions(strategy=BeamSearch(beam_size=1)),
    "beam": SearchOptions(strategy=BeamSearch(beam_size=4), n_best=4),
    "average": SearchOptions(
        strategy=BeamSearch(beam_size=5), length_normalization="power", length_penalty=1.0
    ),
    "renormalised": SearchOptions(
        strategy=BeamSearch(beam_size=3), renormalize=True, suppressed_ids=(0, 1, 5)
    ),
    "without repetition": SearchOptions(
        strategy=BeamSearch(beam_size=3), no_repeat_ngram_size=2, repetition_penalty=1.3
    ),
    "forced ends": SearchOptions(
        strategy=BeamSearch(beam_size=2), forced_first_id=7, forced_last_id=2, max_length=4
    ),
    "sampled": SearchOptions(n_best=3, strategy=Sampling(seed=3)),
}


def translators(precision: Precision = "float32", **settings: int) -> tuple[Translator, Translator]:
    bundle = memorised()
    need_native()
    native = Translator(bundle, precision=precision, engine="native", batch_size=settings.get("batch_size"))
    return native, Translator(bundle, engine="torch")


@pytest.mark.parametrize("name", SEARCHES)
def test_every_search_finds_what_it_finds_with_torch(name: str) -> None:
    native, reference = translators()
    found, wanted = (each.translations(SOURCES, options=SEARCHES[name]) for each in (native, reference))
    assert [each.text for each in found] == [each.text for each in wanted]
    for ours, theirs in zip(found, wanted, strict=True):
        assert [each.ids for each in ours.hypotheses] == [each.ids for each in theirs.hypotheses]
        scores = [each.score for each in theirs.hypotheses]
        assert [each.score for each in ours.hypotheses] == close(scores, FLOAT32.SENTENCE)


@pytest.mark.parametrize("precision", ["float32", "bf16", "int8"])
@pytest.mark.parametrize("name", ["greedy", "beam"])
def test_neither_batch_nor_order_nor_threads_change_a_bit(
    precision: Precision, name: str, use_engine: Callable[[Precision], None]
) -> None:
    use_engine(precision)
    options = SEARCHES[name]
    every, _ = translators(precision)
    one_by_one, _ = translators(precision, batch_size=1)
    wanted = every.translations(SOURCES * 3, options=options)
    assert one_by_one.translations(SOURCES * 3, options=options) == wanted
    assert one_by_one.translations((SOURCES * 3)[::-1], options=options) == wanted[::-1]
    with using_threads(3):
        assert one_by_one.translations(SOURCES * 3, options=options) == wanted
        # They share the work of a sentence that is alone.
        assert [each for text in SOURCES for each in every.translations([text], options=options)] == (
            wanted[: len(SOURCES)]
        )


def test_threads_share_sentences_by_the_steps_that_they_will_take(monkeypatch: pytest.MonkeyPatch) -> None:
    native, _ = translators()
    sizes: list[int] = []
    step = NativeBackend.step

    def counted(self: NativeBackend, sources: list[list[int]], **rest: Any) -> Any:  # noqa: ANN401
        sizes.append(len(sources))
        return step(self, sources, **rest)

    monkeypatch.setattr(NativeBackend, "step", counted)
    sources = [[5] * 20] * 10 + [[5] * 10] * 20
    with using_threads(2):
        native.search_ids(sources, options=SearchOptions(strategy=BeamSearch(beam_size=1), max_length=30))
        native.search_ids(sources, options=SearchOptions(strategy=BeamSearch(beam_size=1), max_length=9))
        native.search_ids(
            sources, options=SearchOptions(strategy=BeamSearch(beam_size=1), min_length=25, max_length=25)
        )
    assert [sorted(each) for each in (sizes[:2], sizes[2:4], sizes[4:])] == [[10, 20], [15, 15], [15, 15]]


def test_threads_that_share_an_engine_get_their_own_positions() -> None:
    sources = [[[5 + i % 9] * (3 + 150 * (i % 9))] for i in range(45)]
    options = SearchOptions(strategy=BeamSearch(beam_size=1), max_length=3)
    alone, shared = (
        Translator(replace(memorised(), network=deepcopy(memorised().model)), engine="native") for _ in "ab"
    )
    translators()  # skips where there is no engine
    wanted = [alone.search_ids(each, options=options) for each in sources[:9]] * 5
    with ThreadPoolExecutor(8) as pool, using_threads(1):
        found = list(pool.map(lambda each: shared.search_ids(each, options=options), sources))
    assert found == wanted


def test_what_cannot_be_computed_is_refused_or_left_to_torch() -> None:
    bundle = memorised()
    assert Translator(bundle, engine="torch").engine_in_use == "torch"
    with pytest.raises(InputError, match="int8"):
        Translator(bundle, engine="torch", precision="int8").translate(["the cat"])
    assert Translator(bundle, precision="fp16").engine_in_use == "torch"
    with pytest.raises(InputError, match="precision='fp16'"):
        Translator(bundle, engine="native", precision="fp16").translate(["the cat"])
    double = replace(bundle, network=meta_model(bundle.config.model).double())
    assert NativeBackend.why_not([double.model], "float32") is not None
    assert Translator(double).engine_in_use == "torch"
    with pytest.raises(InputError, match="engine='torch'"):
        Translator(double, engine="native").translate(["the cat"])
    with pytest.raises(InputError, match="engine='fast'"):
        Translator(bundle, engine="fast")  # type: ignore[arg-type]
    with pytest.raises(InputError, match="batch_size=0"):
        Translator(bundle, batch_size=0)
