"""The confidence in an output: of the sentence, its words and its tokens."""

import math
from dataclasses import replace

import pytest
from machine_class import need_native
from tiny_bundle import SOURCES, memorised
from tolerances import FLOAT32, FLOAT64, close

from heedful.decoding.alignment import texts_of_tokens
from heedful.decoding.confidence import Confidence, confidence_of, word_log_probs
from heedful.decoding.options import SearchOptions
from heedful.decoding.strategies.beam import BeamSearch
from heedful.decoding.strategies.sampling import MinimumBayesRisk
from heedful.decoding.translation import TextHypothesis, Translation
from heedful.decoding.translator import Translator
from heedful.storage.bundle import Bundle
from heedful.storage.calibration import Calibration, LogisticCurve

# Its curves are chosen so that every feature counts.
CALIBRATION = Calibration(
    level=30.0, lines=200, errors=31, src_tag=None, tgt_tag=None,
    sentence=LogisticCurve(-3.0, (4.0, 0.5)), word=LogisticCurve(-2.0, (1.0, 2.0, 1.5)),
    token=LogisticCurve(-1.0, (0.5, 2.0, 1.0)), ece={"sentence": 0.01, "word": 0.02, "token": 0.025},
)  # fmt: skip
UNSEEN = ["the cat cat sees", "dog ?", "sleeps the the dog sleeps", "cat"]


def calibrated() -> Bundle:
    return replace(memorised(), calibration=CALIBRATION)


def logistic(logit: float) -> float:
    return 1 / (1 + math.exp(-logit))


def test_the_numbers_are_those_of_the_formula() -> None:
    tokenizer = memorised().tokenizers.tgt
    ids = tokenizer.encode("die Katze")
    log_probs = [math.log(0.5 + 0.4 / (n + 1)) for n in range(len(ids) + 1)]
    found = confidence_of(CALIBRATION, tokenizer, "die Katze", ids, log_probs)
    assert found is not None
    mean = sum(map(math.exp, log_probs)) / len(log_probs)
    assert found.sentence == close(logistic(-3 + 4 * mean + 0.5 * math.log(len(log_probs))), FLOAT64.ROW)
    probs = [math.exp(each) for each in log_probs[:-1]]
    assert found.tokens == close([logistic(-1 + 0.5 * p + 2 * p**2 + mean) for p in probs], FLOAT64.ROW)
    first = next(n for n in range(len(ids), 0, -1) if tokenizer.decode(ids[:n]) == "die")
    words = [math.prod(probs[:first]), math.prod(probs[first:])]
    assert found.words == close([logistic(-2 + p + 2 * p**2 + 1.5 * mean) for p in words], FLOAT64.ROW)


@pytest.mark.parametrize(
    ("text", "texts", "log_probs", "expected"),
    [
        ("ab cd", ["ab", " c", "d"], [-1.0, -2.0, -4.0], [-1.0, -6.0]),
        ("ab cd", ["ab ", "cd"], [-1.0, -2.0], [-1.0, -2.0]),  # the space belongs to the token before it
        ("ab cd", ["ab", " ", "cd"], [-1.0, -8.0, -2.0], [-1.0, -2.0]),  # and to none
        ("ab cd", ["ab cd"], [-1.0], [-1.0, -1.0]),  # a token of two words counts for both
        ("ab c d", ["a", "b c", " d"], [-1.0, -2.0, -4.0], [-3.0, -2.0, -4.0]),
        ("ab\u00a0! cd", ["ab", "\u00a0", "!", " cd"], [-1.0, -2.0, -4.0, -8.0], [-7.0, -8.0]),  # in a word
        ("ab", ["", "ab", ""], [-1.0, -2.0, -4.0], [-2.0]),  # control tokens stand for no text
        ("ab cd", ["ab"], [0.0], [0.0, 0.0]),  # a word without tokens: the mean
        ("", [], [], []),
        ("  ", ["  "], [-1.0], []),
    ],
)
def test_a_word_has_the_product_of_its_tokens(
    text: str, texts: list[str], log_probs: list[float], expected: list[float]
) -> None:
    assert word_log_probs(text, texts, log_probs) == close(expected, FLOAT64.ROW)


def test_the_texts_of_tokens_are_all_of_the_text() -> None:
    tokenizer = memorised().tokenizers.tgt
    for text in ("die Katze sieht den Hund .", "Hund ?", ""):
        ids = [*tokenizer.encode(text), tokenizer.eos_id]
        assert "".join(texts_of_tokens(tokenizer, text, ids)) == text
        assert len(texts_of_tokens(tokenizer, text, ids)) == len(ids)


@pytest.mark.parametrize(
    "options",
    [
        SearchOptions(strategy=BeamSearch(beam_size=3), n_best=3),
        SearchOptions(strategy=MinimumBayesRisk(samples=8)),
    ],
)
def test_every_hypothesis_has_a_confidence_for_each_word_and_token(options: SearchOptions) -> None:
    for translation in Translator(calibrated()).translations([*SOURCES, *UNSEEN], options=options):
        assert translation.confidence == translation.hypotheses[0].confidence
        for each in translation.hypotheses:
            assert each.confidence is not None
            assert len(each.confidence.words) == len(each.text.split())
            assert len(each.confidence.tokens) == len(each.ids)
            probabilities = [each.confidence.sentence, *each.confidence.words, *each.confidence.tokens]
            assert all(0 < probability < 1 for probability in probabilities)


def test_a_given_translation_has_the_confidence_of_the_search_that_wrote_it() -> None:
    translator = Translator(calibrated())
    searched = translator.translations([*SOURCES, *UNSEEN])
    ids = [each.hypotheses[0].written_ids for each in searched]
    for found, scored in zip(searched, translator.score([*SOURCES, *UNSEEN], ids), strict=True):
        assert found.confidence is not None
        assert scored.confidence is not None
        assert scored.confidence.sentence == close(found.confidence.sentence, FLOAT32.SENTENCE)
        assert scored.confidence.words == close(found.confidence.words, FLOAT32.SENTENCE)
        assert scored.confidence.tokens == close(found.confidence.tokens, FLOAT32.SENTENCE)


def test_both_engines_are_equally_sure() -> None:
    need_native()
    native, torch = (Translator(calibrated(), engine=engine) for engine in ("native", "torch"))
    both = zip(native.translations([*SOURCES, *UNSEEN]), torch.translations([*SOURCES, *UNSEEN]), strict=True)
    for one, other in both:
        assert one.text == other.text
        assert one.confidence is not None
        assert other.confidence is not None
        assert one.confidence.sentence == close(other.confidence.sentence, FLOAT32.SENTENCE)
        assert one.confidence.words == close(other.confidence.words, FLOAT32.SENTENCE)
        assert one.confidence.tokens == close(other.confidence.tokens, FLOAT32.SENTENCE)


def test_no_confidence_is_invented() -> None:
    [translation] = Translator(memorised()).translations(SOURCES[:1])
    assert translation.confidence is None
    [translation] = Translator(calibrated(), ensemble=[memorised()]).translations(SOURCES[:1])
    assert translation.confidence is None  # the calibration is of one model
    [empty] = Translator(calibrated()).translations([""])
    assert empty.confidence is None
    [empty_pair] = Translator(calibrated()).score([""], [""])
    assert empty_pair.confidence is None


def test_a_line_in_segments_is_as_sure_as_its_least_sure_segment() -> None:
    options = SearchOptions(strategy=BeamSearch(beam_size=2), max_source_tokens=14)
    translator = Translator(calibrated())
    line = f"{SOURCES[2]} {SOURCES[3]}"
    [whole] = translator.translations([line], options=options)
    parts = translator.translations(SOURCES[2:4], options=options)
    known = [each.confidence for each in parts if each.confidence]
    assert whole.text == " ".join(each.text for each in parts)
    assert whole.confidence == Confidence(
        min(each.sentence for each in known),
        tuple(word for each in known for word in each.words),
        tuple(token for each in known for token in each.tokens),
    )


def test_a_word_of_two_segments_has_the_lower_confidence() -> None:
    first, second = Confidence(0.9, (0.8, 0.4), (0.1,)), Confidence(0.7, (0.6, 0.5), (0.2, 0.3))
    joined = Confidence.joined([first, second], ["你好 吗", "我 是"])
    assert joined == Confidence(0.7, (0.8, 0.4, 0.5), (0.1, 0.2, 0.3))
    inside = Confidence.joined([first, second], ["ab cd", "\u3000ef gh"])
    assert inside == joined
    apart = Confidence.joined([first, second], ["ab cd", " ef gh"])
    assert apart == Confidence(0.7, (0.8, 0.4, 0.6, 0.5), (0.1, 0.2, 0.3))
    assert Confidence.joined([first, None], ["ab", " cd"]) is None
    assert Confidence.joined([], []) is None


def test_the_number_of_words_is_that_of_the_joined_text() -> None:
    def translation(text: str, words: tuple[float, ...]) -> Translation:
        confidence = Confidence(0.5, words, ())
        one = TextHypothesis(text, 0.0, 0.0, (), (), True, (), confidence=confidence)
        return Translation(text, text, 0.0, (one,))

    for last, words in (("吗 b", (0.3, 0.2)), ("a b", (0.5, 0.3, 0.2))):
        texts = {"": (), "你好。": (0.5,), " ": (), last: (0.3, 0.2)}
        segments = [translation(text.strip(), own) for text, own in texts.items()]
        whole = Translation.joined("...", segments, ["", " ", " ", " "])
        assert whole.confidence is not None
        assert whole.confidence.words == words
        assert len(whole.text.split()) == len(words)


@pytest.mark.parametrize("space", ["\u00a0", "\u202f", "\u3000", "\u2028"])
def test_other_spaces_than_those_of_ascii_are_inside_words(space: str) -> None:
    text = f"die{space}Katze schläft ."
    [scored] = Translator(calibrated()).score(["the cat sleeps ."], [text])
    assert scored.confidence is not None
    assert len(scored.confidence.words) == len(text.split(" ")) == 3
