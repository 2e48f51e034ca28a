"""Content filters: pairs that are no translations, or not worth learning from.

Each returns True for a faulty pair; its docstring gives the threshold and the source.
"""

import re
from collections import Counter
from collections.abc import Iterable
from operator import eq

from heedful.data.cleaning.pair import Pair, Sentence

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
    """Source and target are the same text except for case, digits and punctuation; names and formulas may be.

    A text has three lower-case words of two letters or more, or ten letters in a script without spaces.

    Source: hardrules no_identical; OpusFilter SimilarityFilter and LongestCommonSubstringFilter (0.9).
    """
    return pair.src.num_letters > 0 and pair.src.shape == pair.tgt.shape and _is_text(pair.src)


def only_addresses(pair: Pair) -> bool:
    """A side has only web or e-mail addresses.

    Source: hardrules no_urls.
    """
    return any(
        _may_have_address(sentence.text) and not any(map(str.isalpha, _ADDRESS.sub("", sentence.text)))
        for sentence in pair.sentences
    )


def addresses_differ(pair: Pair) -> bool:
    """Source and target have different web or e-mail addresses.

    Source: OpusCleaner url_mismatch.
    """
    if not (_may_have_address(pair.src.text) or _may_have_address(pair.tgt.text)):
        return False
    return _addresses(pair.src.text) != _addresses(pair.tgt.text)


def numbers_differ(pair: Pair) -> bool:
    """Source and target have numbers in digits, and under half of them are shared.

    Trailing zeros and separators of thousands and decimals are ignored; 3 p.m. may be 15:00.

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

    The penalty is the difference, plus one for each mark of a side after its first. A mark counts only at the
    end or before a capital letter, which excludes abbreviations; several in a row count as one.

    Source: OpusFilter TerminalPunctuationFilter (-2 = -log(1 + 6.4); it counts every mark).
    """
    src, tgt = (len(_TERMINALS.findall(sentence.text)) for sentence in pair.sentences)
    return abs(src - tgt) + max(src - 1, 0) + max(tgt - 1, 0) > MAX_PENALTY


def repeated_words(pair: Pair) -> bool:
    """A side has a sequence of up to 10 words four or more times in a row, and the other side has none.

    Source: OpusFilter RepetitionFilter (three times), hardrules no_repeated_words (twice).
    """
    return _repeats(pair.src) != _repeats(pair.tgt)


def brackets(pair: Pair) -> bool:
    """Brackets are balanced in only one of source and target, and differ in number.

    So "(2)(b)" may become "(2)b)".

    Source: hardrules no_paren.
    """
    src, tgt = pair.src.text, pair.tgt.text
    return _balanced(src) != _balanced(tgt) and any(src.count(b) != tgt.count(b) for b in ")]}")


def _is_text(sentence: Sentence) -> bool:
    if sentence.is_unspaced:
        return sentence.num_letters >= MIN_LETTERS_OF_TEXT
    small = (
        word for word in sentence.words if word[:2].isalpha() and not word[0].isupper() and len(word) > 1
    )
    return len(list(small)) >= MIN_WORDS_OF_TEXT


def _may_have_address(text: str) -> bool:
    return "://" in text or "@" in text or "www." in text or "WWW." in text


def _addresses(text: str) -> Counter[str]:
    return Counter(address.rstrip(".,;:!?)]}>\"'»”").casefold() for address in _ADDRESS.findall(text))


def _numbers(text: str) -> list[str]:
    """Return the numbers in ASCII digits, without separators of thousands."""
    numbers = _NUMBER.findall(_THOUSANDS.sub("", text))
    if text.isascii():
        return numbers
    return ["".join(str(int(digit)) for digit in number) for number in numbers]


def _significant(number: str) -> str:
    return number.strip("0") or "0"


def _hours(early: Iterable[str], late: Iterable[str]) -> int:
    """Return how many numbers of `early` may be hours p.m. that `late` has in the 24-hour clock."""
    hours = Counter(int(number) + 12 for number in early if len(number) <= 2 and 0 < int(number) < 12)
    return (hours & Counter(int(number) for number in late if len(number) == 2)).total()


def _repeats(sentence: Sentence) -> bool:
    """Return whether a sequence of words is repeated four or more times in a row; 000 is part of a number."""
    bare = (word.strip(_PUNCTUATION) for word in sentence.text.casefold().split())
    words = [word for word in bare if word and word != "000"]
    if len(words) - len(set(words)) < MAX_REPEATS:
        return False
    periods = range(1, min(MAX_PERIOD, len(words) // (MAX_REPEATS + 1)) + 1)
    return any(b"\1" * (MAX_REPEATS * period) in bytes(map(eq, words, words[period:])) for period in periods)


def _balanced(text: str) -> bool:
    return all(text.count(opening) == text.count(closing) for opening, closing in _BRACKETS)
