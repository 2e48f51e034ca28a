"""Words of a text, and which words of a sentence and its translation are linked."""

import re
from collections import Counter
from collections.abc import Sequence
from itertools import accumulate
from unicodedata import category

from heedful.spans.placeholders import Range, recognised
from heedful.text.scripts import UNSPACED

Links = Sequence[tuple[int, int]]  # (source word, target word), each from 0
_OWN = 4  # links with other words that one with the element's own outweighs, by measurement
_FAR = 40  # words from a gap; links of those beyond count for nothing
_INNER = "'’-"  # between two letters, part of the word
_LETTER = rf"(?![{UNSPACED}])\w"
_WORD = re.compile(rf"(?P<letters>[{_INNER}]?(?:{_LETTER})+(?:[{_INNER}](?:{_LETTER})+)*)|\S")
_UNSPACED = re.compile(f"[{UNSPACED}]")
_JOINERS = "\u200c\u200d"  # within a word, as marks are


def words(text: str) -> list[Range]:
    """Return where each word, sign and placeholder of a text begins and ends.

    Marks are part of what they follow. In scripts without spaces between words, each character is a word.
    """
    ranges: list[Range] = []
    at = 0
    for start, end in [*recognised(text), (len(text), len(text))]:
        is_open = False  # whether a letter goes on with the last word
        for match in _WORD.finditer(text, at, start):
            low, high = match.span()
            is_next = bool(ranges) and ranges[-1][1] == low
            if is_next and (is_mark(text[low]) or (is_open and match["letters"])):
                ranges[-1] = (ranges[-1][0], high)
                continue
            if match["letters"] and text[low] in _INNER:  # no part of a word before
                ranges.append((low, low + 1))
                low += 1
            ranges.append((low, high))
            is_open = match["letters"] is not None
        ranges.append((start, end))
        at = end
    return ranges[:-1]  # without the end of the text


class Aligned:
    """Finds what stands for parts of the source, by links of words.

    The time for one part grows with the number of its links, not with the length of the sentence.
    """

    def __init__(self, links: Links, num_source: int, num_targets: int) -> None:
        """Take the links, and the numbers of source and target words."""
        self._targets: list[list[int]] = [[] for _ in range(num_source)]
        self._num_links = [0] * num_targets  # of each target word
        for src, tgt in links:
            self._targets[src].append(tgt)
            self._num_links[tgt] += 1
        self._links_before = [0, *accumulate(self._num_links)]

    def span(self, first: int, behind: int) -> Range | None:
        """Return the span of target words that stands for the source words from `first` to before `behind`.

        Each link inside with these words counts `_OWN` for it, each link with others 1 against it: it is the
        span of the largest sum, and of these the shortest.

        Returns:
            None if no target word is linked with them, or if too few links of a word are.
        """
        inside = Counter(tgt for targets in self._targets[first:behind] for tgt in targets)
        best, best_sum = None, 0
        start, end, total = 0, 0, 0
        for tgt in sorted(inside):
            total -= self._links_before[tgt] - self._links_before[end]  # of the words between
            if total <= 0:
                start, total = tgt, 0
            end = tgt + 1
            total += (_OWN + 1) * inside[tgt] - self._num_links[tgt]
            if total > best_sum:
                best, best_sum = (start, end), total
        return best

    def gap(self, before: int, *, near: int) -> int:
        """Return the gap between target words that stands for the one before a source word.

        It is the gap that the fewest links cross, and among equal ones the nearest to `near`. Links of words
        beside the gap count most.

        Args:
            before: number of the source word after the gap.
            near: where the gap is expected.
        """
        changes = {0: 0.0}  # of the cost, from a gap on
        for src in range(max(0, before - _FAR), min(len(self._targets), before + _FAR)):
            distance = before - 1 - src if src < before else src - before
            cost = 0.5**distance
            for tgt in self._targets[src]:
                if src < before:  # it should be before the gap
                    changes[0] += cost
                    changes[tgt + 1] = changes.get(tgt + 1, 0.0) - cost
                else:
                    changes[tgt + 1] = changes.get(tgt + 1, 0.0) + cost
        starts = sorted(changes)
        costs = accumulate(changes[start] for start in starts)
        lasts = [*(start - 1 for start in starts[1:]), len(self._num_links)]
        nearest = (max(start, min(near, last)) for start, last in zip(starts, lasts, strict=True))
        best = min((round(cost, 9), abs(gap - near), gap) for cost, gap in zip(costs, nearest, strict=True))
        return best[2]


def is_unspaced(char: str) -> bool:
    """Return whether a character is of a script without spaces between words."""
    return _UNSPACED.match(char) is not None


def is_mark(char: str) -> bool:
    """Return whether a character is part of the one before it."""
    return char in _JOINERS or category(char).startswith("M")
