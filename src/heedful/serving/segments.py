"""A text as segments: sentences to translate, and what is between them."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from heedful.serving.markup.documents import TagRules, parse_document
from heedful.serving.markup.marked_text import Document, MarkedText, Marker, plain_document
from heedful.serving.sentences import split_sentences

Segment = str | MarkedText


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
        left = iter(translations)
        return "".join(segment if isinstance(segment, str) else next(left) for segment in self.segments)


def take_apart(text: str, rules: TagRules | None, *, split: bool = True) -> Segments:
    """Return the segments of a text.

    Args:
        text: anything.
        rules: of its markup; None: it has none.
        split: whether lines are split into sentences.
    """
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
    at = 0
    for sentence in split_sentences(part.text, within_lines=split, at_line_ends=lines):
        start = at + len(sentence.space)
        at = start + len(sentence.text)
        yield cutter.untranslated(start)
        if has_letters(sentence.text):
            yield cutter.sentence(at)
        elif sentence.text:
            yield cutter.untranslated(at - 1)
    yield cutter.untranslated(len(part.text))


class _Cutter:
    """Cuts a text with markers into segments from left to right; each marker is in exactly one of them."""

    def __init__(self, part: MarkedText, escape: Callable[[str], str]) -> None:
        self._part = part
        self._escape = escape
        self._at = 0
        self._marker = 0

    def untranslated(self, end: int) -> str:
        """Return what is before `end`, as it was written, with the markers up to there."""
        written: list[str] = []
        for marker in self._markers(end):
            written += [self._text(marker.position), marker.raw]
        return "".join([*written, self._text(end)])

    def sentence(self, end: int) -> MarkedText:
        """Return what is before `end`, with the markers inside."""
        start = self._at
        markers = tuple(replace(each, position=each.position - start) for each in self._markers(end - 1))
        self._at = end
        return MarkedText(self._part.text[start:end], markers)

    def _text(self, end: int) -> str:
        start, self._at = self._at, end
        return self._escape(self._part.text[start:end])

    def _markers(self, last: int) -> Iterator[Marker]:
        """Yield the next markers, as far as they stand at `last` or before it."""
        while self._marker < len(self._part.markers):
            marker = self._part.markers[self._marker]
            if marker.position > last:
                return
            self._marker += 1
            yield marker
