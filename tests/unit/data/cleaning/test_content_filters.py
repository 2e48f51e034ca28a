"""Each filter finds the first list and leaves the second alone, whichever side is which."""

import pytest

from heedful.data.cleaning import Pair
from heedful.data.cleaning import filters as content
from heedful.data.cleaning.registry import Check

FOUND = [
    (content.identical, "Not a translation at all", "Not a translation at all"),
    (content.identical, "NOT a translation, at all!", "not a translation at all"),
    (content.only_addresses, "https://example.org/a", "See the page of the organisation"),
    (content.only_addresses, "Write to me", "ann@example.org, www.example.org"),
    (content.addresses_differ, "See http://example.org/a", "Siehe http://example.org/b"),
    (content.addresses_differ, "Mail ann@example.org", "Schreiben Sie uns"),
    (content.numbers_differ, "It began in 1954.", "Es begann 1945."),
    (content.numbers_differ, "Sections 12, 13 and 14", "Abschnitte 2, 3 und 14"),
    (content.terminal_punctuation, "One. Two. Three. Four. Five.", "Eins zwei drei."),
    (content.repeated_words, "the the the the end of it", "das Ende davon"),
    (content.repeated_words, "yes it is " * 4, "ja"),
    (content.brackets, "Some (of it", "Etwas (davon)"),
]

LEFT_ALONE = [
    (content.identical, "Hans-Peter Meier", "Hans-Peter Meier"),
    (content.identical, "a + b × c", "a + b × c"),
    (content.identical, "Berlin is large", "Berlin ist groß"),
    (content.identical, "1985", "1985"),  # no letters: another filter's
    (content.only_addresses, "See www.example.org for it", "Siehe www.example.org dazu"),
    (content.addresses_differ, "See www.example.org.", "Auf www.Example.org steht es"),
    (content.addresses_differ, "no address", "keine Adresse"),
    (content.numbers_differ, "It costs 1,500.50 dollars", "Es kostet 1.500,5 Dollar"),
    (content.numbers_differ, "to Yukon, $10,900,000", "Yukon : 10 900 000 $"),
    (content.numbers_differ, "It's 4:30 in the afternoon", "Es ist 16:30 Uhr"),
    (content.numbers_differ, "12 May 1985", "12.5.1985"),
    (content.numbers_differ, "We meet at 8:00 p.m.", "Wir treffen uns um 20 Uhr"),
    (content.numbers_differ, "It is 150 centimeters long", "Es ist 1,50 m lang"),
    (content.numbers_differ, "$750 million", "750 000 000 $"),
    (content.numbers_differ, "At 9:00", "Um 9 Uhr"),
    (content.numbers_differ, "three friends", "3 Freunde"),  # in words on one side
    (content.numbers_differ, "١٢ شخصا", "12 people"),
    (content.numbers_differ, "on 3 May 1985 and 1990", "am 3.5.1985 und 1990 und 1985"),
    (content.terminal_punctuation, "Who? Me!", "Wer? Ich!"),
    (content.terminal_punctuation, "R.S.C. 1985, c. 46, s. 2, s. 3 and s. 4, etc.", "L.R. (1985), ch. 46"),
    (content.terminal_punctuation, "Yes.", "Ja."),
    (content.repeated_words, "no, no, no, no!", "nein, nein, nein, nein!"),
    (content.repeated_words, "a million", "1 000 000 000"),
    (content.repeated_words, "my great-great-great-great-aunt", "meine Ururururgroßtante"),
    (content.repeated_words, "to 2, to 3, to 4, to 5, to 6", "bis 2, 3, 4, 5, 6"),
    (content.repeated_words, "that that is is", "was ist, ist"),
    (content.brackets, "a) first", "a) erstens"),
    (content.brackets, "paragraph (2)(b)", "alinéa (2)b)"),
    (content.brackets, "(first)", "(erstens)"),
]


@pytest.mark.parametrize(("check", "src", "tgt"), FOUND)
def test_faulty_content_is_found_on_either_side(check: Check, src: str, tgt: str) -> None:
    assert check(Pair(src, tgt))
    assert check(Pair(tgt, src))


@pytest.mark.parametrize(("check", "src", "tgt"), LEFT_ALONE)
def test_an_ordinary_translation_is_left_alone(check: Check, src: str, tgt: str) -> None:
    assert not check(Pair(src, tgt))
    assert not check(Pair(tgt, src))


@pytest.mark.timeout(10)
def test_marks_and_addresses_are_found_in_linear_time() -> None:
    length = 40_000
    assert not content.addresses_differ(Pair("@" + "a" * length, "@" + "a" * length))
    assert not content.terminal_punctuation(Pair("." * length + "x", "x"))
