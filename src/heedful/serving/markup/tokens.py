"""HTML and XML as tokens, whose raw texts make up the document again, character by character."""

import html
import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from html.entities import html5
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
        name: of a tag, of HTML in lower case; "!DOCTYPE" and "?xml" for what comes before a document of XML.
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


# The markup of XML 1.0 (sections 2.1 to 2.8 and 4.1). No part can match a text in two ways, and none is
# looked for again once it has no end: the time grows with the length of the document.
_NAME = r"(?:[^\W\d]|:)[\w:.\-]*"
_XML = re.compile(
    rf"""
    (?P<opening> <!-- | <!\[CDATA\[ | <\? | <!DOCTYPE )
    | (?P<tag> <(?P<close>/?+) (?P<name>{_NAME}) (?P<rest> (?> [^<>"'] | "[^<"]*" | '[^<']*' )*+ ) > )
    | & (?P<entity>{_NAME}) ;
    """,
    re.VERBOSE,
)
_ENDS = {"<!--": "-->", "<![CDATA[": "]]>", "<?": "?>"}
_DECLARATION = "<?xml "
# It ends behind its own declarations; quotes and comments may hold what would end it.
_DOCTYPE = re.compile(
    r"""
    <!DOCTYPE (?> [^\[\]<>"'] | "[^"]*" | '[^']*' )*+
    (?: \[ (?> [^\]<"'] | "[^"]*" | '[^']*' | <!--.*?--> | <\?.*?\?> | <(?!!--|\?) )*+ \] \s*+ )?+ >
    """,
    re.VERBOSE | re.DOTALL,
)
_UNTRANSLATED = re.compile(
    r"""\s(?: translate\s*=\s*["']no["'] | class\s*=\s*["'](?:[^"']*\s)?notranslate[\s"'] )""", re.VERBOSE
)


def tokenize(document: str, *, xml: bool = False) -> list[Token]:
    """Return the tokens of a document; anything is one, however broken.

    Entities are never expanded but for the characters that HTML has names for: one that a document of XML
    declares is a token without content, as are the declarations.
    """
    return list(_xml_tokens(document)) if xml else _Tokenizer(document).tokens()


def _xml_tokens(document: str) -> Iterator[Token]:
    text = at = 0  # where text that is not yet a token begins, and where to look for markup
    no_more: set[str] = set()
    while match := _XML.search(document, at):
        start, end, opening, entity = match.start(), match.end(), match["opening"], match["entity"]
        if opening is not None:
            end = -1 if opening in no_more else _end_of_xml(document, start, opening)
            if end < 0 or opening not in _ENDS:  # a document has one type
                no_more.add(opening)
        if end < 0 or (entity is not None and f"{entity};" in html5):  # text, as a character that has a name
            at = match.end()
            continue
        if start > text:
            yield Token(Kind.TEXT, document[text:start])
        text = at = end
        yield _xml_token(match, document[start:end])
    if text < len(document):
        yield Token(Kind.TEXT, document[text:])


def _xml_token(match: re.Match[str], raw: str) -> Token:
    if not match["tag"]:
        names = {"<!DOCTYPE": "!DOCTYPE", "<?": "?xml" if raw.startswith(_DECLARATION) else ""}
        return Token(Kind.POINT, raw, names.get(match["opening"], ""))
    kind = Kind.POINT if match["rest"].endswith("/") else Kind.CLOSE if match["close"] else Kind.OPEN
    return Token(kind, raw, match["name"], bool(_UNTRANSLATED.search(match["rest"])))


def _end_of_xml(document: str, start: int, opening: str) -> int:
    """Return where a comment, a section, an instruction or a document type ends; -1 where it does not."""
    if opening not in _ENDS:
        match = _DOCTYPE.match(document, start)
        return match.end() if match else -1
    at = document.find(_ENDS[opening], start + len(opening))
    return at + len(_ENDS[opening]) if at >= 0 else -1


class _Tokenizer(HTMLParser):
    """The events of the standard library's parser, each with the place where it begins."""

    def __init__(self, document: str) -> None:
        super().__init__(convert_charrefs=False)
        self._document = document
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
        self._add(Kind.POINT if tag in _VOID else Kind.OPEN, tag, untranslated=untranslated)

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

    def parse_marked_section(self, i: int, report: int = 1) -> int:
        try:
            return super().parse_marked_section(i, bool(report))
        except AssertionError:  # how the parser says that it knows no such section
            return self.parse_bogus_comment(i)

    def unknown_decl(self, data: str) -> None:
        self._add(Kind.POINT)
