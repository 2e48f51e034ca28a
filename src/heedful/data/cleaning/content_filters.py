"""Filters of content: what cannot be a translation, or none worth learning.

Each is true of a pair that it finds fault with, and says its threshold and who else has it.
"""

import re
from collections import Counter
from collections.abc import Iterable
from operator import eq

from heedful.data.cleaning.pair import Pair, Side

MIN_WORDS_OF_TEXT, MIN_LETTERS_OF_TEXT = 3, 10
MIN_SHARED_NUMBERS = 0.5
MAX_PENALTY = 6
MAX_REPEATS = 3
MAX_PERIOD = 10

_ADDRESS = re.compile(r"(?:https?://|ftp://|www\.)\S+|[\w.+-]+@[\w-]+(?:\.[\w-]+)+", re.IGNORECASE)
_THOUSANDS = re.compile(r"(?<=\d)[\s.,'’٬](?=\d{3}(?!\d))")
_NUMBER = re.compile(r"\d+")
_TERMINALS = re.compile(r"[。？！।]+|[.?!…؟]+[\"'»”’)\]]*(?=\s+[^\W\d_a-zß-öø-ÿ]|\s*$)")
_PUNCTUATION = ".,;:!?…\"'«»“”„()[]-–—"
_BRACKETS = (("(", ")"), ("[", "]"), ("{", "}"))


def identical(pair: Pair) -> bool:
    """Both sides are the same text, but for case, digits and punctuation: no mere names and formulas.

    A text has three small words of two letters or more, or ten letters in a script without spaces.

    Source: hardrules no_identical; OpusFilter SimilarityFilter and LongestCommonSubstringFilter (0.9).
    """
    return pair.src.num_letters > 0 and pair.src.shape == pair.tgt.shape and _is_text(pair.src)


def only_addresses(pair: Pair) -> bool:
    """A side is addresses of the web or of e-mail alone.

    Source: hardrules no_urls.
    """
    return any(
        _may_have_address(side.text) and not any(map(str.isalpha, _ADDRESS.sub("", side.text)))
        for side in pair.sides
    )


def addresses_differ(pair: Pair) -> bool:
    """The addresses of the web or of e-mail on one side are not those on the other.

    Source: OpusCleaner url_mismatch.
    """
    if not (_may_have_address(pair.src.text) or _may_have_address(pair.tgt.text)):
        return False
    return _addresses(pair.src.text) != _addresses(pair.tgt.text)


def numbers_differ(pair: Pair) -> bool:
    """Both sides have numbers in digits, and under half of them are shared.

    Zeros at the end do not count, nor does what separates thousands or decimals; 3 p.m. may be 15:00.

    Source: OpusCleaner num_mismatch (1), OpusFilter NonZeroNumeralsFilter (0.5), hardrules
    no_number_inconsistencies.
    """
    if not (pair.src.num_digits and pair.tgt.num_digits):
        return False
    src, tgt = _numbers(pair.src.text), _numbers(pair.tgt.text)
    if "".join(src).replace("0", "") == "".join(tgt).replace("0", ""):
        return False
    of_src, of_tgt = Counter(map(_significant, src)), Counter(map(_significant, tgt))
    shared = (of_src & of_tgt).total()
    src_rest = [number for number in src if _significant(number) not in of_tgt]
    tgt_rest = [number for number in tgt if _significant(number) not in of_src]
    shared += _hours(src_rest, tgt_rest) + _hours(tgt_rest, src_rest)
    return 2 * shared < MIN_SHARED_NUMBERS * (len(src) + len(tgt))


def terminal_punctuation(pair: Pair) -> bool:
    """Marks that end a sentence are too many or too different in number: a penalty of more than 6.

    The penalty is the difference, and one for each mark of a side after its first. A mark counts at the end
    or before a capital letter, or else abbreviations would; several in a row count as one.

    Source: OpusFilter TerminalPunctuationFilter (-2 = -log(1 + 6.4); it counts every mark).
    """
    src, tgt = (len(_TERMINALS.findall(side.text)) for side in pair.sides)
    return abs(src - tgt) + max(src - 1, 0) + max(tgt - 1, 0) > MAX_PENALTY


def repeated_words(pair: Pair) -> bool:
    """A side has a sequence of up to 10 words four times or more in a row, and the other side has none.

    Source: OpusFilter RepetitionFilter (three times), hardrules no_repeated_words (twice).
    """
    return _repeats(pair.src) != _repeats(pair.tgt)


def brackets(pair: Pair) -> bool:
    """Brackets are balanced on one side only, and fewer or more are closed on the other.

    So "(2)(b)" may become "(2)b)".

    Source: hardrules no_paren.
    """
    src, tgt = pair.src.text, pair.tgt.text
    return _balanced(src) != _balanced(tgt) and any(src.count(b) != tgt.count(b) for b in ")]}")


def _is_text(side: Side) -> bool:
    if side.is_unspaced:
        return side.num_letters >= MIN_LETTERS_OF_TEXT
    small = (word for word in side.words if word[:2].isalpha() and not word[0].isupper() and len(word) > 1)
    return len(list(small)) >= MIN_WORDS_OF_TEXT


def _may_have_address(text: str) -> bool:
    return "://" in text or "@" in text or "www." in text or "WWW." in text


def _addresses(text: str) -> Counter[str]:
    return Counter(address.rstrip(".,;:!?)]}>\"'»”").casefold() for address in _ADDRESS.findall(text))


def _numbers(text: str) -> list[str]:
    """Numbers in ASCII digits, without what separates thousands."""
    found = _NUMBER.findall(_THOUSANDS.sub("", text))
    if text.isascii():
        return found
    return ["".join(str(int(digit)) for digit in number) for number in found]


def _significant(number: str) -> str:
    return number.strip("0") or "0"


def _hours(early: Iterable[str], late: Iterable[str]) -> int:
    """How many of the first may be hours after noon that the second counts from midnight."""
    hours = Counter(int(number) + 12 for number in early if len(number) <= 2 and 0 < int(number) < 12)
    return (hours & Counter(int(number) for number in late if len(number) == 2)).total()


def _repeats(side: Side) -> bool:
    """Whether some words come four times or more in a row; 000 is the rest of a number."""
    bare = (word.strip(_PUNCTUATION) for word in side.text.casefold().split())
    words = [word for word in bare if word and word != "000"]
    if len(words) - len(set(words)) < MAX_REPEATS:
        return False
    periods = range(1, min(MAX_PERIOD, len(words) // (MAX_REPEATS + 1)) + 1)
    return any(b"\1" * (MAX_REPEATS * period) in bytes(map(eq, words, words[period:])) for period in periods)


def _balanced(text: str) -> bool:
    return all(text.count(opening) == text.count(closing) for opening, closing in _BRACKETS)
