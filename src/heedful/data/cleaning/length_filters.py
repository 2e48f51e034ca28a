"""Length filters: of sentences, of words, and the ratio of source and target.

Each returns True for a faulty pair; its docstring gives the threshold and the source. "OpusCleaner" is the
default list of Mozilla's training pipeline, "OpusFilter" the output of its autogen, "hardrules" the defaults
of bicleaner-hardrules.
"""

from heedful.data.cleaning.pair import Pair, Sentence

MAX_WORDS = 150
MAX_CHARACTERS = 1024
MIN_WORDS = 3
MAX_RATIO = 3.0
MIN_DIFFERENCE = 80
MAX_WORD = 40
SHORTEST_MEAN, LONGEST_MEAN = 2.0, 20.0
MIN_WORDS_OF_A_MEAN = 5


def empty(pair: Pair) -> bool:
    """A side is empty or only white space.

    Source: OpusCleaner remove_empty_lines, hardrules no_empty.
    """
    return not (pair.src.text.strip() and pair.tgt.text.strip())


def too_long(pair: Pair) -> bool:
    """A side has over 150 words or 1,024 characters.

    Source: OpusCleaner max_length (150 words; OpusFilter LengthFilter: 100), hardrules not_too_long (1,024
    characters).
    """
    return any(
        len(sentence.text) > MAX_CHARACTERS or len(sentence.words) > MAX_WORDS for sentence in pair.sentences
    )


def too_short(pair: Pair) -> bool:
    """A side has fewer than 3 words, or 3 letters in a script without spaces.

    Source: hardrules not_too_short (OpusCleaner and OpusFilter take a single word).
    """
    return any((s.num_letters if s.is_unspaced else len(s.words)) < MIN_WORDS for s in pair.sentences)


def length_ratio(pair: Pair) -> bool:
    """A side is over 3 times as long as the other and over 80 longer, in characters and in bytes of UTF-8.

    In both, because a Chinese character corresponds to several Latin letters and has three bytes. Headings
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
    return any(map(_has_long_word, pair.sentences))


def word_length(pair: Pair) -> bool:
    """The words of a side, of 5 words or more, have under 2 or over 20 characters on average.

    Punctuation between spaces is not counted as a word.

    Source: OpusFilter AverageWordLengthFilter (2 and 20, of any number of words, punctuation included).
    """
    return any(map(_has_odd_words, pair.sentences))


def _has_long_word(sentence: Sentence) -> bool:
    if len(sentence.text) <= MAX_WORD or sentence.is_unspaced:
        return False
    return any(len(word) > MAX_WORD and "/" not in word and "@" not in word for word in sentence.words)


def _has_odd_words(sentence: Sentence) -> bool:
    words = sentence.words
    if sentence.is_unspaced or SHORTEST_MEAN * len(words) <= sentence.num_visible <= LONGEST_MEAN * len(
        words
    ):
        return False
    words = [word for word in words if any(map(str.isalnum, word))]
    if len(words) < MIN_WORDS_OF_A_MEAN:
        return False
    return not SHORTEST_MEAN * len(words) <= sum(map(len, words)) <= LONGEST_MEAN * len(words)


def _unlike(first: int, second: int) -> bool:
    shorter, longer = sorted((first, second))
    return longer > MAX_RATIO * shorter and longer - shorter > MIN_DIFFERENCE
