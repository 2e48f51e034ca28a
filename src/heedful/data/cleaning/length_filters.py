"""Filters of length: how long a side is, how long its words are, and how both compare.

Each is true of a pair that it finds fault with, and says its threshold and who else has it. "OpusCleaner" is
the default list of Mozilla's training pipeline, "OpusFilter" what its autogen writes, "hardrules" the
defaults of bicleaner-hardrules.
"""

from heedful.data.cleaning.pair import Pair, Side

MAX_WORDS = 150
MAX_CHARACTERS = 1024
MIN_WORDS = 3
MAX_RATIO = 3.0
MIN_DIFFERENCE = 80
MAX_WORD = 40
SHORTEST_MEAN, LONGEST_MEAN = 2.0, 20.0
MIN_WORDS_OF_A_MEAN = 5


def empty(pair: Pair) -> bool:
    """A side is empty, or white space alone.

    Source: OpusCleaner remove_empty_lines, hardrules no_empty.
    """
    return not (pair.src.text.strip() and pair.tgt.text.strip())


def too_long(pair: Pair) -> bool:
    """A side has over 150 words or 1,024 characters.

    Source: OpusCleaner max_length (150 words; OpusFilter LengthFilter: 100), hardrules not_too_long (1,024
    characters).
    """
    return any(len(side.text) > MAX_CHARACTERS or len(side.words) > MAX_WORDS for side in pair.sides)


def too_short(pair: Pair) -> bool:
    """A side has fewer than 3 words, or 3 letters in a script without spaces.

    Source: hardrules not_too_short (OpusCleaner and OpusFilter take a single word).
    """
    return any((s.num_letters if s.is_unspaced else len(s.words)) < MIN_WORDS for s in pair.sides)


def length_ratio(pair: Pair) -> bool:
    """A side is over 3 times as long as the other and over 80 longer, in characters and in bytes of UTF-8.

    In both, because a Chinese character says as much as several Latin letters, and has three bytes. Headings
    and short sentences may differ by any factor.

    Source: hardrules length_ratio (3; in bytes for Chinese, Japanese and Korean), OpusFilter
    LengthRatioFilter (3), OpusCleaner src_trg_ratio.
    """
    src, tgt = pair.src.text, pair.tgt.text
    return _unlike(len(src), len(tgt)) and _unlike(len(src.encode()), len(tgt.encode()))


def long_word(pair: Pair) -> bool:
    """A word has over 40 characters; addresses and scripts without spaces do not count.

    Source: OpusFilter LongWordFilter (40), OpusCleaner max_word_length (150).
    """
    return any(map(_has_long_word, pair.sides))


def word_length(pair: Pair) -> bool:
    """The words of a side, of 5 words or more, have under 2 or over 20 characters on average.

    Punctuation between spaces is no word.

    Source: OpusFilter AverageWordLengthFilter (2 and 20, of any number of words, punctuation included).
    """
    return any(map(_has_odd_words, pair.sides))


def _has_long_word(side: Side) -> bool:
    if len(side.text) <= MAX_WORD or side.is_unspaced:
        return False
    return any(len(word) > MAX_WORD and "/" not in word and "@" not in word for word in side.words)


def _has_odd_words(side: Side) -> bool:
    words = side.words
    if side.is_unspaced or SHORTEST_MEAN * len(words) <= side.num_visible <= LONGEST_MEAN * len(words):
        return False
    words = [word for word in words if any(map(str.isalnum, word))]
    if len(words) < MIN_WORDS_OF_A_MEAN:
        return False
    return not SHORTEST_MEAN * len(words) <= sum(map(len, words)) <= LONGEST_MEAN * len(words)


def _unlike(first: int, second: int) -> bool:
    shorter, longer = sorted((first, second))
    return longer > MAX_RATIO * shorter and longer - shorter > MIN_DIFFERENCE
