"""Sentences with marks take one way: a list of texts, a document and a request give the same translations."""

import asyncio
from collections.abc import Callable, Sequence
from functools import partial

import pytest
from small_services import RuleTranslator, rule_model, rule_service
from tiny_bundle import memorised

from heedful.decoding.translation import MemoryMatch, Translation
from heedful.decoding.translator import Translator
from heedful.documents.markup import html_rules, read_text
from heedful.serving.limits import Limits
from heedful.serving.metrics import Metrics
from heedful.serving.service import TranslationRequest, TranslationService
from heedful.spans import pipeline
from heedful.spans.pipeline import Request

Rule = Callable[[str], str]


def by_list(text: str, rule: Rule) -> str:
    template = read_text(text, html_rules())
    work = pipeline.prepare([unit.source for unit in template.units])
    work = pipeline.translate(work, partial(pipeline.translated, RuleTranslator(rule)))
    units = zip(template.units, work.texts(), strict=True)
    return template.joined([unit.written(translation) for unit, translation in units])


def by_document(text: str, rule: Rule) -> str:
    template = read_text(text, html_rules())
    search = partial(pipeline.translated, RuleTranslator(rule))
    chunks = pipeline.translate_units(template.units, search)
    return template.joined([written for chunk in chunks for written in chunk])


def by_request(text: str, rule: Rule) -> str:
    request = TranslationRequest(texts=(text,), target="de", source="en", rules=lambda _: html_rules())
    [answer] = asyncio.run(rule_service(rule).translate(request))
    return answer.text


def without_names(text: str) -> str:
    return text.upper().replace("{NAME}", "").replace("{N}", "{n}")


@pytest.mark.parametrize("driver", [by_list, by_document, by_request])
@pytest.mark.parametrize(
    ("text", "rule", "expected"),
    [
        ("", str.upper, ""),
        (" A dog runs.  A cat sleeps.\n", str.upper, " A DOG RUNS.  A CAT SLEEPS.\n"),
        ("<p>The <b>old</b> dog.</p>12", str.upper, "<p>THE <b>OLD</b> DOG.</p>12"),
        ("A dog. <i>A cat. A bird.</i>", str.upper, "A DOG. <i>A CAT. A BIRD.</i>"),
        ("We see {n} dogs.", without_names, "WE SEE {n} DOGS."),
        ("Hello {name}!", without_names, "HELLO {name}!"),
        ("See <b>{name}</b> here. Hello.", without_names, "SEE <b>{name}</b> HERE. HELLO."),
        ("A dog &amp; a <br>cat.", str.upper, "A DOG &amp; A <br>CAT."),
    ],
)
def test_all_drivers_translate_marks_alike(
    driver: Callable[[str, Rule], str], text: str, rule: Rule, expected: str
) -> None:
    assert driver(text, rule) == expected


def test_a_sentence_that_lost_its_placeholder_is_asked_once_more_without_it() -> None:
    translator = RuleTranslator(without_names)
    work = pipeline.prepare([unit.source for unit in read_text("Hello {name}! A dog.", None).units])
    pipeline.translate(work, partial(pipeline.translated, translator))
    assert translator.batches == [["Hello {name}!", "A dog."], ["Hello!"]]


@pytest.mark.parametrize("target", ["Ein Hund rennt.", "Ein Hund\nrennt.", "Ein\rHund rennt."])
@pytest.mark.parametrize("text", ["A dog runs.", "A <b>dog</b> runs."])
def test_a_match_of_the_memory_is_linked_but_not_searched(text: str, target: str) -> None:
    translator = RuleTranslator(str.upper)
    work = pipeline.prepare([unit.source for unit in read_text(text, html_rules()).units])
    find = {"A dog runs.": MemoryMatch("A dog runs.", target)}.get
    work = pipeline.translate(work, partial(pipeline.translated, translator, find=find))
    [translation] = [sentence.translation for sentence in work.sentences]
    assert translation is not None
    assert translation.match is not None
    assert translation.text == "Ein Hund rennt."
    assert (translation.alignment is not None) == ("<b>" in text)
    assert translator.batches == [[""]]


def test_links_through_another_language_are_those_through_its_words() -> None:
    first = partial(pipeline.translated, RuleTranslator(str.lower, backwards=True))
    second = partial(pipeline.translated, RuleTranslator(str.upper, backwards=True))
    [translation] = pipeline.through(first, second)([Request("A dog runs", aligned=True)])
    assert (translation.source, translation.text) == ("A dog runs", "A DOG RUNS")
    assert translation.alignment is not None
    assert translation.alignment.links == ((0, 0), (1, 1), (2, 2))


def test_links_of_parts_are_those_of_the_whole_sentence() -> None:
    model = rule_model("m", RuleTranslator(str.upper))
    service = TranslationService([model], Limits(sentence_tokens=10), Metrics())
    request = TranslationRequest(
        texts=("a dog sees <b>a cat</b>",), target="de", source="en", rules=lambda _: html_rules()
    )
    [answer] = asyncio.run(service.translate(request))
    assert answer.text == "A DOG SEES <b>A CAT</b>"


@pytest.mark.parametrize(("between", "expected"), [("", ""), (" ", ""), ("...", "...")])
def test_a_text_that_the_first_of_two_models_leaves_without_letters_stays(
    between: str, expected: str
) -> None:
    first = partial(pipeline.translated, RuleTranslator(lambda _: between))
    second = partial(pipeline.translated, Translator(memorised()))
    work = pipeline.prepare([unit.source for unit in read_text("A <b>dog</b> {n}.", html_rules()).units])
    [text] = pipeline.translate(work, pipeline.through(first, second)).texts()
    assert "".join(text.text.replace("{n}", "").split()) == expected


def test_an_empty_translation_keeps_tags_and_placeholders() -> None:
    def empty(requests: Sequence[Request]) -> list[Translation]:
        return [Translation(request.text, "", 0.0, ()) for request in requests]

    template = read_text("A <b>dog</b> %1$s.", html_rules())
    work = pipeline.translate(pipeline.prepare([unit.source for unit in template.units]), empty)
    [written] = template.translations(work)
    assert "<b></b>" in written
    assert "%1$s" in written


def test_blanks_around_invisible_characters_stay() -> None:
    request = TranslationRequest(
        texts=("<x>\t a! \xad </x> A ",),
        target="de",
        source="en",
        rules=lambda _: html_rules(),
        split=False,
    )
    answers = asyncio.run(rule_service(lambda text: " ".join(text.split()[::-1])).translate(request))
    assert answers[0].text == "<x>\t a!  </x> A "
