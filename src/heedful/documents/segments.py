"""A text as segments: sentences to translate, and what is between them."""

import re
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from heedful.documents.marked_text import Document, MarkedText, Span
from heedful.documents.markup import TagRules, parse_document, plain_document
from heedful.text.scripts import UNSPACED
from heedful.text.sentences import Sentence, joint, split_sentences

Segment = str | MarkedText
_MAX_JOINED = 2000  # characters of sentences that are one for a placeholder's sake


@dataclass(frozen=True)
class Segments:
    """A text taken apart.

    Attributes:
        segments: what stays as it is (str), and sentences, in order.
        document: where they come from.
    """

    segments: Sequence[Segment]
    document: Document

    @property
    def sentences(self) -> list[MarkedText]:
        """The segments that are translated."""
        return [segment for segment in self.segments if isinstance(segment, MarkedText)]

    def joined(self, translations: Sequence[str]) -> str:
        """Return the text with a translation for each sentence."""
        return "".join(self.written(translations))

    def written(self, translations: Sequence[str]) -> list[str]:
        """Return the segments with a translation for each sentence, and between two what `joint` says."""
        left = iter(translations)
        written = [each if isinstance(each, str) else next(left) for each in self.segments]
        for i in range(1, len(written) - 1):
            before, space, after = self.segments[i - 1 : i + 2]
            if isinstance(before, MarkedText) and isinstance(space, str) and isinstance(after, MarkedText):
                written[i] = joint(space, before.text, written[i - 1], written[i + 1])
        return written


def segment(text: str | Document, rules: TagRules | None, *, split: bool = True) -> Segments:
    """Return the segments of a text.

    Args:
        text: anything, or one that is taken apart already.
        rules: of its markup; None: it has none.
        split: whether lines are split into sentences.
    """
    if isinstance(text, Document):
        document = text
    else:
        document = plain_document(text) if rules is None else parse_document(text, rules)
    segments: list[Segment] = []
    for part, lines_matter in zip(document.parts, document.lines_matter, strict=True):
        if isinstance(part, str):
            segments.append(part)
        else:
            segments += _sentences(part, document.escape, split=split, lines=split or lines_matter)
    return Segments(segments, document)


def has_letters(text: str) -> bool:
    """Whether there is something to translate; numbers, signs and pictures stay as they are."""
    return any(map(str.isalpha, text))


def _sentences(
    part: MarkedText, escape: Callable[[str], str], *, split: bool, lines: bool
) -> Iterator[Segment]:
    cutter = _Cutter(part, escape)
    for start, end in _without_splits(
        split_sentences(part.text, within_lines=split, at_line_ends=lines), part
    ):
        if cutter.has_letters(start, end):
            yield cutter.untranslated(start, sentence_end=end)
            yield cutter.sentence(end)
            continue
        yield cutter.untranslated(start)
        if end > start:
            yield cutter.untranslated(end - 1)
    yield cutter.untranslated(len(part.text))


def _without_splits(sentences: Iterable[Sentence], part: MarkedText) -> Iterator[Span]:
    """Yield where sentences begin and end: those as one between which a placeholder was cut.

    Where that would be too long, the first of them goes to the end of the placeholder.
    """
    left = iter(part.placeholders)
    placeholder = next(left, None)
    sentence: Span | None = None
    at = 0
    for each in sentences:
        start = at + len(each.space)
        at = start + len(each.text)
        if sentence is not None:
            while placeholder is not None and placeholder[1] <= sentence[1]:
                placeholder = next(left, None)
            if placeholder is not None and placeholder[0] < sentence[1]:
                if at - sentence[0] <= _MAX_JOINED or placeholder[1] >= at:
                    sentence = (sentence[0], at)
                    continue
                sentence, start = (sentence[0], placeholder[1]), placeholder[1]
                while part.text[start].isspace():
                    start += 1
            yield sentence
        sentence = (start, at)
    if sentence is not None:
        yield sentence


# Soft hyphens, joiners of words, and places for line ends: not where they are between words (Khmer).
_INVISIBLE = re.compile(rf"[\u00ad\u2060\ufeff]|(?<![{UNSPACED}])\u200b(?![{UNSPACED}])")


def _without_invisible(sentence: MarkedText) -> MarkedText:
    """Return a sentence without characters that nobody sees: a model knows the word without them."""
    text = sentence.text
    if not _INVISIBLE.search(text):
        return sentence
    places = [each.start() for each in _INVISIBLE.finditer(text)]
    of_placeholders = iter([*sentence.placeholders, (len(text), len(text))])
    first, behind = next(of_placeholders)
    removed: list[int] = []
    for place in places:
        while behind <= place:
            first, behind = next(of_placeholders)
        if place < first:
            removed.append(place)

    def moved(position: int) -> int:
        return position - bisect_left(removed, position)

    kept = [text[start + 1 : end] for start, end in pairwise((-1, *removed, len(text)))]
    return MarkedText(
        "".join(kept),
        tuple(marker.at(moved(marker.position)) for marker in sentence.markers),
        tuple((moved(start), moved(end)) for start, end in sentence.placeholders),
    )


class _Cutter:
    """Cuts a text with markers into segments from left to right; each marker is in exactly one of them.

    An element at an edge of a sentence is in the sentence if it is around a part of it, and around the
    sentence if it is around all of it, or more.
    """

    def __init__(self, part: MarkedText, escape: Callable[[str], str]) -> None:
        self._part = part
        self._escape = escape
        self._at = 0
        self._marker = 0
        self._placeholder = 0
        self._closing = {each.element: each.position for each in part.markers if each.kind == "close"}

    def has_letters(self, start: int, end: int) -> bool:
        """Return whether there is something to translate besides the placeholders."""
        at = start
        for first, behind in self._placeholders(end):
            if has_letters(self._part.text[at:first]):
                return True
            at = behind
        return has_letters(self._part.text[at:end])

    def untranslated(self, end: int, *, sentence_end: int | None = None) -> str:
        """Return what is before `end`, as it was written, with the markers up to there.

        Where a sentence follows, they end before the first that opens an element around its first words.
        """
        behind = self._behind(end)
        if sentence_end is not None:
            behind = next(
                (i for i in range(self._marker, behind) if self._is_first_words(i, end, sentence_end)), behind
            )
        written: list[str] = []
        first, self._marker = self._marker, behind
        for marker in self._part.markers[first:behind]:
            written += [self._text(marker.position), marker.raw]
            self._at += marker.kind == "blank"
        return "".join([*written, self._text(end)])

    def sentence(self, end: int) -> MarkedText:
        """Return what is before `end`, with the markers inside, and those that close elements of it there."""
        start, first, behind = self._at, self._marker, self._behind(end - 1)
        opened = {each.element for each in self._part.markers[first:behind] if each.kind == "open"}
        for i in range(behind, self._behind(end)):
            marker = self._part.markers[i]
            if marker.kind == "close" and marker.element in opened:
                behind = i + 1
        self._marker = behind
        markers = tuple(
            replace(each, position=each.position - start) for each in self._part.markers[first:behind]
        )
        placeholders = tuple((first - start, behind - start) for first, behind in self._placeholders(end))
        self._at = end
        return _without_invisible(MarkedText(self._part.text[start:end], markers, placeholders))

    def _placeholders(self, end: int) -> Sequence[Span]:
        """Return the placeholders from where the text is cut already to before `end`."""
        spans = self._part.placeholders
        while self._placeholder < len(spans) and spans[self._placeholder][0] < self._at:
            self._placeholder += 1
        behind = self._placeholder
        while behind < len(spans) and spans[behind][0] < end:
            behind += 1
        return spans[self._placeholder : behind]

    def _is_first_words(self, index: int, start: int, end: int) -> bool:
        marker = self._part.markers[index]
        closing = self._closing.get(marker.element, end)
        return marker.kind == "open" and marker.position == start < closing < end

    def _text(self, end: int) -> str:
        start, self._at = self._at, end
        return self._escape(self._part.text[start:end])

    def _behind(self, last: int) -> int:
        """Return the index behind the markers that stand at `last` or before it."""
        behind = self._marker
        while behind < len(self._part.markers) and self._part.markers[behind].position <= last:
            behind += 1
        return behind
