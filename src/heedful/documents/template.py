"""A document with the units to translate taken out: every format is read as one, so that the rest stays.

A reader puts a reference in place of each unit, and keeps all else as it is. There are no writers: a file is
written by putting the translations where the references are.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from io import StringIO

from heedful.documents.tokens import Token, plain_text, spanned
from heedful.spans.pipeline import Work, prepare
from heedful.spans.placeholders import find
from heedful.spans.reading import WATCH
from heedful.spans.spanned_text import (
    BLANK,
    DIRECTIONS,
    WITHIN_CJK,
    Builder,
    SpannedText,
    are_opposite,
    has_letters,
    markup,
    with_line_ends,
)

_REFERENCE = re.compile("\0(\\d+)\0")
NO_BLANKS = re.compile(r"(?P<line_end>(?!))")
WHITE_SPACE = re.compile(r"[ \t\r\n]+")  # one blank, in formats where line ends mean nothing


@dataclass(frozen=True, slots=True)
class Unit:
    """A text that is translated as one: a paragraph, a cell, a caption.

    Attributes:
        text: the text with its spans; a `str` if it has no markup, which saves memory for a file of lines.
        write: a function that returns a translation as the format writes it; for a `str` it takes a `str`.
        key: the name of the text, which the file in another language has, too; "": it has none.
    """

    text: SpannedText | str
    write: Callable[[SpannedText], str] | Callable[[str], str]
    key: str = ""

    @property
    def characters(self) -> str:
        """The text without its spans."""
        return self.text if isinstance(self.text, str) else self.text.text

    @property
    def source(self) -> SpannedText:
        """The text to translate."""
        return plain_text(self.text) if isinstance(self.text, str) else self.text

    def written(self, translation: SpannedText) -> str:
        """Return a translation as the format writes it."""
        return self.write(markup(translation) if isinstance(self.text, str) else translation)  # type: ignore[arg-type]


Replacement = tuple[int, int, str]  # where a part of a text begins and ends, and what stands there


class Template:
    """A text with references to its units; the written form of a unit may have references to others.

    Attributes:
        text: NUL, a number and NUL stand for the unit of that number.
        units: the units by number.
        finish: a function that makes the document of a text with its units.
    """

    def __init__(self) -> None:
        """Begin the reading of a text."""
        self.text = ""
        self.units: list[Unit] = []
        self.finish: Callable[[str], str] = str
        self._watch = WATCH.get()

    def refer(self, unit: Unit) -> str:
        """Return the reference to a new unit."""
        self._watch(len(unit.characters), 0)
        self.units.append(unit)
        return f"\0{len(self.units) - 1}\0"

    def plain(self, text: str, raw: str, escape: Callable[[str], str], *, key: str = "") -> str:
        """Return the reference to a text without markup, or what is written if it has no letters.

        Args:
            text: to translate.
            raw: what stands for it in the file.
            escape: writes a translation so that the format takes it for text.
            key: the name of the text.
        """
        if not has_letters(text):
            return raw
        is_usual = escape(text) == raw
        write = escape if is_usual else lambda new: raw if new == text else escape(new)
        return self.refer(Unit(text, write, key))

    def filled(self, parts: Iterable[str]) -> "Template":
        """Return the template with the text of these parts, which may be an iterator: no list is needed."""
        text = StringIO(newline="")
        text.writelines(parts)
        self.text = text.getvalue()
        return self

    def replaced(self, text: str, replacements: Iterable[Replacement]) -> "Template":
        """Return the template with a text, in which other parts stand in place of some, in their order."""
        parts: list[str] = []
        at = 0
        for start, end, new in replacements:
            parts += [text[at:start], new]
            at = end
        return self.filled([*parts, text[at:]])

    def joined(self, written: Sequence[str]) -> str:
        """Return the text with what is written for each unit."""

        def write(reference: re.Match[str]) -> str:
            return _REFERENCE.sub(write, written[int(reference[1])])

        return self.finish(_REFERENCE.sub(write, self.text))

    def work(self, *, within_lines: bool = True) -> Work:
        """Return the work of translating the units; see `prepare`."""
        return prepare([unit.source for unit in self.units], within_lines=within_lines)

    def translations(self, work: Work) -> list[str]:
        """Return the different translations of the text, best first, when the work on its units is done.

        The n-th is made of the n-th translations of the sentences.
        """
        texts: dict[str, None] = {}
        for rank in range(work.num_alternatives):
            units = zip(self.units, work.texts(rank), strict=True)
            texts[self.joined([unit.written(translation) for unit, translation in units])] = None
        return list(texts)


def lined_unit(
    run: Sequence[Token],
    blanks: re.Pattern[str],
    *,
    text_of: Callable[[Token], str] = lambda token: token.raw,
    written: Callable[[SpannedText], str] = markup,
    places: re.Pattern[str] = BLANK,
) -> Unit:
    """Return the unit of a text over several lines: its translation has as many, if it has places for them.

    Between two characters of scripts without spaces, a line end is no blank.

    Args:
        run: tokens of text and inline tags.
        blanks: what is a blank, if it is not in a placeholder; its group `line_end` is the end of a line.
            `NO_BLANKS`: line ends stay in the text.
        text_of: returns the characters of a token of text.
        written: returns a translation as the format writes it.
        places: see `with_line_ends`.
    """
    line_ends: list[tuple[int, str]] = []
    length = 0

    def add_text(builder: Builder, token: Token) -> None:
        nonlocal length
        text, at = text_of(token), 0
        found = find(text) if blanks.search(text) else []
        for start, end in [*found, (len(text), len(text))]:
            for blank in blanks.finditer(text, at, start):
                builder.text(text[at : blank.start()])
                around = builder.last[-1:] + text[blank.end() :][:1]
                if blank["line_end"]:
                    line_ends.append((builder.length, blank.group()))
                if not blank["line_end"] or not WITHIN_CJK.match(around):
                    builder.text(" ")
                at = blank.end()
            builder.text(text[at:end])
            at = end
        length = builder.length

    source = spanned(run, add_text)
    if not line_ends:
        return Unit(source, written)

    def written_in_lines(new: SpannedText) -> str:
        ends = line_ends
        if are_opposite(source.text, new.text):
            ends = [(at, re.sub(f"[{DIRECTIONS}]", "", end)) for at, end in line_ends]
        return written(with_line_ends(new, ends, length, places=places))

    return Unit(source, written_in_lines)
