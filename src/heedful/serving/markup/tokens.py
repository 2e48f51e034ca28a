"""HTML and XML as tokens, whose raw texts make up the document again, character by character."""

import html
from dataclasses import dataclass
from enum import Enum
from html.parser import HTMLParser
from itertools import accumulate, pairwise


class Kind(Enum):
    """Kinds of tokens."""

    TEXT = "text"
    OPEN = "open"
    CLOSE = "close"
    POINT = "point"  # a tag without content, a comment, a declaration


@dataclass(frozen=True)
class Token:
    """A part of a document.

    Attributes:
        kind: of the part.
        raw: as it is written.
        name: of a tag, in lower case.
        untranslated: whether the tag says that its element is not to be translated.
    """

    kind: Kind
    raw: str
    name: str = ""
    untranslated: bool = False

    @property
    def text(self) -> str:
        """The characters that text stands for."""
        return html.unescape(self.raw)


_VOID = frozenset({
    "area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "param", "source",
    "track", "wbr",
})  # fmt: skip


def tokenize(document: str, *, xml: bool = False) -> list[Token]:
    """Return the tokens of a document; anything is one, however broken."""
    return _Tokenizer(document, xml=xml).tokens()


class _Tokenizer(HTMLParser):
    """The events of the standard library's parser, each with the place where it begins."""

    def __init__(self, document: str, *, xml: bool) -> None:
        super().__init__(convert_charrefs=False)
        self._xml = xml
        self._document = document
        self._void = frozenset() if xml else _VOID
        self._line_starts = [0, *accumulate(len(line) + 1 for line in document.split("\n"))]
        self._tokens: list[tuple[int, Kind, str, bool]] = []

    def tokens(self) -> list[Token]:
        self.feed(self._document)
        self.close()
        starts = [start for start, *_ in self._tokens]
        raws = (self._document[a:b] for a, b in pairwise([*starts, len(self._document)]))
        return [
            Token(kind, raw, name, untranslated)
            for raw, (_, kind, name, untranslated) in zip(raws, self._tokens, strict=True)
            if raw
        ]

    def _add(self, kind: Kind, name: str = "", *, untranslated: bool = False) -> None:
        line, column = self.getpos()
        start = self._line_starts[line - 1] + column
        # What is before the first event, or was not reported, belongs to the token before.
        self._tokens.append((start if self._tokens else 0, kind, name, untranslated))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        untranslated = values.get("translate") == "no" or "notranslate" in (values.get("class") or "").split()
        self._add(Kind.POINT if tag in self._void else Kind.OPEN, tag, untranslated=untranslated)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._add(Kind.POINT, tag)

    def handle_endtag(self, tag: str) -> None:
        self._add(Kind.CLOSE, tag)

    def handle_data(self, data: str) -> None:
        self._add(Kind.TEXT)

    def handle_charref(self, name: str) -> None:
        self._add(Kind.TEXT)

    def handle_entityref(self, name: str) -> None:
        self._add(Kind.TEXT)

    def handle_comment(self, data: str) -> None:
        self._add(Kind.POINT)

    def handle_decl(self, decl: str) -> None:
        self._add(Kind.POINT)

    def handle_pi(self, data: str) -> None:
        self._add(Kind.POINT)

    def set_cdata_mode(self, elem: str, **more: bool) -> None:
        if not self._xml:  # where a script is an element like any other
            super().set_cdata_mode(elem, **more)

    def parse_marked_section(self, i: int, report: int = 1) -> int:
        try:
            return super().parse_marked_section(i, bool(report))
        except AssertionError:  # how the parser says that it knows no such section
            return self.parse_bogus_comment(i)

    def unknown_decl(self, data: str) -> None:
        self._add(Kind.POINT)
