"""Each filter finds the first list and leaves the second alone, whichever side is which."""

import unicodedata

import pytest

from heedful.data.cleaning import Pair
from heedful.data.cleaning import filters as characters
from heedful.data.cleaning.registry import Check

SENTENCE = "The ferry leaves at a quarter past six."

FOUND = [
    (characters.no_letters, "12,5 % -- (3)"),
    (characters.no_letters, "★★★"),
    (characters.many_digits, "5551234567 ab"),
    (characters.many_digits, "٠١٢٣٤٥٦ ab"),
    (characters.few_letters, "Tel. 030/1234-567 (7-9)"),
    (characters.few_letters, "- - - x - - -"),
    (characters.control_characters, "The \x07bell"),
    (characters.control_characters, "a form\x0cfeed"),
    (characters.control_characters, "caf\ufffd"),
    (characters.control_characters, "a word \ue001 of a font"),
    (characters.control_characters, "the middle\ufeff of it"),
    (characters.decomposed, unicodedata.normalize("NFD", "eine schöne Blume")),
    (characters.html, "a <b>bold</b> word"),
    (characters.html, 'see <a href="x.html">here</a>'),
    (characters.html, "one line<br/>and another"),
    (characters.html, "Smith &amp; Sons"),
    (characters.html, "caf&#233; and caf&#xe9;"),
    (characters.html, "<!-- gone -->"),
    (characters.escaped_characters, r"caf\xc3\xa9"),
    (characters.escaped_characters, r"caf\u00e9"),
    (characters.placeholders, "Hello {{name}}, welcome"),
    (characters.placeholders, "%s files were deleted"),
    (characters.placeholders, 'class="big" remains'),
    (characters.breadcrumbs, "Home » News » Today"),
    (characters.breadcrumbs, "Home | News | Contact"),
    (characters.spaced_letters, "this is s p a c e d out"),
    (characters.spaced_letters, "W a r n i n g"),
    (characters.glued_words, "Go to HomeNewsContact now"),
]

LEFT_ALONE = [
    (characters.no_letters, "§ 12 a"),
    (characters.no_letters, "नमस्ते"),
    (characters.many_digits, "Section 12 of 1985"),
    (characters.few_letters, "Is it 12:30 now?"),
    (characters.few_letters, "हिन्दी में लिखा हुआ वाक्य"),  # marks are part of letters
    (characters.control_characters, "a\ttab and a soft\u00adhyphen"),
    (characters.control_characters, "می\u200cخواهم"),  # the joiner is part of the spelling
    (characters.decomposed, "eine schöne Blume, 한국어"),
    (characters.html, "a < b and b > c"),
    (characters.html, "R&D; A & B; AT&T"),
    (characters.html, "<unknown> is no tag of HTML"),
    (characters.escaped_characters, r"C:\users\new"),
    (characters.placeholders, "100% sure, 5 % of it"),
    (characters.breadcrumbs, "« oui » et « non » et le | trait"),
    (characters.spaced_letters, "I am a b c man"),
    (characters.spaced_letters, "L x B x D x 0.6"),
    (characters.spaced_letters, SENTENCE),
    (characters.glued_words, "McDonald and YouTube, USA, iPhone, GmbH"),
    (characters.glued_words, "JavaScript is not HTML"),
]


@pytest.mark.parametrize(("check", "text"), FOUND)
def test_faulty_characters_are_found_on_either_side(check: Check, text: str) -> None:
    assert check(Pair(text, SENTENCE))
    assert check(Pair(SENTENCE, text))


@pytest.mark.parametrize(("check", "text"), LEFT_ALONE)
def test_ordinary_text_is_left_alone(check: Check, text: str) -> None:
    assert not check(Pair(text, SENTENCE))
    assert not check(Pair(SENTENCE, text))


def test_placeholders_that_both_sides_have_are_right() -> None:
    for src, tgt in (
        ("The file %s is missing.", "Датотека %s недостаје."),
        ("Replace %s by %s?", "%2$s anstelle von %1$s?"),
        ("Hello {{name}}!", "Γεια σου {{name}}!"),
    ):
        assert not characters.placeholders(Pair(src, tgt))
    for src, tgt in (("%s of %s", "%s"), ("{{a}} and b", "a and b"), ("a *** b", "a *** b")):
        assert characters.placeholders(Pair(src, tgt))
