"""Put the markers of a sentence into its translation: all of them, once each, properly nested.

An element is put around the words that are aligned with its content (`placement.py`); where no alignment is
known, around those in the same part of the sentence.
"""

import re
from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import accumulate

from heedful.serving.markup.marked_text import MarkedText, Marker
from heedful.serving.markup.placement import Links, Span, best_gap, best_span, words

_UNSEEN = re.compile(r"<!--.*-->|<[!?].*>|</.*>|<(?!img|input)[^<>]*>", re.DOTALL)  # nothing that is shown


@dataclass
class _Node:
    """An element, or a point, in the sentence.

    Attributes:
        opening: the tag that opens it in this sentence; None where it is open already.
        closing: the tag that closes it in this sentence; None where it stays open.
        start: in characters of the source.
        end: as `start`.
        element: its number; -1: a point, whose tag is `opening`.
        children: inside, in the order of the source.
        span: gaps of the translation, between which it is put.
    """

    opening: str | None
    start: int
    element: int = -1
    closing: str | None = None
    end: int = -1
    children: "list[_Node]" = field(default_factory=list)
    span: Span = (0, 0)


def text_to_translate(sentence: MarkedText) -> str:
    """Return the text of a sentence, without the gaps that points leave in it."""
    if all(marker.kind != "point" for marker in sentence.markers):
        return sentence.text
    return re.sub(r" (?=[.,;:!?)]( |$))", "", " ".join(sentence.text.split()))


def project(sentence: MarkedText, translation: str, escape: Callable[[str], str], links: Links | None) -> str:
    """Return the translation with the markers of the sentence.

    Args:
        sentence: the source.
        translation: of its text.
        escape: writes text so that the format takes it for text.
        links: between the `words` of both; None where they are not known.
    """
    if not sentence.markers:
        return escape(translation)
    spans = words(translation)
    root = _tree(sentence)
    _insert(root.children, _Gaps(sentence.text, translation, spans, links or ()))
    _fit(root.children, 0, len(spans))
    writer = _Writer(translation, spans, escape)
    for node in root.children:
        _write(node, sentence.text, writer)
    return writer.finished()


def _tree(sentence: MarkedText) -> _Node:
    root = _Node(None, 0)
    stack = [root]
    for marker in sentence.markers:
        if marker.kind == "open":
            node = _Node(marker.raw, marker.position, marker.element)
            stack[-1].children.append(node)
            stack.append(node)
        elif marker.kind == "close" and len(stack) > 1 and stack[-1].element == marker.element:
            node = stack.pop()
            node.closing, node.end = marker.raw, marker.position
        elif marker.kind == "close" and len(stack) == 1:  # of an element that began before the sentence
            around = _Node(None, 0, marker.element, marker.raw, marker.position, root.children)
            root.children = [around]
        else:
            stack[-1].children.append(_point(marker))
    for node in stack[1:]:
        node.end = len(sentence.text)
    return root


def _point(marker: Marker) -> _Node:
    return _Node(marker.raw, marker.position, end=marker.position)


def _insert(nodes: Sequence[_Node], gaps: "_Gaps") -> None:
    """Set the span of each node to where it would be best, whatever the others do."""
    for node in nodes:
        start, end = gaps.span(node.start, node.end)
        if node.element >= 0 and node.opening is None:
            start = 0
        if node.element >= 0 and node.closing is None:
            end = gaps.num_words
        node.span = (start, end)
        _insert(node.children, gaps)


class _Gaps:
    """Where parts of the source are in the translation, in gaps between its words.

    By the links of words; without any, by the share of the sentence before them.
    """

    def __init__(self, source: str, translation: str, spans: Sequence[Span], links: Links) -> None:
        """Take the source, the translation and its words, and the links between the words of both."""
        self.num_words = len(spans)
        src_spans = words(source)
        self._starts = [start for start, _ in src_spans]
        # A link between a word and a sign is a mistake: of a full stop that the source does not have, mostly.
        self._src_signs, self._tgt_signs = _signs(source, src_spans), _signs(translation, spans)
        self._links = [
            (src, tgt)
            for src, tgt in links
            if src < len(src_spans) and tgt < len(spans) and self._src_signs[src] == self._tgt_signs[tgt]
        ]
        self._letters = [0, *accumulate(not character.isspace() for character in source)]
        self._ends = [0, *accumulate(end - start for start, end in spans)]

    def span(self, start: int, end: int) -> Span:
        """Return the gaps around what stands for the characters from `start` to before `end`."""
        first, behind = self._word(start), self._word(end)
        if first == behind:  # a point, or an element without words
            gap = self.gap(start)
            return gap, gap
        span = best_span(self._links, first, behind, self.num_words)
        if span is not None:
            return span
        low, high = self._gap_by_share(start), self._gap_by_share(end)
        has_words = not all(self._src_signs[first:behind])
        candidates = [word for word, is_sign in enumerate(self._tgt_signs) if not (is_sign and has_words)]
        if not candidates or any(low <= word < high for word in candidates):
            return low, high
        nearest = min(candidates, key=lambda word: abs(word - low))
        return nearest, nearest + 1

    def gap(self, position: int) -> int:
        """Return the gap that stands for the one before a character of the source."""
        near = self._gap_by_share(position)
        return best_gap(self._links, self._word(position), self.num_words, near=near) if self._links else near

    def _word(self, position: int) -> int:
        """Return the number of source words that begin before a character."""
        return bisect_left(self._starts, position)

    def _gap_by_share(self, position: int) -> int:
        words_before = self._ends[-1] * self._letters[position] / max(1, self._letters[-1])
        above = bisect_left(self._ends, words_before)
        below = max(0, above - 1)
        nearer = (
            above < len(self._ends) and self._ends[above] - words_before < words_before - self._ends[below]
        )
        return above if nearer else below


def _signs(text: str, spans: Sequence[Span]) -> list[bool]:
    """Return for each word whether it is a sign, without letters and digits."""
    return [not any(map(str.isalnum, text[start:end])) for start, end in spans]


def _fit(nodes: "list[_Node]", low: int, high: int) -> None:
    """Change spans so that those of one level do not overlap and children are inside their parents."""

    def order(node: _Node) -> tuple[bool, int]:
        return node.element >= 0 and node.closing is None, node.span[0]

    nodes.sort(key=order)  # what stays open comes last
    at = low
    for node in nodes:
        start = min(max(node.span[0], at), high)
        end = min(max(node.span[1], start), high)
        node.span, at = (start, end), end
        _fit(node.children, start, end)


class _Writer:
    """Writes the translation from left to right, with markers in the gaps between its words."""

    def __init__(self, text: str, spans: Sequence[Span], escape: Callable[[str], str]) -> None:
        self._text = text
        self._ends = [0, *(end for _, end in spans)]  # of the word before each gap
        self._starts = [*(start for start, _ in spans), len(text)]  # of the word after each gap
        self._escape = escape
        self._written: list[str] = []
        self._at = 0

    def tag(self, raw: str, gap: int, *, after_space: bool) -> None:
        """Write a tag before or after the white space of a gap."""
        self._go_to(self._starts[gap] if after_space else self._ends[gap])
        self._written.append(raw)

    def point(self, raw: str, gap: int, *, space_before: bool, space_after: bool) -> None:
        """Write a point, with white space where the source has some."""
        follows = self._text[self._starts[gap] : self._starts[gap] + 1]
        if space_before and (space_after or follows.isalnum()) and follows.isalnum():
            self._go_to(self._starts[gap])
            self._written.append(raw + " ")
        elif space_before and gap:
            self._go_to(self._ends[gap])
            self._written.append(" " + raw)
        elif follows.isalnum() and (space_after or not gap):
            self._go_to(self._starts[gap])
            self._written.append(raw + " ")
        else:
            self._go_to(self._ends[gap])
            self._written.append(raw)

    def finished(self) -> str:
        """Return all that was written, and the rest of the translation."""
        self._go_to(len(self._text))
        return "".join(self._written)

    def _go_to(self, position: int) -> None:
        if position > self._at:
            self._written.append(self._escape(self._text[self._at : position]))
            self._at = position


def _write(node: _Node, source: str, writer: _Writer) -> None:
    start, end = node.span
    if node.element < 0 and node.opening is not None:
        before, after = source[node.start - 1 : node.start], source[node.start : node.start + 1]
        if _UNSEEN.fullmatch(node.opening):
            writer.tag(node.opening, start, after_space=before.isspace() or not before)
        else:
            writer.point(node.opening, start, space_before=before.isspace(), space_after=after.isspace())
        return
    if node.opening is not None:
        writer.tag(node.opening, start, after_space=True)
    for child in node.children:
        _write(child, source, writer)
    if node.closing is not None:
        writer.tag(node.closing, end, after_space=False)
