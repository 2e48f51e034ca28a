"""A text in which units to translate stand: every format is read as one, so that all else stays as it is.

A reader puts a reference in place of each unit, and keeps all else as it is. There are no writers: a file is
written by putting the translations where the references are.
"""

import re
from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate

from heedful.documents.marked_text import Document, MarkedText
from heedful.documents.markup import plain_document
from heedful.documents.reading import the_watch
from heedful.documents.segments import has_letters

_REFERENCE = re.compile("\0(\\d+)\0")
_TAG = re.compile(r"<[^<>]*+>")
_LINE_END = re.compile(r"[ \t]*+[\n\r][ \t\n\r]*+")
_MAX_TAGS = 200  # of a text whose lines are kept
_WHITE_SPACE = re.compile(r"[ \t\r\n]+")


@dataclass(frozen=True, slots=True)
class Unit:
    """A text that is translated as one: a paragraph, a cell, a caption.

    Attributes:
        document: its parts, with the markers of what is not text.
        written: returns its translation, with the markers, as the format writes it.
    """

    document: Document
    written: Callable[[str], str] = str


@dataclass(frozen=True)
class Template:
    """A text with references to its units; what a unit is written as may hold references to others.

    Attributes:
        text: NUL, a number and NUL stand for the unit of that number.
        units: by number.
    """

    text: str
    units: Sequence[Unit]

    def joined(self, translations: Sequence[str]) -> str:
        """Return the text with a translation, with its markers, for each unit."""

        def write(reference: re.Match[str]) -> str:
            number = int(reference[1])
            return _REFERENCE.sub(write, self.units[number].written(translations[number]))

        return _REFERENCE.sub(write, self.text)


class Units:
    """Numbers the units of a text while it is read."""

    def __init__(self) -> None:
        self.units: list[Unit] = []
        self._watch = the_watch()

    def refer(self, unit: Unit) -> str:
        """Return the reference to a new unit."""
        self._watch(sum(len(each.text) for each in unit.document.parts if not isinstance(each, str)), 0)
        self.units.append(unit)
        return f"\0{len(self.units) - 1}\0"

    def plain(self, text: str, raw: str, escape: Callable[[str], str]) -> str:
        """Return the reference to a text without markers, or what is written where it has no letters.

        Args:
            text: to translate.
            raw: what stands for it in the file.
            escape: writes a translation so that the format takes it for text.
        """
        if not has_letters(text):
            return raw
        is_usual = escape(text) == raw
        written = escape if is_usual else lambda new: raw if new == text else escape(new)
        return self.refer(Unit(plain_document(text), written))

    def document(self, document: Document, *, written: Callable[[str], str] = str) -> str:
        """Return a document of markup with references to its texts.

        Args:
            document: taken apart.
            written: returns a part of it, or its translation, as the format writes it.
        """
        written_parts: list[str] = []
        for part, lines_matter, raw in zip(document.parts, document.lines_matter, document.raws, strict=True):
            if isinstance(part, str):
                written_parts.append(written(part))
                continue
            unit = Document((part,), document.escape, (lines_matter,))
            in_lines = written if lines_matter else _in_lines(part, raw, written)
            written_parts.append(self.refer(Unit(unit, in_lines)))
        return "".join(written_parts)

    def template(self, parts: Iterable[str]) -> Template:
        """Return the text of these parts, with all units."""
        return Template("".join(parts), self.units)


def _in_lines(part: MarkedText, raw: str, written: Callable[[str], str]) -> Callable[[str], str]:
    """Return what writes a translation with as many lines as its source has."""
    tags = {marker.raw for marker in part.markers}
    if "\n" not in raw or "\n" in part.text or len(tags) > _MAX_TAGS:
        return written
    fixed = re.compile("|".join(map(re.escape, sorted(tags, key=len, reverse=True))) or "(?!)")
    lines, ends, start = [], [], 0
    for match in re.finditer(rf"{fixed.pattern}|(?P<end>{_LINE_END.pattern})", raw):
        if match["end"] is not None:
            lines.append(raw[start : match.start()])
            ends.append(match["end"])
            start = match.end()
    lines.append(raw[start:])
    return lambda translation: written(with_line_ends(translation, lines, ends, fixed=fixed))


def with_blanks(text: str) -> str:
    """Return a text with one blank for white space, for formats where line ends mean nothing."""
    return _WHITE_SPACE.sub(" ", text)


def with_line_ends(
    text: str,
    lines: Sequence[str],
    ends: Sequence[str],
    *,
    avoid: re.Pattern[str] | None = None,
    fixed: re.Pattern[str] = _TAG,
) -> str:
    r"""Return a text of one line with line ends at blanks, each where the source has one, by its share.

    >>> with_line_ends("Eine Katze schläft jetzt.", ["A cat is", "sleeping now."], ["\n"])
    'Eine Katze\nschläft jetzt.'

    Args:
        text: the translation of the lines.
        lines: of the source.
        ends: what is between each line and the next.
        avoid: what must not begin a line.
        fixed: in which no blank is changed.
    """
    if not ends:
        return text
    lengths = list(accumulate(len(each) + 1 for each in lines))
    blanks = [
        match.start()
        for match in re.finditer(f"{fixed.pattern}| ", text)
        if match.group() == " " and (avoid is None or not avoid.match(text, match.end()))
    ]
    written: list[str] = []  # from the last line to the first
    behind = len(text)
    for length, end in reversed(list(zip(lengths, ends, strict=False))):
        if not blanks:
            break
        expected = length / lengths[-1] * (len(text) + 1) - 1
        index = bisect_left(blanks, expected)
        if index == len(blanks) or (index and expected - blanks[index - 1] <= blanks[index] - expected):
            index -= 1
        written += [text[blanks[index] + 1 : behind], end]
        behind = blanks[index]
        del blanks[index:]
    return "".join([text[:behind], *reversed(written)])
