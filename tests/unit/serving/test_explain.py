"""Explanations: parts of texts, probabilities and maps, against the functions that they are made from."""

import asyncio
import re
import threading
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from cachetools import LRUCache
from machine_class import need_native
from small_services import RuleTranslator, rule_model
from tiny_bundle import PAIRS, memorised
from tolerances import FLOAT32, FLOAT64, assert_close, close

from heedful.analysis import AttentionKind
from heedful.analysis.attention_maps import attention_maps
from heedful.decoding.backends import choice
from heedful.decoding.backends.choice import EngineChoice
from heedful.decoding.backends.torch import TorchBackend
from heedful.decoding.options import SearchOptions
from heedful.decoding.translation import Translation
from heedful.decoding.translator import Translator
from heedful.errors import install_hint
from heedful.model.transformer import Transformer
from heedful.serving import explain
from heedful.serving.explain import Explainer, ExplainRequest
from heedful.serving.limits import Limits
from heedful.serving.metrics import Metrics
from heedful.serving.model_queue import ServedModel, ServedPair
from heedful.serving.on_ray import RemoteTranslator
from heedful.serving.refusals import (
    InvalidError,
    NoSuchLayerError,
    NotImplementedHereError,
    TextTooLongError,
    TooManyRequestsError,
)
from heedful.serving.service import TranslationService
from heedful.spans import Request
from heedful.text.languages import Pair

ENGLISH, GERMAN = PAIRS[0]
TRANSLATOR = Translator(memorised())


def options(n_best: int) -> SearchOptions:
    return SearchOptions(n_best=n_best)


def service_of(*models: ServedModel, **limits: int) -> TranslationService:
    return TranslationService(models, Limits(**limits), Metrics())


def tiny_model() -> ServedModel:
    return ServedModel(
        "tiny",
        frozenset({Pair("en", "de")}),
        lambda pair: ServedPair(TRANSLATOR, options),
    )


@pytest.fixture
def explainer() -> Iterator[Explainer]:
    service = service_of(tiny_model())
    found = Explainer(service)
    yield found
    found.close()
    service.close()


def ask(explainer: Explainer, text: str, **request: object) -> dict[str, Any]:
    wanted = {"q": text, "source": "en", "target": "de", **request}
    return asyncio.run(explainer.explain(ExplainRequest(**wanted)))


def test_the_parts_of_tokens_make_up_the_texts(explainer: Explainer) -> None:
    told = ask(explainer, f"{ENGLISH}\n{PAIRS[2][0]}\n\nthe Kätze \U0001f600 sees 東京 .")
    assert told["complete"]
    assert len(told["sentences"]) == 3
    for sentence in told["sentences"]:
        source = sentence["source"]
        assert "".join(source["texts"]) == source["text"]
        assert len(source["texts"]) == len(source["tokens"])
        for each in sentence["hypotheses"]:
            assert "".join(each["texts"]) == each["text"]
            assert len(each["texts"]) == len(each["tokens"]) == len(each["log_probs"])
    first = told["sentences"][0]
    assert first["source"]["texts"] == ["the", " cat", " sleep", "s", " .", ""]
    assert first["source"]["tokens"][-1] == "</s>"


def test_the_n_best_list_is_the_searchs(explainer: Explainer) -> None:
    (sentence,) = ask(explainer, ENGLISH)["sentences"]
    (expected,) = TRANSLATOR.translations([ENGLISH], options=options(4))
    assert [each["text"] for each in sentence["hypotheses"]] == [each.text for each in expected.hypotheses]
    assert sentence["hypotheses"][0]["text"] == GERMAN
    for told, found in zip(sentence["hypotheses"], expected.hypotheses, strict=True):
        assert told["finished"] is found.finished
        assert told["log_probs"] == close(found.token_log_probs, FLOAT32.SENTENCE.printed(4))
        assert (told["score"], told["log_prob"]) == close(
            (found.score, found.log_prob), FLOAT32.SENTENCE.printed(4)
        )
        terms = len(told["log_probs"]) + 1
        assert sum(told["log_probs"]) == close(told["log_prob"], FLOAT64.ROW.printed(4, terms))


@pytest.mark.parametrize("kind", ["cross", "encoder", "decoder"])
def test_maps_are_those_of_torch(explainer: Explainer, kind: AttentionKind) -> None:
    (sentence,) = ask(explainer, ENGLISH, attention=kind)["sentences"]
    bundle, ids = TRANSLATOR.bundle, TRANSLATOR.bundle.tokenizers.tgt.encode(GERMAN)
    maps = attention_maps(bundle, ENGLISH, ids, backend=TorchBackend([bundle.model], "float32"))
    told = sentence["attention"]
    assert (tuple(told["rows"]), tuple(told["columns"])) == maps.labels(kind)
    assert [each["layer"] for each in told["maps"]] == [1, 2]
    for each, expected in zip(told["maps"], maps.of(kind), strict=True):
        weights = np.array(each["heads"])
        assert weights.shape == (4, len(told["rows"]), len(told["columns"]))
        assert_close(weights, expected.weights, FLOAT32.ROW.printed(4))
        assert_close(weights.sum(axis=-1), 1.0, FLOAT32.ROW.printed(4, weights.shape[-1]))
    (one,) = ask(explainer, ENGLISH, attention=kind, layer=2)["sentences"]
    assert one["attention"]["maps"] == told["maps"][1:]


def test_the_mean_of_cross_attention_is_over_layers_and_heads(explainer: Explainer) -> None:
    (sentence,) = ask(explainer, ENGLISH, attention="cross")["sentences"]
    every = np.array([each["heads"] for each in sentence["attention"]["maps"]])
    mean = np.array(sentence["cross"])
    assert mean.shape == (len(sentence["hypotheses"][0]["tokens"]), len(sentence["source"]["tokens"]))
    assert_close(mean, every.mean(axis=(0, 1)), FLOAT32.ROW.printed(4, terms=2))
    assert sentence["layers"] == {"cross": 2, "encoder": 2, "decoder": 2}


def test_languages_are_identified_and_what_needs_no_translation_is_not_explained(
    explainer: Explainer,
) -> None:
    told = ask(explainer, ENGLISH, source="auto")
    assert (told["source"], told["target"], len(told["sentences"])) == ("en", "de", 1)
    assert ask(explainer, "Das alte Haus ist klein und steht im Garten.", source="auto")["sentences"] == []
    assert ask(explainer, "12 - 30")["sentences"] == []


def test_a_text_of_many_tokens_is_explained_as_far_as_the_limit(
    explainer: Explainer, monkeypatch: pytest.MonkeyPatch
) -> None:
    length = len(TRANSLATOR.bundle.tokenizers.src.encode(ENGLISH))
    monkeypatch.setattr(explain, "MAX_TOKENS", 2 * length)
    told = ask(explainer, "\n".join([ENGLISH] * 3))
    assert (told["complete"], len(told["sentences"])) == (False, 2)


def test_maps_are_forgotten_beyond_a_size(explainer: Explainer, monkeypatch: pytest.MonkeyPatch) -> None:
    none = LRUCache(0, getsizeof=explainer._known.getsizeof)
    monkeypatch.setattr(explainer, "_known", none)
    assert ask(explainer, ENGLISH) == ask(explainer, ENGLISH)
    assert not explainer._known


def test_mistakes_are_refused(explainer: Explainer) -> None:
    with pytest.raises(TextTooLongError):
        ask(explainer, "a" * 5001)
    with pytest.raises(NoSuchLayerError, match="from 1 to 2"):
        ask(explainer, ENGLISH, attention="cross", layer=3)
    with pytest.raises(InvalidError, match="fr is not supported"):
        ask(explainer, ENGLISH, target="fr")


def test_the_characters_at_work_have_the_services_limit() -> None:
    service = service_of(tiny_model(), characters=10, waiting_characters=10)
    explainer = Explainer(service)
    service.load.characters = 8  # of another request
    with pytest.raises(TooManyRequestsError):
        ask(explainer, "the cat")
    assert service.load.characters == 8


def test_pairs_through_a_third_language_and_models_without_a_bundle_are_refused() -> None:
    rules = rule_model("rules", RuleTranslator(str.upper), [("de", "nl")])
    explainer = Explainer(service_of(tiny_model(), rules))
    with pytest.raises(InvalidError, match="through de has two models"):
        ask(explainer, ENGLISH, target="nl")
    with pytest.raises(NotImplementedHereError, match="no explanations"):
        ask(explainer, "Haus", source="de", target="nl")


@pytest.mark.parametrize("engine", ["native", "torch"])
def test_every_engine_explains_what_it_translates(engine: EngineChoice) -> None:
    if engine == "native":
        need_native()
    own = Translator(memorised(), engine=engine)
    pair = ServedPair(own, options)
    model = ServedModel("own", frozenset({Pair("en", "de")}), lambda _: pair)
    (sentence,) = ask(Explainer(service_of(model)), ENGLISH, attention="decoder")["sentences"]
    (expected,) = ask(Explainer(service_of(tiny_model())), ENGLISH, attention="decoder")["sentences"]
    for each, other in zip(sentence["attention"]["maps"], expected["attention"]["maps"], strict=True):
        assert_close(each["heads"], other["heads"], FLOAT32.MODEL.printed(4, terms=2))


def test_a_model_of_another_process_that_needs_torch_says_how_to_install_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bundle = memorised()
    sizes = bundle.config.model.replace(positions="alibi")
    bundle = replace(bundle, network=Transformer.from_config(sizes).eval())
    elsewhere = RemoteTranslator(bundle, "other", None)
    pair = ServedPair(elsewhere, options)
    model = ServedModel("other", frozenset({Pair("en", "de")}), lambda _: pair)
    monkeypatch.setattr(choice, "has_torch", lambda: False)
    with pytest.raises(NotImplementedHereError, match=re.escape(install_hint("torch"))) as refused:
        ask(Explainer(service_of(model)), ENGLISH)
    assert refused.value.status == 501


def test_an_explanation_and_a_translation_do_not_use_a_model_at_once() -> None:
    busy = threading.Lock()

    class Alone:
        can_align = True

        def translations(self, texts: Sequence[str], **asked: Any) -> list[Translation]:  # noqa: ANN401
            assert busy.acquire(blocking=False)
            try:
                return TRANSLATOR.translations(texts, **asked)
            finally:
                busy.release()

    model = ServedModel("tiny", frozenset({Pair("en", "de")}), lambda pair: ServedPair(Alone(), options))
    pair, failures = Pair("en", "de"), []

    def work(index: int) -> None:
        try:
            for _ in range(5):
                if index % 2:
                    model.hypotheses(pair, [ENGLISH])
                else:
                    model.translate(pair, [Request(ENGLISH, aligned=False)], alternatives=2)
        except AssertionError as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(index,)) for index in range(4)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert failures == []
