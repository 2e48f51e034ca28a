"""Each filter finds the first list and leaves the second alone, whichever side is which."""

import pytest

from heedful.data.cleaning import Pair
from heedful.data.cleaning import filters as lengths
from heedful.data.cleaning.registry import Check

SENTENCE = "The ferry leaves at a quarter past six."

FOUND = [
    (lengths.empty, "", SENTENCE),
    (lengths.empty, " \t\u00a0", SENTENCE),
    (lengths.empty, "", ""),
    (lengths.too_long, "word " * 151, SENTENCE),
    (lengths.too_long, "字" * 1025, SENTENCE),
    (lengths.too_short, "Good evening", SENTENCE),
    (lengths.too_short, "你好。", SENTENCE),
    (
        lengths.length_ratio,
        "Yes.",
        "Ja, aber nur, wenn es morgen nicht den ganzen Tag regnet und schneit wie am letzten Sonntag.",
    ),
    (
        lengths.length_ratio,
        "是的",
        "Yes, but only if it does not rain and snow the whole day, as it did on the last two Sundays.",
    ),
    (lengths.long_word, f"See {'x' * 41} for more of it.", SENTENCE),
    (lengths.word_length, "a b c d e f g h", SENTENCE),
    (lengths.word_length, "thisisasentencewithoutspaces " * 5, SENTENCE),
]

LEFT_ALONE = [
    (lengths.empty, "a", "b"),
    (lengths.too_long, "word " * 150, SENTENCE),
    (lengths.too_short, "Come in now.", SENTENCE),
    (lengths.too_short, "你好吗？", SENTENCE),
    (lengths.length_ratio, "Yes, of course I do.", "Ja, klar."),
    (
        lengths.length_ratio,
        "法律不溯及既往的原则。",
        "The principle that no law has an effect before its day.",
    ),
    (lengths.length_ratio, "Expenses", "Frais de déplacement et de séjour"),
    (lengths.length_ratio, "Я вижу её.", "I see her now, right there."),
    (lengths.long_word, f"See {'x' * 40} for more of it.", SENTENCE),
    (lengths.long_word, "https://example.org/a/very/long/path/with/many/parts", SENTENCE),
    (lengths.long_word, "字" * 50, SENTENCE),
    (lengths.word_length, "I am it.", "Das bin ich."),
    (lengths.word_length, "dans le cas de « B » :", "if “B” is so:"),
    (lengths.word_length, "to 3 a", "Terre-Neuve-et-Labrador"),
    (lengths.word_length, "法律不溯及既往的原则在这里也适用于所有的人和所有的事", SENTENCE),
]


@pytest.mark.parametrize(("check", "src", "tgt"), FOUND)
def test_a_faulty_length_is_found_on_either_side(check: Check, src: str, tgt: str) -> None:
    assert check(Pair(src, tgt))
    assert check(Pair(tgt, src))


@pytest.mark.parametrize(("check", "src", "tgt"), LEFT_ALONE)
def test_an_ordinary_length_is_left_alone(check: Check, src: str, tgt: str) -> None:
    assert not check(Pair(src, tgt))
    assert not check(Pair(tgt, src))
