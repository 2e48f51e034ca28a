r"""Filters of characters: what is no text, or no longer text.

Each is true of a pair that it finds fault with, and says its threshold and who else has it.
"""

import re
from html.entities import html5
from itertools import pairwise

from heedful.data.cleaning.pair import Pair, Side

MIN_LETTERS = 0.5
MAX_DIGITS = 0.5

# Control characters but the tab, the replacement character, a byte order mark within the text, private use,
# and what is no character at all.
_NOISE = re.compile("[\x00-\x08\x0a-\x1f\x7f-\x9f\ufffd\ufeff\ue000-\uf8ff\ufdd0-\ufdef\ufffe\uffff"
                    "\U000f0000-\U0010ffff]")  # fmt: skip
_TAGS = (
    "a|abbr|b|big|blockquote|body|br|center|cite|code|dd|del|div|dl|dt|em|embed|font|form|h[1-6]|head|hr|html|"
    "i|iframe|img|input|ins|li|link|meta|ol|option|p|param|pre|q|s|script|select|small|span|strike|strong|"
    "style|sub|sup|table|tbody|td|textarea|tfoot|th|thead|title|tr|tt|u|ul|video"
)
_TAG = re.compile(rf"</?(?:{_TAGS})(?:\s[^<>]*)?\s*/?>|<!--|<!doctype", re.IGNORECASE)
_ENTITY = re.compile(r"&(?:#\d{1,7}|#x[0-9a-f]{1,6}|([a-z][a-z0-9]{1,30}));", re.IGNORECASE)
_ESCAPED = re.compile(r"\\(?:x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4})")
_SPACED = re.compile(r"(?:\s[^\W\d_]){5,}(?!\w)")
_LITERALS = ("{{", "}}", "%s", "+++", "***", '="')
_BREADCRUMBS = re.compile(r"\s[>|→←•·]\s")
MAX_BREADCRUMBS = 2


def no_letters(pair: Pair) -> bool:
    """A side has no letter at all.

    Source: hardrules no_only_symbols (over 90 % no letters).
    """
    return not (pair.src.num_letters and pair.tgt.num_letters)


def many_digits(pair: Pair) -> bool:
    """At least half of the characters of a side are digits.

    Source: hardrules no_only_numbers (0.5).
    """
    return any(side.num_digits >= MAX_DIGITS * side.num_visible for side in pair.sides)


def few_letters(pair: Pair) -> bool:
    """Under half of the characters of a side are letters.

    Source: OpusCleaner alpha_ratio (letters 0.5), OpusFilter AlphabetRatioFilter (0.75).
    """
    return any(side.num_letters < MIN_LETTERS * side.num_visible for side in pair.sides)


def control_characters(pair: Pair) -> bool:
    """A side has control characters, replacement characters, or private and undefined ones.

    Source: hardrules no_unicode_noise.
    """
    return any(_NOISE.search(side.text) is not None for side in pair.sides)


def html(pair: Pair) -> bool:
    """A side has an HTML tag or character reference.

    Source: OpusFilter HtmlTagFilter; OpusCleaner deescape-special-chars, which replaces references.
    """
    return any(
        ("<" in side.text and _TAG.search(side.text) is not None)
        or ("&" in side.text and any(map(_is_reference, _ENTITY.finditer(side.text))))
        for side in pair.sides
    )


def escaped_characters(pair: Pair) -> bool:
    r"""A side has an escape sequence such as \xc3 or \u00e9.

    Source: hardrules no_escaped_unicode.
    """
    return any("\\" in side.text and _ESCAPED.search(side.text) is not None for side in pair.sides)


def placeholders(pair: Pair) -> bool:
    """A side has remains of templates or of markup: {{ }} %s +++ *** ="...

    Source: hardrules no_literals (it has "Re:" too).
    """
    return any(literal in side.text for side in pair.sides for literal in _LITERALS)


def breadcrumbs(pair: Pair) -> bool:
    """A side has 2 or more signs that stand between the items of a menu, such as > or |.

    So does » where no « opens a quotation.

    Source: hardrules no_breadcrumbs.
    """
    return any(
        len(_BREADCRUMBS.findall(side.text)) >= MAX_BREADCRUMBS
        or (side.text.count(" » ") >= MAX_BREADCRUMBS and "«" not in side.text)
        for side in pair.sides
    )


def spaced_letters(pair: Pair) -> bool:
    """A side has s p a c e s between five letters or more, of one case but for the first.

    A formula such as L x B x D has both.

    Source: hardrules no_space_noise.
    """
    return any(map(_has_spaced_letters, pair.sides))


def glued_words(pair: Pair) -> bool:
    """A side has a word like HomeNewsContact: three capitalised ones without spaces.

    Source: hardrules no_glued_words.
    """
    return any(_is_glued(word) for side in pair.sides for word in side.words)


def _is_reference(match: re.Match[str]) -> bool:
    return match[1] is None or f"{match[1]};" in html5


def _has_spaced_letters(side: Side) -> bool:
    runs = (match[0].strip()[1:] for match in _SPACED.finditer(" " + side.text))
    return any(run.islower() or run.isupper() for run in runs)


def _is_glued(word: str) -> bool:
    if len(word) < 6 or not word[1:].isalpha() or word[1:].islower() or word.isupper():
        return False
    starts = [i for i, letter in enumerate(word) if letter.isupper()]
    starts.append(len(word))
    parts = [word[start:end] for start, end in pairwise(starts)]
    return len(parts) >= 3 and all(len(part) >= 2 for part in parts[:3])
