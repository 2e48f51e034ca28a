"""Filters that look at one pair, or at each side of it: lengths, characters, content, and encoding.

docs/corpus.md says which other tools have which filter.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterable
from functools import wraps
from html.entities import html5
from itertools import pairwise
from operator import eq
from unicodedata import is_normalized

from heedful.data.cleaning.pair import Pair, Sentence, is_unspaced
from heedful.data.cleaning.survey import Survey
from heedful.text.scripts import UNSPACED

MAX_WORDS = 150
MAX_CHARACTERS = 1024
MIN_WORDS = 3
MAX_RATIO = 3.0
MIN_DIFFERENCE = 80
MAX_WORD = 40
SHORTEST_MEAN, LONGEST_MEAN = 2.0, 20.0
MIN_WORDS_OF_A_MEAN = 5


def of_each_side(check: Callable[[Sentence], bool]) -> Callable[[Pair], bool]:
    """Make a check of a sentence a filter: source or target has the fault."""

    @wraps(check)
    def check_pair(pair: Pair) -> bool:
        return check(pair.src) or check(pair.tgt)

    return check_pair


def empty(pair: Pair) -> bool:
    """A side is empty or only white space."""
    return not (pair.src.text.strip() and pair.tgt.text.strip())


@of_each_side
def too_long(side: Sentence) -> bool:
    """A side has over 150 words or 1,024 characters."""
    return len(side.text) > MAX_CHARACTERS or len(side.words) > MAX_WORDS


@of_each_side
def too_short(side: Sentence) -> bool:
    """A side has fewer than 3 words, or 3 letters in a script without spaces."""
    return (side.num_letters if side.is_unspaced else len(side.words)) < MIN_WORDS


def length_ratio(pair: Pair) -> bool:
    """A side is over 3 times as long as the other and over 80 longer, in characters and in bytes of UTF-8.

    In both, because a Chinese character corresponds to several Latin letters and has three bytes. Headings
    and short sentences may differ by any factor.
    """
    src, tgt = pair.src.text, pair.tgt.text
    return _unlike(len(src), len(tgt)) and _unlike(len(src.encode()), len(tgt.encode()))


@of_each_side
def long_word(side: Sentence) -> bool:
    """A word has over 40 characters; addresses and text in scripts without spaces do not count."""
    if len(side.text) <= MAX_WORD:
        return False
    return any(len(part) > MAX_WORD and "/" not in part and "@" not in part for part in side.spaced_parts)


@of_each_side
def word_length(side: Sentence) -> bool:
    """The words of a side, of 5 words or more, have under 2 or over 20 characters on average.

    Punctuation between spaces is not counted as a word.
    """
    if side.is_unspaced or not _are_odd(len(side.words), side.num_visible):
        return False
    words = [word for word in side.words if any(map(str.isalnum, word))]
    return len(words) >= MIN_WORDS_OF_A_MEAN and _are_odd(len(words), sum(map(len, words)))


def _are_odd(num_words: int, num_characters: int) -> bool:
    return not SHORTEST_MEAN * num_words <= num_characters <= LONGEST_MEAN * num_words


def _unlike(first: int, second: int) -> bool:
    shorter, longer = sorted((first, second))
    return longer > MAX_RATIO * shorter and longer - shorter > MIN_DIFFERENCE


LETTERS_SHARE, DIGITS_SHARE = 0.5, 0.5

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
_TEMPLATE = re.compile(r"\{\{|\}\}|%(?:\d+\$)?s")  # %1$s is %s in another order
_REMAINS = ("+++", "***", '="')
_BREADCRUMBS = re.compile(r"\s[>|→←•·]\s")
MAX_BREADCRUMBS = 2


@of_each_side
def no_letters(side: Sentence) -> bool:
    """A side has no letter at all."""
    return not side.num_letters


@of_each_side
def many_digits(side: Sentence) -> bool:
    """At least half of the characters of a side are digits."""
    return side.num_digits >= DIGITS_SHARE * side.num_visible


@of_each_side
def few_letters(side: Sentence) -> bool:
    """Under half of the characters of a side are letters."""
    return side.num_letters < LETTERS_SHARE * side.num_visible


@of_each_side
def control_characters(side: Sentence) -> bool:
    """A side has control characters, replacement characters, or private and undefined ones."""
    return _NOISE.search(side.text) is not None


@of_each_side
def decomposed(side: Sentence) -> bool:
    """A side has letters with separate marks (not Unicode's NFC), other tokens than whole letters."""
    return not is_normalized("NFC", side.text)


@of_each_side
def html(side: Sentence) -> bool:
    """A side has an HTML tag or character reference."""
    has_tag = "<" in side.text and _TAG.search(side.text) is not None
    references = _ENTITY.finditer(side.text) if "&" in side.text else ()
    return has_tag or any(match[1] is None or f"{match[1]};" in html5 for match in references)


@of_each_side
def escaped_characters(side: Sentence) -> bool:
    r"""A side has an escape sequence such as \xc3 or \u00e9."""
    return _ESCAPED.search(side.text) is not None


def placeholders(pair: Pair) -> bool:
    """A side has remains of markup, +++ *** =", or other placeholders than the other side: {{ }} %s."""
    src, tgt = (sentence.text for sentence in pair.sentences)
    has_remains = any(remains in src or remains in tgt for remains in _REMAINS)
    return has_remains or _num_placeholders(src) != _num_placeholders(tgt)


def _num_placeholders(text: str) -> Counter[str]:
    return Counter(match[0][-1] for match in _TEMPLATE.finditer(text))


@of_each_side
def breadcrumbs(side: Sentence) -> bool:
    """A side has 2 or more separators of menu items, such as > or |.

    » counts if no « opens a quotation.
    """
    has_quotes = side.text.count(" » ") >= MAX_BREADCRUMBS and "«" not in side.text
    return has_quotes or len(_BREADCRUMBS.findall(side.text)) >= MAX_BREADCRUMBS


@of_each_side
def spaced_letters(side: Sentence) -> bool:
    """A side has s p a c e s between five letters or more, of one case except for the first.

    A formula such as L x B x D has both cases.
    """
    runs = (match[0].strip()[1:] for match in _SPACED.finditer(" " + side.text))
    return any(run.islower() or run.isupper() for run in runs)


@of_each_side
def glued_words(side: Sentence) -> bool:
    """A side has a word like HomeNewsContact: three capitalised ones without spaces.

    Names within text of a script without spaces are no such words.
    """
    return any(_is_glued(word) and not is_unspaced(word) for word in side.words)


def _is_glued(word: str) -> bool:
    if len(word) < 6 or not word[1:].isalpha() or word[1:].islower() or word.isupper():
        return False
    starts = [i for i, letter in enumerate(word) if letter.isupper()]
    parts = [word[start:end] for start, end in pairwise([*starts, len(word)])]
    return len(parts) >= 3 and all(len(part) >= 2 for part in parts[:3])


MIN_WORDS_OF_TEXT, MIN_LETTERS_OF_TEXT = 3, 10
MIN_SHARED_NUMBERS = 0.5
MAX_PENALTY = 6
MAX_REPEATS = 3
MAX_PERIOD = 10

_LETTER = rf"[^\W{UNSPACED}]"  # or digit; text without spaces may follow an address at once
_ADDRESS = re.compile(
    rf"(?:https?://|ftp://|www\.)[^\s{UNSPACED}]+"
    rf"|(?<!{_LETTER})(?<![.+-])(?:{_LETTER}|[.+-])+@"  # only from the start of a run: in linear time
    rf"(?:{_LETTER}|-)+(?:\.(?:{_LETTER}|-)+)+",
    re.IGNORECASE,
)
_ADDRESS_SIGN = re.compile(r"://|@|www\.|WWW\.")  # of a text that may have an address
_AFTER_ADDRESS = ".,;:!?)]}>\"'»”。，、；：！？）］｝〉》」』】"
_THOUSANDS = re.compile(r"(?<=\d)[\s.,'’٬](?=\d{3}(?!\d))")
_NUMBER = re.compile(r"\d+")
_TERMINALS = re.compile(
    r"[。？！।។៕။꧉᭟᪨᪩።۔]+"
    r"|(?<![.?!…؟])[.?!…؟]+[\"'»”’)\]]*(?=\s+[^\W\d_a-zß-öø-ÿ]|\s*$)"
)
_PUNCTUATION = ".,;:!?…\"'«»“”„()[]-–—"
_BRACKETS = (("(", ")"), ("[", "]"), ("{", "}"))


def identical(pair: Pair) -> bool:
    """Source and target are the same text except for case, digits and punctuation; names and formulas may be.

    A text has three lower-case words of two letters or more, or ten letters in a script without spaces.
    """
    return pair.src.num_letters > 0 and pair.src.shape == pair.tgt.shape and _is_text(pair.src)


@of_each_side
def only_addresses(side: Sentence) -> bool:
    """A side has only web or e-mail addresses."""
    return _may_have_address(side.text) and not any(map(str.isalpha, _ADDRESS.sub("", side.text)))


def addresses_differ(pair: Pair) -> bool:
    """Source and target have different web or e-mail addresses."""
    return _addresses(pair.src.text) != _addresses(pair.tgt.text)


def numbers_differ(pair: Pair) -> bool:
    """Source and target have numbers in digits, and under half of them are shared.

    Trailing zeros and separators of thousands and decimals are ignored; 3 p.m. may be 15:00.
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
    end or before a capital letter, which excludes abbreviations; several in a row count as one. Text in a
    script without spaces may have none, for example Thai.
    """
    src, tgt = (len(_TERMINALS.findall(sentence.text)) for sentence in pair.sentences)
    if (pair.src.is_unspaced and not src) or (pair.tgt.is_unspaced and not tgt):
        return False
    return abs(src - tgt) + max(src - 1, 0) + max(tgt - 1, 0) > MAX_PENALTY


def repeated_words(pair: Pair) -> bool:
    """A side has a sequence of up to 10 words four or more times in a row, and the other side has none."""
    return _repeats(pair.src) != _repeats(pair.tgt)


def brackets(pair: Pair) -> bool:
    """Brackets are balanced in only one of source and target, and differ in number.

    So "(2)(b)" may become "(2)b)".
    """
    src, tgt = pair.src.text, pair.tgt.text
    return _balanced(src) != _balanced(tgt) and any(src.count(b) != tgt.count(b) for b in ")]}")


def _is_text(sentence: Sentence) -> bool:
    if sentence.is_unspaced:
        return sentence.num_letters >= MIN_LETTERS_OF_TEXT
    lower_case = [word for word in sentence.words if not word[0].isupper()]
    return sum(len(word) > 1 and word[:2].isalpha() for word in lower_case) >= MIN_WORDS_OF_TEXT


def _may_have_address(text: str) -> bool:
    return _ADDRESS_SIGN.search(text) is not None


def _addresses(text: str) -> Counter[str]:
    if not _may_have_address(text):
        return Counter()
    return Counter(address.rstrip(_AFTER_ADDRESS).casefold() for address in _ADDRESS.findall(text))


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


# One character becomes two or more beyond ASCII, unless some are lost. Other text is skipped quickly.
_LIKELY = re.compile("[^\x00-\x7f]{2}|[ÂÃâ]")


def mojibake(survey: Survey) -> Callable[[Pair], bool] | None:
    """A side was decoded with the wrong encoding, and can be repaired: "FÃ¤hre" for "Fähre"."""
    del survey
    try:
        from ftfy import fix_encoding
        from ftfy.badness import is_bad
    except ImportError:
        return None

    def check(pair: Pair) -> bool:
        texts = (sentence.text for sentence in pair.sentences if not sentence.text.isascii())
        return any(_LIKELY.search(t) and is_bad(t) and fix_encoding(t) != t for t in texts)

    return check
