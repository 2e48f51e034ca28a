"""From a request to its answers, over models that translate by a rule."""

import asyncio
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest
from small_services import RuleTranslator, rule_model, rule_service

from heedful.decoding.confidence import Confidence
from heedful.decoding.glossary import Entry, Glossary
from heedful.decoding.translation import TextHypothesis, Translation
from heedful.documents.markup import TagRules, html_rules
from heedful.serving.languages import Detector, LanguageGuess
from heedful.serving.libretranslate import _confidence_of
from heedful.serving.limits import Limits
from heedful.serving.metrics import Metrics
from heedful.serving.refusals import (
    InvalidError,
    LanguageError,
    TextTooLongError,
    TooManyRequestsError,
    UnavailableError,
)
from heedful.serving.service import Answer, TranslationRequest, TranslationService
from heedful.spans.words import words


def ask(service: TranslationService, *texts: str, **request: object) -> list[Answer]:
    rules = request.get("rules")
    wanted = {"texts": texts, "source": "en", "target": "de", **request}
    wanted["rules"] = None if rules is None else lambda _: rules
    return asyncio.run(service.translate(TranslationRequest(**wanted)))  # type: ignore[arg-type]


def texts(answers: list[Answer]) -> list[str]:
    return [answer.text for answer in answers]


def test_texts_are_translated_sentence_by_sentence_and_what_is_between_stays() -> None:
    service = rule_service(lambda text: f"[{text}]")
    assert texts(ask(service, " A dog runs.  A cat sleeps.\n\n\tTwo men \n", "One.")) == [
        " [A dog runs.]  [A cat sleeps.]\n\n\t[Two men] \n",
        "[One.]",
    ]
    assert texts(ask(service, "A dog. A cat.", split=False)) == ["[A dog. A cat.]"]


def test_what_has_no_letters_stays_as_it_is() -> None:
    service = rule_service(lambda text: "wrong")
    assert texts(ask(service, "", " ", "12:30 - 14", "\U0001f600!\n...")) == [
        "",
        " ",
        "12:30 - 14",
        "\U0001f600!\n...",
    ]


def test_translations_have_the_space_between_sentences_that_their_script_has() -> None:
    chinese = {"Hello.": "你好。", "Thanks.": "谢谢。"}
    service = rule_service(lambda text: chinese.get(text, text))
    assert texts(ask(service, "Hello. Thanks.\nHello.")) == ["你好。谢谢。\n你好。"]
    english = {written: source for source, written in chinese.items()}
    service = rule_service(lambda text: english[text])
    assert texts(ask(service, "你好。谢谢。\n你好。")) == ["Hello. Thanks.\nHello."]
    asked = asked_with({"谢谢": "Thanks"})
    (answer,) = ask(rule_service(lambda text: english[text]), "你好。谢谢。", **asked)
    assert terms_of(answer) == [("谢谢", "Thanks", ["Thanks"])]


def test_alternatives_of_a_text_are_made_of_those_of_its_sentences() -> None:
    (answer,) = ask(rule_service(), "A dog. A cat.", alternatives=2)
    assert answer.text == "A DOG. A CAT."
    assert answer.alternatives == ("A DOG.! A CAT.!", "A DOG.!! A CAT.!!")


def test_html_keeps_its_tags_and_text_its_placeholders() -> None:
    service = rule_service(str.upper)
    assert texts(ask(service, "<p>a <b>dog</b> &amp; a cat</p>", rules=html_rules())) == [
        "<p>A <b>DOG</b> &amp; A CAT</p>"
    ]
    assert texts(ask(service, "see %1$s and http://a.b/c now")) == ["SEE %1$s AND http://a.b/c NOW"]
    assert texts(ask(service, 'see (%s), "%d": {x}!')) == ['SEE (%s), "%d": {x}!']


@pytest.mark.parametrize(
    ("text", "rules", "expected"),
    [
        ("%d\u4ef6\u306e\u30d5\u30a1\u30a4\u30eb", None, "%d X X X X X X"),
        ("\u6f22\u5b57%1$s\u6f22\u5b57", None, "X X %1$s X X"),
        ("the <b>%s</b>cat sleeps .", html_rules(), "X <b>%s</b>X X X"),
        ("the %1$s<i>cat</i> sleeps .", html_rules(), "X %1$s<i>X</i> X X"),
        ("the %1$ss cat", None, "X %1$ss X"),
        ("a {{{raw}}} %{count}, #{name}", None, "X {{{raw}}} %{count} X #{name}"),
        ("foo{x}bar", None, "X{x}X"),
        ("{a}/{b} cats", None, "{a}/{b} X"),
        ("see <0>the {x} cat</0>, <1/>", None, "X <0>X {x} X</0> X <1/>"),
        (
            "a {n, plural, one {# dog. A} other {\n# dogs}} runs",
            None,
            "X {n, plural, one {# dog. A} other {\n# dogs}} X",
        ),
        ("{x}: %d", None, "{x}: %d"),  # nothing to translate
        ("<p>a &copy; b &#x1F600;</p>", html_rules(), "<p>X &copy; X &#x1F600;</p>"),
        ("a https://a.org/x<wbr>y?a=1&amp;b=2 b", html_rules(), "X https://a.org/xy?a=1&amp;b=2 <wbr>X"),
        ("a " + "%s " * 40 + "b", None, "X " + "%s " * 40 + "X"),
    ],
)
def test_a_model_that_keeps_nothing_loses_no_placeholder(
    text: str, rules: TagRules | None, expected: str
) -> None:
    service = rule_service(lambda each: " ".join("X" for _ in words(each)))
    assert texts(ask(service, text, rules=rules)) == [expected]


def test_placeholders_that_a_model_writes_by_itself_are_not_doubled() -> None:
    service = rule_service(lambda text: text.replace("cat", "%s cat"))
    (answer,) = ask(service, "a cat %s", alternatives=2)
    assert (answer.text, answer.alternatives) == ("a  cat %s", ("a  cat! %s", "a  cat!! %s"))


def test_between_chinese_words_a_placeholder_has_no_blank() -> None:
    (answer,) = ask(rule_service(lambda _: "\u732b\u72ac"), "\u6f22%s\u5b57")
    assert answer.text == "\u732b%s\u72ac"


def test_tags_follow_the_words_that_are_aligned_with_theirs_through_a_third_language_too() -> None:
    backwards = [
        rule_model("m1", RuleTranslator(str.upper, backwards=True), [("fr", "en")]),
        rule_model("m2", RuleTranslator(str.upper, backwards=True), [("en", "de")]),
    ]
    service = TranslationService(backwards, Limits(), Metrics())
    document = "un <b>chien</b> noir dort"
    (once,) = ask(service, document, source="fr", target="en", rules=html_rules())
    (twice,) = ask(service, document, source="fr", rules=html_rules())
    assert (once.text, twice.text) == ("UN CHIEN <b>NOIR</b> DORT", "UN <b>CHIEN</b> NOIR DORT")


def pivoting() -> TranslationService:
    models = [
        rule_model("m1", RuleTranslator(lambda text: f"en({text})"), [("fr", "en")]),
        rule_model("m2", RuleTranslator(lambda text: f"de({text})"), [("en", "de")]),
    ]
    return TranslationService(models, Limits(), Metrics())


def test_a_third_language_is_named() -> None:
    (answer,) = ask(pivoting(), "Un chien.", source="fr")
    assert (answer.text, answer.pivot) == ("de(en(Un chien.))", "en")
    (answer,) = ask(pivoting(), "Un chien.", source="fr", target="en")
    assert (answer.text, answer.pivot) == ("en(Un chien.)", None)


def test_the_language_of_each_text_is_identified() -> None:
    french, english = "Le chien dort dans la maison.", "The dog is sleeping in the house."
    german = "Der Hund schläft heute in dem kleinen Haus."
    answers = ask(pivoting(), french, english, german, source=None)
    assert [answer.source for answer in answers] == ["fr", "en", "de"]
    assert [answer.pivot for answer in answers] == ["en", None, None]
    assert answers[2].text == german  # there is nothing to translate
    assert all(0 < answer.probability <= 1 for answer in answers)


@pytest.mark.parametrize(
    ("request_", "error"),
    [
        ({"source": "zz"}, LanguageError),
        ({"target": "fr"}, LanguageError),
        ({"alternatives": 6}, InvalidError),
        ({"alternatives": -1}, InvalidError),
        ({"texts": ("a" * 5001,)}, TextTooLongError),
        ({"texts": ("a",) * 129}, TextTooLongError),
    ],
)
def test_too_much_is_refused(request_: dict[str, object], error: type[Exception]) -> None:
    with pytest.raises(error):
        ask(rule_service(), "a", **request_)


@pytest.mark.parametrize("texts", [["a"] * 129, ["a" * 5001]])
def test_languages_of_too_much_are_not_identified(texts: list[str]) -> None:
    with pytest.raises(TextTooLongError):
        asyncio.run(rule_service().ranked(texts))


def test_a_sentence_that_the_model_cannot_take_is_the_clients_mistake() -> None:
    with pytest.raises(InvalidError, match="too long"):
        ask(rule_service(), "too long")


def held(then: Callable[[TranslationService, RuleTranslator], object], **limits: float) -> RuleTranslator:
    """Call a coroutine function with a service whose translator waits."""
    translator = RuleTranslator(str.upper)
    translator.gate.clear()
    service = TranslationService([rule_model("m", translator)], Limits(**limits), Metrics())  # type: ignore[arg-type]
    asyncio.run(then(service, translator))  # type: ignore[arg-type]
    translator.gate.set()
    service.close()
    return translator


def test_what_is_not_done_in_time_is_given_up() -> None:
    async def check(service: TranslationService, translator: RuleTranslator) -> None:
        with pytest.raises(UnavailableError, match=r"not done within 0.05 seconds"):
            await service.translate(TranslationRequest(texts=("a",), source="en", target="de"))
        assert service.load.characters == 0

    held(check, seconds=0.05)


def test_no_more_may_wait_than_the_limit_and_a_place_of_one_who_left_is_free() -> None:
    wanted = TranslationRequest(texts=("a" * 60,), source="en", target="de")

    async def check(service: TranslationService, translator: RuleTranslator) -> None:
        first = asyncio.create_task(service.translate(wanted))
        await asyncio.sleep(0)
        with pytest.raises(TooManyRequestsError):
            await service.translate(wanted)
        first.cancel()
        await asyncio.gather(first, return_exceptions=True)
        second = asyncio.create_task(service.translate(wanted))
        await asyncio.sleep(0)
        translator.gate.set()
        assert texts(await second) == ["A" * 60]

    held(check, characters=100, waiting_characters=100)


def test_closing_answers_those_who_wait() -> None:
    async def check(service: TranslationService, translator: RuleTranslator) -> None:
        task = asyncio.create_task(
            service.translate(TranslationRequest(texts=("a", "b"), source="en", target="de"))
        )
        await asyncio.sleep(0.05)
        translator.gate.set()
        await asyncio.to_thread(service.close)
        assert texts(await task) == ["A", "B"]

    held(check)


def test_a_sentence_of_too_many_tokens_is_translated_in_parts() -> None:
    service = rule_service(lambda text: f"[{text}]", sentence_tokens=10)
    assert texts(ask(service, "a dog sees a cat", "----- " * 20 + "x", "short")) == [
        "[a dog] [sees a cat]",
        "----- " * 19 + "[----- x]",
        "[short]",
    ]


class SureTranslator(RuleTranslator):
    """Is the surer of a text the shorter it is."""

    def translations(self, texts: Sequence[str], **options: Any) -> list[Translation]:  # noqa: ANN401
        return [self._sure(each) for each in super().translations(texts, **options)]

    def _sure(self, translation: Translation) -> Translation:
        sure = 1 / len(translation.source)
        hypotheses = [
            replace(each, confidence=Confidence(sure, (sure,) * len(each.text.split()), ()))
            for each in translation.hypotheses
        ]
        return replace(translation, hypotheses=tuple(hypotheses))


def sure_service(rule: Callable[[str], str], **limits: int) -> TranslationService:
    model = rule_model("a rule", SureTranslator(rule))
    return TranslationService([model], Limits(**limits), Metrics())  # type: ignore[arg-type]


def test_an_answer_has_the_confidence_in_each_of_its_sentences() -> None:
    service, text = sure_service(str.upper), "<p>Two <b>dogs</b> run.</p><p>12</p><p>It rains.</p>"
    for _ in range(2):  # the second time, they are remembered
        (answer,) = ask(service, text, rules=html_rules(), alternatives=2)
        found = [each for each in answer.sentences if each.confidence]
        assert [each.text for each in found] == ["TWO DOGS RUN.", "IT RAINS."]
        assert [each.confidence for each in found] == [
            Confidence(1 / 13, (1 / 13,) * 3, ()),
            Confidence(1 / 9, (1 / 9,) * 2, ()),
        ]
    (uncalibrated,) = ask(rule_service(), "Two dogs run.")
    assert [each.confidence for each in uncalibrated.sentences] == [None]


def test_a_sentence_in_parts_is_as_sure_as_its_least_sure_part() -> None:
    (answer,) = ask(sure_service(lambda text: f"[{text}]", sentence_tokens=10), "a dog sees a cat")
    (sentence,) = answer.sentences
    assert sentence.text == "[a dog] [sees a cat]"
    assert sentence.confidence == Confidence(1 / 10, (1 / 5, 1 / 5, *[1 / 10] * 3), ())


def test_a_word_that_an_answer_lists_may_have_another_space_than_that_of_ascii() -> None:
    text = "DEUX\u00a0: UN\u202fMOT"
    output = replace(TextHypothesis.given(text), confidence=Confidence(0.5, (0.5, 0.25), ()))
    sentence = Translation("", text, 0.0, (output,))
    found = _confidence_of(Answer(text=text, source="en", sentences=(sentence,)))
    assert found is not None
    assert [each.text for each in found.sentences[0].words] == ["DEUX\u00a0:", "UN\u202fMOT"]


@pytest.mark.parametrize("text", ["It rains. An endless story.", "<b>An</b> endless story."])
def test_an_answer_says_whether_a_length_limit_has_cut_it(text: str) -> None:
    legs = [
        rule_model("m1", RuleTranslator(str.lower), [("fr", "en")]),
        rule_model("m2", RuleTranslator(str.upper)),
    ]
    for service, source in ((rule_service(), "en"), (TranslationService(legs, Limits(), Metrics()), "fr")):
        for _ in range(2):  # the second time, it is remembered
            cut, whole = ask(service, text, "It rains.", source=source, rules=html_rules())
            assert (cut.truncated, whole.truncated) == (True, False)
    (in_parts,) = ask(rule_service(sentence_tokens=12), "a dog sees an endless cat")
    assert in_parts.truncated


def terms_of(answer: Answer) -> list[tuple[str, str | None, list[str]]]:
    return [
        (each.source, each.target, [answer.text[start:end] for start, end in each.spans])
        for each in answer.terms
    ]


def asked_with(glossary: dict[str, str | list[str]]) -> dict[str, object]:
    return {"glossary": lambda _: Glossary.of(glossary), "with_terms": True}


def test_the_terms_of_each_sentence_are_found_in_the_whole_answer() -> None:
    service = rule_service(lambda text: text.replace("cat", "Katze").replace("\u2b1b", "\U0001f408"))
    asked = asked_with({"cat": "Katze", "dog": "Hund", "a cat": "eine Katze", "bird": ["Vogel", "bird"]})
    text = " \u2b1b cat, cat!\n\n\tThe dog {cat} \U0001f600\na cat %s\nNothing. 12\nA bird"
    for _ in range(2):  # the second time, the sentences are remembered
        (answer,) = ask(service, text, alternatives=2, **asked)
        assert terms_of(answer) == [
            ("cat", "Katze", ["Katze", "Katze"]),
            ("dog", None, []),
            ("cat", None, []),  # in a placeholder, which stays
            ("a cat", None, []),
            ("bird", "bird", ["bird"]),
        ]
    assert ask(service, text, **asked | {"with_terms": False})[0].terms == ()
    assert ask(service, text, with_terms=True)[0].terms == ()
    assert ask(service, "Die Katze.", source="de", **asked)[0].terms == ()  # it is in that language


def test_a_sentence_in_parts_has_the_terms_of_all_of_them() -> None:
    service = rule_service(lambda text: f"[{text}]", sentence_tokens=10)
    (answer,) = ask(service, "a dog sees a cat", **asked_with({"cat": "cat", "dog sees": "dog sees"}))
    assert answer.text == "[a dog] [sees a cat]"
    assert terms_of(answer) == [("dog sees", None, []), ("cat", "cat", ["cat"])]


def test_of_markup_it_is_said_whether_terms_are_there_and_not_where() -> None:
    asked = asked_with({"cats & dogs": "CATS & DOGS", "b": "B", "c": "C"})
    text = '<p title="C">Cats <b>&amp;</b> dogs</p><p>b</p>'
    (answer,) = ask(rule_service(str.upper), text, rules=html_rules(), **asked)
    assert terms_of(answer) == [("cats & dogs", "CATS & DOGS", []), ("b", "B", [])]


def test_nothing_is_said_of_an_output_that_was_not_taken() -> None:
    service = sure_service(lambda text: text.replace("{name}", "?"))
    (answer,) = ask(service, "Hello {name}!\nHello.")
    assert answer.text.count("{name}") == 1
    assert [each.text for each in answer.sentences] == ["Hello."]


def test_markup_is_kept_where_a_sentence_is_translated_in_parts() -> None:
    service = rule_service(str.upper, sentence_tokens=10)
    (answer,) = ask(service, "a dog sees <b>a cat</b> and a bird", rules=html_rules())
    assert answer.text == "A DOG SEES <b>A CAT</b> AND A BIRD"


def test_glossaries_with_the_same_terms_of_a_sentence_share_its_translation() -> None:
    translator = RuleTranslator(str.upper)
    service = TranslationService([rule_model("m", translator)], Limits(), Metrics())
    for number in range(5):
        ask(service, "A dog.", **asked_with({"dog": "Hund", f"other{number}": "x"}))
        ask(service, "A cat.", **asked_with({f"other{number}": "x"}))
    ask(service, "A cat.")
    ask(service, "A dog.")
    assert [sorted(batch) for batch in translator.batches] == [["A dog."], ["A cat."], ["A dog."]]


def test_a_glossary_is_searched_beside_the_event_loop() -> None:
    searching, answered = threading.Event(), threading.Event()

    class SlowGlossary(Glossary):
        def applicable(self, text: str) -> list[Entry]:
            searching.set()
            assert answered.wait(60)  # which nothing would set if this held the loop
            return super().applicable(text)

    async def ask_two() -> list[str]:
        service = rule_service(str.upper)
        slow = TranslationRequest(
            texts=("A dog.",), source="en", target="de", glossary=lambda _: SlowGlossary.of({"dog": "Hund"})
        )
        first = asyncio.ensure_future(service.translate(slow))
        await asyncio.to_thread(searching.wait, 60)
        second = await service.translate(TranslationRequest(texts=("A cat.",), source="en", target="de"))
        answered.set()
        return texts([*second, *await first])

    assert asyncio.run(ask_two()) == ["A CAT.", "A DOG."]


class SlowDetector(Detector):
    """Identifies nothing until it is told."""

    def __init__(self) -> None:
        super().__init__()
        self.started, self.may_end = threading.Event(), threading.Event()

    def source(self, text: str, sources: Sequence[str], target: str) -> LanguageGuess:
        self.started.set()
        assert self.may_end.wait(60)  # which nothing would set if this held the loop
        return super().source(text, sources, target)

    def ranked(self, text: str) -> list[LanguageGuess]:
        self.started.set()
        assert self.may_end.wait(60)
        return super().ranked(text)


@pytest.mark.parametrize("is_translated", [True, False])
def test_languages_are_identified_beside_the_event_loop(is_translated: bool) -> None:
    async def ask_two() -> list[str]:
        service = rule_service(str.upper)
        service.detector = detector = SlowDetector()
        slow = TranslationRequest(texts=("A dog.",), target="de")
        first = asyncio.ensure_future(
            service.translate(slow) if is_translated else service.ranked(["A dog."])
        )
        await asyncio.to_thread(detector.started.wait, 60)
        assert service.load.characters == len("A dog.")
        second = await service.translate(TranslationRequest(texts=("A cat.",), source="en", target="de"))
        detector.may_end.set()
        await first
        return texts(second)

    assert asyncio.run(ask_two()) == ["A CAT."]
