"""Text, and the tags that stand in it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

Span = tuple[int, int]  # the first, and the one behind the last


@dataclass(frozen=True)
class Marker:
    """Something in a text that is not translated: a tag, a comment, a placeholder.

    Attributes:
        position: index of the character of the text that it stands before.
        raw: as it is written; a placeholder without the escapes of the format.
        kind: "open" and "close" of an element, a "point" (any other tag) or a "placeholder".
        element: number of the element; its two tags have the same.
        before: character that a placeholder followed in the text; "": none.
        after: character that followed it.
    """

    position: int
    raw: str
    kind: Literal["open", "close", "point", "placeholder"] = "point"
    element: int = -1
    before: str = ""
    after: str = ""

    def at(self, position: int) -> "Marker":
        """Return the marker at another position."""
        return replace(self, position=position)


@dataclass(frozen=True)
class MarkedText:
    """Text without markup.

    Attributes:
        text: with placeholders.
        markers: what is not in the text, in the order of the original.
        placeholders: where they begin and end in the text.
    """

    text: str
    markers: tuple[Marker, ...] = ()
    placeholders: tuple[Span, ...] = ()


@dataclass(frozen=True)
class Document:
    """A text taken apart.

    Attributes:
        parts: what is kept as it is (str) and what is translated, in order.
        escape: writes text so that the format takes it for text.
        lines_matter: for each part whether its line ends separate sentences; else they are blanks.
    """

    parts: "Sequence[str | MarkedText]"
    escape: Callable[[str], str]
    lines_matter: Sequence[bool]
