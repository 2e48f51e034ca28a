"""The scripts without spaces are those that Unicode's classes of line breaking name."""

import re

import pytest

from heedful.text.scripts import UNSPACED

# Ideographs and kana, South-East Asian text that needs a dictionary, and Brahmic syllables (UAX 14).
CLASSES = ("ID", "CJ", "SA", "AK", "AP", "AS", "VI", "VF")


def test_their_letters_are_those_of_unicode() -> None:
    regex = pytest.importorskip("regex")  # has the property, which unicodedata lacks
    properties = "".join(rf"\p{{Line_Break={name}}}" for name in CLASSES)
    letters = regex.compile(
        rf"[[{properties}]&&[\p{{L}}\p{{M}}]--[\p{{Script=Hangul}}\p{{Script=Latin}}\p{{Script=Common}}]]",
        regex.V1,
    )
    text = "".join(map(chr, [*range(0xD800), *range(0xE000, 0x110000)]))
    named = letters.findall(text)
    assert len(named) > 100_000
    assert re.sub(f"[{UNSPACED}]", "", "".join(named)) == ""


@pytest.mark.parametrize(
    "script",
    [
        "Latin",
        "Cyrillic",
        "Greek",
        "Arabic",
        "Hebrew",
        "Devanagari",
        "Tamil",
        "Ethiopic",
        "Hangul",
        "Sundanese",
    ],
)
def test_other_scripts_have_spaces(script: str) -> None:
    regex = pytest.importorskip("regex")
    text = "".join(map(chr, [*range(0xD800), *range(0xE000, 0x110000)]))
    letters = "".join(
        regex.findall(
            rf"[\p{{Script={script}}}&&\p{{L}}--\p{{East_Asian_Width=H}}--\p{{Block=Halfwidth_And_Fullwidth_Forms}}]",
            text,
            regex.V1,
        )
    )
    assert len(letters) > 20
    assert re.search(f"[{UNSPACED}]", letters) is None
