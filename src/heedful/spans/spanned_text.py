"""A text and its spans: the one form that a text has from the reader of a format to the writer.

What a format writes besides characters is a span: an element around some of them, a tag between two, a break.
Spans are in order and properly nested; those inside an element are its own. Positions are in characters.
"""

import re
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import cycle, pairwise
from typing import ClassVar, Literal

from heedful.spans.keep import kept
from heedful.spans.placeholders import Range, find
from heedful.text.scripts import CJK

BREAK = "\v"  # the character of a break: a line end of the format, or a tab, which sentences do not cross
_MAX_DEPTH = 50  # nesting of elements; deeper ones are tags without content
WITHIN_CJK = re.compile(f"[{CJK}]{{2}}")  # where no space separates words
DIRECTIONS = "\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"  # marks of them
_FROM_RIGHT = re.compile("[\u0590-\u08ff\ufb1d-\ufdff\ufe70-\ufefc]")  # letters of Hebrew, Arabic and others
_MAX_MARK = 12  # characters of a mark
_APART = ("tag", "object")
_CHARACTER_OF = {"break": BREAK, "blank": " "}  # of kinds of points that have one
# What goes with the word before it, and which letters and signs are before and after.
_MARK = re.compile(r"[*\u00a7\u00b6]|[^\w\s&<>]*\d[^\s&<>A-Za-z]*")
_BEFORE_NUMBER = re.compile(r"(?:[^\W\d_]|[^\d\s][.,;:!?)\]}»”’'\"])\Z")
_ADDRESS = re.compile(r"(?:https?://|www\.)\S+")
# A sign begins the placeholder and ends it, so what is between is its own; %(name)s has a letter after it.
_ENCLOSED = re.compile(r"[!-/<-?\[-`{-~\u00a7][^\v]*[!-/:-@\[-`{-~]|%[(<][^\v]*")

Kind = Literal["point", "wbr", "tag", "sign", "object", "break"]


@dataclass(frozen=True, slots=True)
class Element:
    """Markup around characters.

    Attributes:
        start: index of the first character.
        end: index after the last.
        opening: the markup before the content; None if the element began before this part of the text.
        closing: the markup after the content; None if the element goes on after this part of the text.
        inside: the spans inside.
        is_low: whether it is a subscript.
        format: what else the format writes the element by.
    """

    start: int
    end: int
    opening: str | None = ""
    closing: str | None = ""
    inside: tuple["Span", ...] = ()
    is_low: bool = False
    format: object = None
    kind: ClassVar = "element"

    @property
    def is_empty(self) -> bool:
        """Whether it begins and ends here, around no characters."""
        return self.start == self.end and self.opening is not None and self.closing is not None


@dataclass(frozen=True, slots=True)
class Code:
    """Markup between two characters; a "break" has a character of its own.

    Attributes:
        start: index of the character after it, or of its own.
        end: `start`, or the index after its own character.
        markup: what the format writes.
        kind: a "tag" separates words; an "object", such as a picture, separates words and is shown like one;
            a "sign" is shown like a word; a "wbr" allows a line end; a "break" separates sentences; any other
            is a "point".
        format: what else the format writes it by.
    """

    start: int
    end: int
    markup: str
    kind: Kind = "point"
    format: object = None


@dataclass(frozen=True, slots=True)
class Kept:
    """A text that a model does not see.

    Attributes:
        start: index of the character after it, or of its own.
        end: `start`; for a "blank", which is a space of the text, the index after it.
        kind: a "mark" goes with the word before it (a footnote's number, a power); a "blank" is the space
            that tags stand for (reads<br/>a book); a "placeholder" was taken out of the text.
        text: the text.
        beside: the characters that a placeholder was between; "" at an end of the text.
    """

    start: int
    end: int
    kind: Literal["mark", "blank", "placeholder"]
    text: "SpannedText"
    beside: tuple[str, str] = ("", "")


Span = Element | Code | Kept


@dataclass(frozen=True, slots=True)
class SpannedText:
    r"""A text with the spans in it: elements, codes, and what is kept from a model.

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
# What it is, the characters or the markup, and the span; a text has none.
Part = tuple[Literal["text", "open", "close", "point"], str, Span | None]


def edges(spans: Sequence[Span]) -> Iterator[Edge]:
    """Yield where elements begin and end, and the points, in order."""
    for span in spans:
        if not isinstance(span, Element):
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
            yield "text", text.text[at:position], None
        yield what, _markup(what, span), span
        at = max(at, span.end if what == "point" else position)
    if rest := text.text[at:end]:
        yield "text", rest, None


def _markup(what: str, span: Span) -> str:
    if isinstance(span, Code):
        return span.markup
    if isinstance(span, Element):
        return (span.closing if what == "close" else span.opening) or ""
    return ""


def markup(text: SpannedText, escape: Callable[[str], str] = str) -> str:
    """Return a text with the markup of its spans.

    Args:
        text: any.
        escape: writes characters so that the format takes them for text.
    """
    return "".join(escape(piece) if span is None else piece for _, piece, span in parts(text))


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
        self._open: list[tuple[int, Element, list[Span]]] = []
        self._num_too_deep = 0

    def text(self, text: str) -> None:
        """Add characters."""
        self._texts.append(text)
        self.last = (self.last + text)[-2:]
        self.length += len(text)

    def open(self, opening: str = "", *, is_low: bool = False, format: object = None) -> None:
        """Begin an element; one nested more than 50 deep becomes two points."""
        if len(self._open) == _MAX_DEPTH:
            self._num_too_deep += 1
            self.point(opening, format=format)
            return
        self._open.append((self.length, Element(0, 0, opening, is_low=is_low, format=format), self._spans))
        self._spans = []

    def close(self, closing: str | None = "", *, format: object = None) -> None:
        """End the innermost element; if none is open, one that began before the text."""
        if self._num_too_deep and closing is not None:
            self._num_too_deep -= 1
            self.point(closing)
            return
        inside = tuple(self._spans)
        start, element, self._spans = self._open.pop() if self._open else (0, Element(0, 0, None), [])
        if format is not None:
            element = replace(element, format=format)
        self._spans.append(replace(element, start=start, end=self.length, closing=closing, inside=inside))

    def point(self, markup: str, kind: Kind = "point", *, format: object = None) -> None:
        """Add markup without characters of its own; a break has one."""
        self.place(Code(0, 0, markup, kind, format))

    def place(self, span: Span) -> None:
        """Add a code or a kept text here, wherever it was; a break and a blank have a character."""
        start = self.length
        self.text(_CHARACTER_OF.get(span.kind, ""))
        self._spans.append(replace(span, start=start, end=self.length))

    def attach(self, raw: str) -> bool:
        """Add markup to a span that ends here; return whether there is one."""
        last = self._spans[-1] if self._spans else None
        if last is None or last.end != self.length or last.kind == "break":
            return False
        if isinstance(last, Element):
            self._spans[-1] = replace(last, closing=f"{last.closing}{raw}")
        elif isinstance(last, Code):
            self._spans[-1] = replace(last, markup=last.markup + raw)
        return True

    def add(self, added: Iterable[Part], *, unfolds: bool = False) -> None:
        """Add parts of another text; `unfolds` if what spans keep is added in place of them."""
        for what, piece, span in added:
            if span is None:
                self.text(piece)
            elif unfolds and isinstance(span, Kept):
                self.add(parts(span.text))
            elif not isinstance(span, Element):
                self.place(span)
            elif what == "open":
                self.open(piece, is_low=span.is_low, format=span.format)
            else:
                self.close(piece)

    def built(self) -> SpannedText:
        """Return the text; elements that are open continue after it."""
        while self._open:
            self.close(None)
        return SpannedText("".join(self._texts), tuple(self._spans))

    def source(self) -> SpannedText:
        """Return the text to translate: with its marks and blanks, and with its placeholders.

        No tag is in a placeholder, except <wbr> in an address: a format that begins or ends inside one covers
        it if it covers its first letter.
        """
        whole, refined = self.built(), Builder()
        _refine(whole, whole.spans, 0, len(whole.text), refined)
        new = refined.built()
        placeholders = _placeholders_between_tags(new)
        enclosed = _enclosed(new.text, placeholders)
        spans = moved(new.spans, partial(_out_of, enclosed, new.text))
        return SpannedText(new.text, spans, tuple(placeholders))


def _placeholders_between_tags(text: SpannedText) -> list[Range]:
    """Return the placeholders of a text; formats alone may begin and end in one, if signs are around it."""
    addresses = [at for match in _ADDRESS.finditer(text.text) for at in match.span()]
    formats, bounds = set[int](), set[int]()
    for position, what, span in edges(text.spans):
        if span.kind == "break" or (span.kind == "wbr" and bisect_left(addresses, position) % 2):
            continue
        if what == "point" and span.kind not in ("point", "wbr"):
            bounds.add(position)
        else:
            formats.add(position)
    if formats:
        around = _found_between(text.text, bounds)
        enclosed = [at for place in _enclosed(text.text, around) for at in place]
        starts, ends = enclosed[::2], enclosed[1::2]
        bounds |= {at for at in formats if bisect_left(starts, at) == bisect_right(ends, at)}
    return _found_between(text.text, bounds)


def _enclosed(text: str, placeholders: Iterable[Range]) -> list[Range]:
    """Return the placeholders that hold no formats: signs begin and end them, or a user keeps them."""
    own = [start for start, _ in kept(text)]
    return [
        (start, end)
        for start, end in placeholders
        if _ENCLOSED.fullmatch(text, start, end) or any(start <= at < end for at in own)
    ]


def _found_between(text: str, bounds: Iterable[int]) -> list[Range]:
    """Return the placeholders of each piece between some positions."""
    return [
        (low + start, low + end)
        for low, high in pairwise(sorted({0, *bounds, len(text)}))
        for start, end in find(text[low:high])
    ]


def _out_of(placeholders: Sequence[Range], text: str, position: int) -> int:
    """Return where a tag stands that is not in a placeholder: before it, or after it if behind a letter."""
    number = bisect_left(placeholders, (position,)) - 1
    if number < 0 or position >= placeholders[number][1]:
        return position
    start, end = placeholders[number]
    return end if any(map(str.isalnum, text[start:position])) else start


def moved(spans: Sequence[Span], move: Callable[[int], int]) -> tuple[Span, ...]:
    """Return spans at other positions."""
    new: list[Span] = []
    for span in spans:
        if isinstance(span, Element):
            span = replace(span, inside=moved(span.inside, move))
        new.append(replace(span, start=move(span.start), end=move(span.end)))
    return tuple(new)


def _refine(whole: SpannedText, spans: Sequence[Span], start: int, end: int, refined: Builder) -> None:
    """Copy spans and the characters around them: marks without their text, a blank for tags between words."""
    index = 0
    while index < len(spans):
        span, behind = spans[index], index + 1
        refined.text(whole.text[start : span.start])
        after = whole.text[span.start : span.start + 1]
        if isinstance(span, Element):
            _refine_element(whole, span, refined)
        elif not _is_apart(span, refined.last[-1:] + after):
            refined.place(span)
        else:  # either all tags in one place separate words, or none does
            while behind < len(spans) and _are_in_one_place(span, spans[behind]):
                behind += 1
            tags = spans[index:behind]
            follows = spans[behind].start if behind < len(spans) else end
            if follows > span.start and _are_words(refined.last, after):
                tags = [Kept(0, 0, "blank", SpannedText("", moved(tags, lambda _: 0)))]
            for tag in tags:
                refined.place(tag)
        start, index = span.end, behind
    refined.text(whole.text[start:end])


def _refine_element(whole: SpannedText, element: Element, refined: Builder) -> None:
    """Copy an element, or keep it as a mark."""
    if _is_mark(whole.text, element, refined.last):
        own = moved([element], lambda at: at - element.start)
        refined.place(Kept(0, 0, "mark", SpannedText(whole.text[element.start : element.end], own)))
        return
    refined.open(element.opening or "", is_low=element.is_low, format=element.format)
    _refine(whole, element.inside, element.start, element.end, refined)
    refined.close(element.closing)


def _is_apart(span: Code | Kept, around: str) -> bool:
    """Return whether a code between two characters separates words."""
    if not isinstance(span, Code) or span.kind not in _APART:
        return False
    return WITHIN_CJK.match(around) is None or span.markup.startswith("<br")


def _are_in_one_place(first: Span, other: Span) -> bool:
    return other.start == first.start and other.kind in _APART


def _is_mark(text: str, span: Element, before: str) -> bool:
    """Return whether an element is no part of a word but goes with the one before: m<sup>2</sup>.

    A low number is a part of it (CO<sub>2</sub>), and so is one with letters after it.

    Args:
        text: the text with the element.
        span: the element.
        before: the last two characters before it.
    """
    if span.is_low:
        return False
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
    free = [place.span() for place in places.finditer(text.text)]
    chosen: list[tuple[Range, str]] = []  # from the last to the first
    for position, end in reversed(line_ends):
        if not free:
            break
        expected = (position + 1) / (length + 1) * (len(text.text) + 1) - 1
        index = bisect_left(free, (expected,))
        best = min(free[max(0, index - 1) : index + 1], key=lambda place: abs(place[0] - expected))
        chosen.append((best, end))
        del free[bisect_left(free, best) :]
    builder = Builder()
    num_added = 0  # line ends that replace no blank
    for what, piece, span in parts(text):
        if span is not None:
            builder.add([(what, piece, span)])
            continue
        start = builder.length - num_added
        while chosen and start <= chosen[-1][0][0] < start + len(piece):
            (position, after), end = chosen.pop()
            builder.text(piece[builder.length - num_added - start : position - start])
            builder.point(end, "break")
            num_added += position == after
        builder.text(piece[builder.length - num_added - start :])
    return builder.built()
