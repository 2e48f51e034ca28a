"""Text, and the tags that stand in it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Marker:
    """Something in a text that is not translated: a tag, a comment, a placeholder.

    Attributes:
        position: index of the character of the text that it stands before.
        raw: as it is written.
        kind: "open" and "close" of an element, or a "point".
        element: number of the element; its two tags have the same.
    """

    position: int
    raw: str
    kind: Literal["open", "close", "point"] = "point"
    element: int = -1


@dataclass(frozen=True)
class MarkedText:
    """Text without markup, and its markers in the order of the original."""

    text: str
    markers: tuple[Marker, ...] = ()


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


def plain_document(text: str) -> Document:
    """Return a text without markup."""
    return Document([MarkedText(text)], lambda each: each, [True])
