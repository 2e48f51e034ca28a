"""A text and its spans: the one form that a text has from the reader of a format to the writer.

What a format writes besides characters is a span: an element around some of them, a tag between two, a break.
Spans are in order and properly nested; those inside an element are its own. Positions are in characters.
"""

import re
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import cycle, pairwise
from typing import Literal

from heedful.spans.placeholders import Range, find
from heedful.text.scripts import CJK

BREAK = "\v"  # the character of a break: a line end of the format, or a tab, which sentences do not cross
_MAX_DEPTH = 50  # nesting of elements; deeper ones are tags without content
WITHIN_CJK = re.compile(f"[{CJK}]{{2}}")  # where no space separates words
DIRECTIONS = "\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"  # marks of them
_FROM_RIGHT = re.compile("[\u0590-\u08ff\ufb1d-\ufdff\ufe70-\ufefc]")  # letters of Hebrew, Arabic and others
_MAX_MARK = 12  # characters of a mark
_APART = ("tag", "object")
# What goes with the word before it, and which letters and signs are before and after.
_MARK = re.compile(r"[*\u00a7\u00b6]|[^\w\s&<>]*\d[^\s&<>A-Za-z]*")
_BEFORE_NUMBER = re.compile(r"(?:[^\W\d_]|[^\d\s][.,;:!?)\]}»”’'\"])\Z")
_ADDRESS = re.compile(r"(?:https?://|www\.)\S+")

Kind = Literal[
    "element", "low", "point", "wbr", "tag", "sign", "object", "break", "blank", "mark", "placeholder"
]


@dataclass(frozen=True, slots=True)
class Span:
    """What a text carries from one character to another, or between two.

    Attributes:
        start: index of the first character.
        end: index after the last; `start` for a point between two characters.
        kind: what it is. Around characters: an "element", or "low", a subscript. A point between two: a "tag"
            separates words; an "object", such as a picture, separates words and is shown like one; a "sign"
            is shown like a word; a "wbr" allows a line end; any other is a "point". A character of the text:
            a "break" separates sentences, a "blank" is the space that tags stand for (reads<br/>a book).
            With a text of its own, `kept`: a "mark" goes with the word before it (a footnote's number, a
            power), a "placeholder" was taken out of the text.
        opening: the markup before the content; None if the element began before this part of the text.
        closing: the markup after the content; None if the element goes on after this part of the text.
        inside: the spans inside an element.
        kept: the text of a mark, a blank or a placeholder.
        format: what else the format writes the span by.
        beside: the characters that a placeholder was between; "" at an end of the text.
    """

    start: int
    end: int
    kind: Kind = "element"
    opening: str | None = ""
    closing: str | None = ""
    inside: tuple["Span", ...] = ()
    kept: "SpannedText | None" = None
    format: object = None
    beside: tuple[str, str] = ("", "")


@dataclass(frozen=True, slots=True)
class SpannedText:
    r"""A text with the spans in it: elements, placeholders, breaks.

    Attributes:
        text: the characters, among them a "\v" for each break.
        spans: the spans in order.
        placeholders: where the placeholders of the text begin and end.
    """

    text: str
    spans: tuple[Span, ...] = ()
    placeholders: tuple[Range, ...] = ()


# A position, what is there, and the span that it belongs to.
Edge = tuple[int, Literal["open", "close", "point"], Span]
Part = tuple[Literal["text", "open", "close", "point"], str, Span]
_NO_SPAN = Span(0, 0)


def edges(spans: Sequence[Span]) -> Iterator[Edge]:
    """Yield where elements begin and end, and the points, in order."""
    for span in spans:
        if span.kind not in ("element", "low"):
            yield span.start, "point", span
            continue
        if span.opening is not None:
            yield span.start, "open", span
        yield from edges(span.inside)
        if span.closing is not None:
            yield span.end, "close", span


def parts(
    text: SpannedText, between: Sequence[Edge] | None = None, *, start: int = 0, end: int | None = None
) -> Iterator[Part]:
    """Yield the pieces of a text and its edges, in order, from one character to another.

    Args:
        text: the whole.
        between: the edges there; None: all.
        start: index of the first character.
        end: index after the last; None: to the end.
    """
    at = start
    for position, what, span in edges(text.spans) if between is None else between:
        if position > at:
            yield "text", text.text[at:position], _NO_SPAN
        yield what, "", span
        at = max(at, span.end if what == "point" else position)
    if rest := text.text[at:end]:
        yield "text", rest, _NO_SPAN


def markup(text: SpannedText, escape: Callable[[str], str] = str) -> str:
    """Return a text with the markup of its spans.

    Args:
        text: any.
        escape: writes characters so that the format takes them for text.
    """
    pieces = (
        escape(piece) if what == "text" else (span.closing if what == "close" else span.opening) or ""
        for what, piece, span in parts(text)
    )
    return "".join(pieces)


def spellings(forms: Mapping[str, Sequence[str]], translation: str) -> dict[str, Iterator[str]]:
    """Return, for characters, the forms in which to write them one after the other: an entity, or bare.

    If the source writes a character in several ways, their order is kept if the translation has the character
    as often; otherwise the character is left out.

    Args:
        forms: the ways in which the source writes a character, in its order.
        translation: all characters of the translation.
    """
    return {
        char: cycle(ways)
        for char, ways in forms.items()
        if len({*ways}) == 1 or translation.count(char) == len(ways)
    }


def has_letters(text: str) -> bool:
    """Whether there is something to translate; numbers, signs and pictures stay as they are."""
    return any(map(str.isalpha, text))


def are_opposite(source: str, translation: str) -> bool:
    """Return whether exactly one of the two texts is written from right to left."""
    return (_FROM_RIGHT.search(source) is None) != (_FROM_RIGHT.search(translation) is None)


class Builder:
    """Builds a text from left to right."""

    def __init__(self) -> None:
        self.length = 0
        self.last = ""  # the last two characters
        self._texts: list[str] = []
        self._spans: list[Span] = []  # of the innermost element
        # For each open element: where it begins, its span so far, and the spans before it.
        self._open: list[tuple[int, Span, list[Span]]] = []
        self._num_too_deep = 0

    def text(self, text: str) -> None:
        """Add characters."""
        self._texts.append(text)
        self.last = (self.last + text)[-2:]
        self.length += len(text)

    def open(self, opening: str = "", *, kind: Kind = "element", format: object = None) -> None:
        """Begin an element; one nested more than 50 deep becomes two points."""
        if len(self._open) == _MAX_DEPTH:
            self._num_too_deep += 1
            self.point(opening, format=format)
            return
        self._open.append((self.length, Span(0, 0, kind, opening, format=format), self._spans))
        self._spans = []

    def close(self, closing: str | None = "", *, format: object = None) -> None:
        """End the innermost element; if none is open, one that began before the text."""
        if self._num_too_deep and closing is not None:
            self._num_too_deep -= 1
            self.point(closing)
            return
        inside = tuple(self._spans)
        start, span, self._spans = self._open.pop() if self._open else (0, Span(0, 0, opening=None), [])
        own = replace(span, start=start, end=self.length, closing=closing, inside=inside)
        self._spans.append(own if format is None else replace(own, format=format))

    def point(
        self,
        opening: str,
        kind: Kind = "point",
        *,
        format: object = None,
        kept: SpannedText | None = None,
        beside: tuple[str, str] = ("", ""),
    ) -> None:
        """Add something without characters of its own; a break and a blank have one."""
        start = self.length
        if kind in ("break", "blank"):
            self.text(BREAK if kind == "break" else " ")
        self._spans.append(Span(start, self.length, kind, opening, kept=kept, format=format, beside=beside))

    def attach(self, raw: str) -> bool:
        """Add markup to a span that ends here; return whether there is one."""
        if not self._spans or self._spans[-1].end != self.length or self._spans[-1].kind == "break":
            return False
        last = self._spans[-1]
        if last.kind in ("element", "low"):
            self._spans[-1] = replace(last, closing=(last.closing or "") + raw)
        else:
            self._spans[-1] = replace(last, opening=(last.opening or "") + raw)
        return True

    def add(self, added: Iterable[Part], *, unfolds: bool = False) -> None:
        """Add parts of another text; `unfolds` if what spans keep is added in place of them."""
        for what, piece, span in added:
            if what == "text":
                self.text(piece)
            elif what == "open":
                self.open(span.opening or "", kind=span.kind, format=span.format)
            elif what == "close":
                self.close(span.closing)
            elif unfolds and span.kept is not None:
                self.add(parts(span.kept))
            else:
                self.point(
                    span.opening or "", span.kind, format=span.format, kept=span.kept, beside=span.beside
                )

    def built(self) -> SpannedText:
        """Return the text; elements that are open continue after it."""
        while self._open:
            self.close(None)
        return SpannedText("".join(self._texts), tuple(self._spans))

    def source(self) -> SpannedText:
        """Return the text to translate: with its marks and blanks, and with its placeholders.

        No tag is in a placeholder, except <wbr> in an address.
        """
        new = self.built()
        if any(_is_refined(new.text, what, span) for _, what, span in edges(new.spans)):
            refined = Builder()
            _refine(new, new.spans, 0, len(new.text), refined)
            new = refined.built()
        addresses = [at for match in _ADDRESS.finditer(new.text) for at in match.span()]
        bounds = {
            position
            for position, _, span in edges(new.spans)
            if span.kind != "break" and not (span.kind == "wbr" and bisect_left(addresses, position) % 2)
        }
        placeholders = [
            (low + start, low + end)
            for low, high in pairwise(sorted({0, *bounds, len(new.text)}))
            for start, end in find(new.text[low:high])
        ]
        return SpannedText(new.text, new.spans, tuple(placeholders))


def moved(spans: Sequence[Span], move: Callable[[int], int]) -> tuple[Span, ...]:
    """Return spans at other positions."""
    return tuple(
        replace(each, start=move(each.start), end=move(each.end), inside=moved(each.inside, move))
        for each in spans
    )


def _is_refined(text: str, what: str, span: Span) -> bool:
    """Return whether a span may become a mark or a blank."""
    if what == "point":
        return span.kind in _APART
    before = text[max(0, span.start - 2) : span.start]
    return what == "open" and span.kind == "element" and _is_mark(text, span, before)


def _refine(whole: SpannedText, spans: Sequence[Span], start: int, end: int, refined: Builder) -> None:
    """Copy spans and the characters around them: marks without their text, a blank for tags between words."""
    index = 0
    while index < len(spans):
        span, behind = spans[index], index + 1
        refined.text(whole.text[start : span.start])
        if span.kind == "element" and _is_mark(whole.text, span, refined.last):
            refined.point("", "mark", kept=_element(whole, span))
        elif span.kind in ("element", "low"):
            refined.open(span.opening or "", kind=span.kind, format=span.format)
            _refine(whole, span.inside, span.start, span.end, refined)
            refined.close(span.closing)
        else:
            after = whole.text[span.start : span.start + 1]
            is_inside = WITHIN_CJK.match(refined.last[-1:] + after) and (span.opening or "")[:3] != "<br"
            # Then all such in one place separate words, or none does.
            is_apart = span.kind in _APART and not is_inside
            while is_apart and behind < len(spans):
                if spans[behind].start > span.start or spans[behind].kind not in _APART:
                    break
                behind += 1
            follows = spans[behind].start if behind < len(spans) else end
            if is_apart and follows > span.start and _are_words(refined.last, after):
                kept = moved(spans[index:behind], lambda _: 0)
                refined.point("", "blank", kept=SpannedText("", kept))
            else:
                refined.add(("point", "", each) for each in spans[index:behind])
        start, index = span.end, behind
    refined.text(whole.text[start:end])


def _element(whole: SpannedText, span: Span) -> SpannedText:
    """Return an element as a separate text."""
    return SpannedText(whole.text[span.start : span.end], moved([span], lambda at: at - span.start))


def _is_mark(text: str, span: Span, before: str) -> bool:
    """Return whether an element is no part of a word but goes with the one before: m<sup>2</sup>.

    A low number is a part of it (CO<sub>2</sub>), and so is one with letters after it.

    Args:
        text: the text with the element.
        span: the element.
        before: the last two characters before it.
    """
    own = text[span.start : span.end]
    if not 0 < len(own) <= _MAX_MARK or not (_MARK.fullmatch(own) or find(own) == [(0, len(own))]):
        return False
    if any(map(str.isdigit, own)):
        is_free = not text[span.end : span.end + 1].isalnum()
        return is_free and _BEFORE_NUMBER.search(before) is not None
    return before[-1:].isalnum() and not any(map(str.isalnum, own)) and not set(own) & set("&<>")


def _are_words(before: str, after: str) -> bool:
    """Return whether tags that are all between two characters separate words."""
    last = before[-1:]
    return (last.isalnum() and after.isalnum()) or (last in (".", "!", "?") and after.isalpha())


LineEnds = Sequence[tuple[int, str]]  # positions of line ends of the file, and what is there
BLANK = re.compile(" ")


def with_line_ends(
    text: SpannedText, line_ends: LineEnds, length: int, *, places: re.Pattern[str] = BLANK
) -> SpannedText:
    r"""Return a translation with line ends, each where the source has one, by its share.

    >>> markup(with_line_ends(SpannedText("Eine Katze schläft jetzt."), [(8, "\n")], 22))
    'Eine Katze\nschläft jetzt.'

    Args:
        text: the translation.
        line_ends: the line ends of the source.
        length: the number of characters of the source.
        places: where a line may end: at a blank, which the line end replaces, or between two characters.
    """
    if not line_ends:
        return text
    free = [each.span() for each in places.finditer(text.text)]
    chosen: list[tuple[Range, str]] = []  # from the last to the first
    for position, end in reversed(line_ends):
        if not free:
            break
        expected = (position + 1) / (length + 1) * (len(text.text) + 1) - 1
        index = bisect_left(free, (expected,))
        if index == len(free) or (index and expected - free[index - 1][0] <= free[index][0] - expected):
            index -= 1
        chosen.append((free[index], end))
        del free[index:]
    builder = Builder()
    num_added = 0  # line ends that replace no blank
    for part in parts(text):
        start, piece = builder.length - num_added, part[1]
        while chosen and start <= chosen[-1][0][0] < start + len(piece):
            (position, after), end = chosen.pop()
            builder.text(piece[builder.length - num_added - start : position - start])
            builder.point(end, "break")
            num_added += position == after
        rest = piece[builder.length - num_added - start :]
        builder.add([part] if part[0] != "text" else [("text", rest, _NO_SPAN)])
    return builder.built()
