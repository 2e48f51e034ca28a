r"""Character filters: control characters, markup, and other remains that are not text.

Each returns True for a faulty pair; its docstring gives the threshold and the source.
"""

import re
from html.entities import html5
from itertools import pairwise

from heedful.data.cleaning.pair import Pair, Sentence

MIN_LETTERS = 0.5
MAX_DIGITS = 0.5

# Control characters except the tab, the replacement character, a byte order mark within the text, private
# use, and noncharacters.
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
    return any(sentence.num_digits >= MAX_DIGITS * sentence.num_visible for sentence in pair.sentences)


def few_letters(pair: Pair) -> bool:
    """Under half of the characters of a side are letters.

    Source: OpusCleaner alpha_ratio (letters 0.5), OpusFilter AlphabetRatioFilter (0.75).
    """
    return any(sentence.num_letters < MIN_LETTERS * sentence.num_visible for sentence in pair.sentences)


def control_characters(pair: Pair) -> bool:
    """A side has control characters, replacement characters, or private and undefined ones.

    Source: hardrules no_unicode_noise.
    """
    return any(_NOISE.search(sentence.text) is not None for sentence in pair.sentences)


def html(pair: Pair) -> bool:
    """A side has an HTML tag or character reference.

    Source: OpusFilter HtmlTagFilter; OpusCleaner deescape-special-chars, which replaces references.
    """
    return any(
        ("<" in sentence.text and _TAG.search(sentence.text) is not None)
        or ("&" in sentence.text and any(map(_is_reference, _ENTITY.finditer(sentence.text))))
        for sentence in pair.sentences
    )


def escaped_characters(pair: Pair) -> bool:
    r"""A side has an escape sequence such as \xc3 or \u00e9.

    Source: hardrules no_escaped_unicode.
    """
    return any(
        "\\" in sentence.text and _ESCAPED.search(sentence.text) is not None for sentence in pair.sentences
    )


def placeholders(pair: Pair) -> bool:
    """A side has remains of templates or of markup: {{ }} %s +++ *** ="...

    Source: hardrules no_literals (it has "Re:" too).
    """
    return any(literal in sentence.text for sentence in pair.sentences for literal in _LITERALS)


def breadcrumbs(pair: Pair) -> bool:
    """A side has 2 or more separators of menu items, such as > or |.

    » counts if no « opens a quotation.

    Source: hardrules no_breadcrumbs.
    """
    return any(
        len(_BREADCRUMBS.findall(sentence.text)) >= MAX_BREADCRUMBS
        or (sentence.text.count(" » ") >= MAX_BREADCRUMBS and "«" not in sentence.text)
        for sentence in pair.sentences
    )


def spaced_letters(pair: Pair) -> bool:
    """A side has s p a c e s between five letters or more, of one case except for the first.

    A formula such as L x B x D has both cases.

    Source: hardrules no_space_noise.
    """
    return any(map(_has_spaced_letters, pair.sentences))


def glued_words(pair: Pair) -> bool:
    """A side has a word like HomeNewsContact: three capitalised ones without spaces.

    Source: hardrules no_glued_words.
    """
    return any(_is_glued(word) for sentence in pair.sentences for word in sentence.words)


def _is_reference(match: re.Match[str]) -> bool:
    return match[1] is None or f"{match[1]};" in html5


def _has_spaced_letters(sentence: Sentence) -> bool:
    runs = (match[0].strip()[1:] for match in _SPACED.finditer(" " + sentence.text))
    return any(run.islower() or run.isupper() for run in runs)


def _is_glued(word: str) -> bool:
    if len(word) < 6 or not word[1:].isalpha() or word[1:].islower() or word.isupper():
        return False
    starts = [i for i, letter in enumerate(word) if letter.isupper()]
    starts.append(len(word))
    parts = [word[start:end] for start, end in pairwise(starts)]
    return len(parts) >= 3 and all(len(part) >= 2 for part in parts[:3])
