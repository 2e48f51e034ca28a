"""Where a part of a sentence is in the translation, by the words that are aligned with it."""

import re
from collections.abc import Sequence
from itertools import accumulate
from unicodedata import category

Span = tuple[int, int]  # the first, and the one behind the last: of characters or of words
Links = Sequence[tuple[int, int]]  # (source word, target word), each from 0
# Scripts without spaces between words: Thai, Lao, Burmese, Khmer, Japanese, Chinese.
_UNSPACED = re.compile(
    "[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]"
)
_JOINERS = "\u200c\u200d"  # within a word, as marks are
_INNER = "'’-"  # between two letters, part of the word


def words(text: str) -> list[Span]:
    """Return where each word and each sign of a text begins and ends; marks are part of what they follow.

    In scripts without spaces between words, each character is a word.
    """
    spans: list[Span] = []
    is_open = False  # whether a letter goes on with the last word
    for at, char in enumerate(text):
        if char.isspace():
            is_open = False
        elif spans and spans[-1][1] == at and (_is_mark(char) or (is_open and _goes_on(text, at))):
            spans[-1] = (spans[-1][0], at + 1)
        else:
            spans.append((at, at + 1))
            is_open = _is_letter(char)
    return spans


def _is_mark(char: str) -> bool:
    return char in _JOINERS or category(char).startswith("M")


def _goes_on(text: str, at: int) -> bool:
    """Return whether a word has the character too, which follows one of its letters."""
    return _is_letter(text[at]) or (text[at] in _INNER and at + 1 < len(text) and _is_letter(text[at + 1]))


def _is_letter(char: str) -> bool:
    return (char.isalnum() or char == "_") and not _UNSPACED.match(char)


def best_span(links: Links, first: int, behind: int, num_targets: int) -> Span | None:
    """Return the span of target words that stands for the source words from `first` to before `behind`.

    A word inside that is linked with these words counts for it, one that is linked with others against it: it
    is the span of the largest sum, and of these the shortest.

    Returns:
        None where no target word is linked with them alone, or mostly.
    """
    counts = [0] * num_targets
    for src, tgt in links:
        counts[tgt] += 1 if first <= src < behind else -1
    best, best_sum = None, 0
    start, total = 0, 0
    for end, count in enumerate(counts, start=1):
        if total <= 0:
            start, total = end - 1, 0
        total += count
        if total > best_sum:
            best, best_sum = (start, end), total
    return best


def best_gap(links: Links, before: int, num_targets: int, *, near: int) -> int:
    """Return the gap between target words that stands for the one before a source word.

    It is the one that the fewest links cross, those of words beside it counting most, and of these the one
    that is nearest to where it is expected.

    Args:
        links: of the words.
        before: number of the source word behind the gap.
        num_targets: how many target words there are.
        near: where the gap is expected.
    """
    costs = [0.0] * (num_targets + 1)
    for src, tgt in links:
        distance = before - 1 - src if src < before else src - before
        cost = 0.5**distance
        if src < before:  # it should be before the gap
            costs[0] += cost
            costs[tgt + 1] -= cost
        else:
            costs[tgt + 1] += cost
    totals = list(accumulate(costs))
    return min(range(num_targets + 1), key=lambda gap: (round(totals[gap], 9), abs(gap - near)))
