"""Where the translation of a phrase stands in the translation of its sentence."""

import re
from collections import Counter
from collections.abc import Sequence

_WORD = re.compile(r"\w+(?:['’-]\w+)*|[^\w\s]")
_MORE_WORDS = 2  # or fewer, than the phrase has by itself
_ALIKE = 0.5  # from which on a span is taken for the phrase
_DISTANCE_COST = 0.3  # of likeness, for a span at the other end of the sentence

Span = tuple[int, int]


def words(text: str) -> list[Span]:
    """Return where each word and each sign of a text begins and ends."""
    return [match.span() for match in _WORD.finditer(text)]


def find_phrase(phrase: str, text: str, spans: Sequence[Span], *, near: float) -> Span | None:
    """Return the words (first, behind the last) of a text that are most like a phrase.

    Likeness is Dice's coefficient of pairs of letters; inflected words are alike, too.

    Args:
        phrase: translated by itself.
        text: the translation of the sentence.
        spans: its words.
        near: where the phrase is expected, from 0 to 1.

    Returns:
        None where nothing is like it.
    """
    pairs_of_phrase = _letter_pairs(phrase)
    length = sum(phrase[start].isalnum() for start, _ in words(phrase))
    best, best_score = None, _ALIKE
    for first in range(len(spans)):
        for behind in range(
            first + max(1, length - _MORE_WORDS), min(len(spans), first + length + _MORE_WORDS) + 1
        ):
            start, end = spans[first][0], spans[behind - 1][1]
            if not (text[start].isalnum() and text[end - 1].isalnum()):
                continue
            distance = abs((start + end) / 2 / len(text) - near)
            score = _dice(pairs_of_phrase, _letter_pairs(text[start:end])) - _DISTANCE_COST * distance
            if score > best_score:
                best, best_score = (first, behind), score
    return best


def _letter_pairs(text: str) -> Counter[str]:
    padded = " ".join(text[start:end] for start, end in words(text) if text[start].isalnum())
    padded = f" {padded.casefold()} "
    return Counter(padded[i : i + 2] for i in range(len(padded) - 1))


def _dice(first: Counter[str], second: Counter[str]) -> float:
    return 2 * (first & second).total() / max(1, first.total() + second.total())
