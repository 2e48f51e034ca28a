"""Markdown (CommonMark and tables): the parser says what is text, and this where it stands in the file."""

import html
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

from heedful.documents.markup import html_rules, parse_document
from heedful.documents.segments import has_letters
from heedful.documents.template import Template, Units, with_line_ends
from heedful.documents.xml_text import CodedText, coded_parts
from heedful.errors import MissingExtraError, install_hint

if TYPE_CHECKING:
    from markdown_it.token import Token

_LINE = re.compile(r"[^\r\n]*(?:\r\n|\r|\n|\Z)")
_FRONT_MATTER = re.compile(r"\A(---|\+\+\+)[ \t]*\r?\n(?s:.*?)\n\1[ \t]*(?=\r?\n|\Z)")
_SPECIAL = "\\`*_[]<>|~"
_ENTITY = re.compile(r"&(?=#?\w+;)")
# What begins a block at the start of a line.
_BLOCK_START = re.compile(r"(?:[-+*>#=~|]|\d+[.)])(?=\s|$)|[=>#~|]")
_HTML_TAG = re.compile(r"<(?P<close>/?)(?P<name>[A-Za-z][\w-]*)[^<>]*?(?P<single>/?)>")
_DESTINATION = re.compile(
    r"""
    \((?>
        \\. | <[^<>]*> | "(?:[^"\\]|\\.)*" | '(?:[^'\\]|\\.)*' | [^()\\<"'] | \((?:[^()\\]|\\.)*\) | ["'<]
    )*+\)
    | \[(?:[^\[\]\\]|\\.)*\]""",
    re.VERBOSE | re.DOTALL,
)


class _MisplacedError(Exception):
    """The text of a token is not where it was expected."""


@dataclass(frozen=True)
class _Line:
    """A line of a text in the file: its number, and where its content begins and ends."""

    number: int
    start: int
    end: int


def read_markdown(text: str) -> Template:
    """Read Markdown: headings, paragraphs and cells are units, and so are alternative texts and HTML.

    Raises:
        MissingExtraError: the parser is not installed.
    """
    try:
        from markdown_it import MarkdownIt
    except ImportError:
        raise MissingExtraError(f"Markdown needs markdown-it-py: {install_hint('documents')}") from None
    lines = _LINE.findall(text)
    front = _FRONT_MATTER.match(text)
    num_front = front.group().count("\n") + 1 if front else 0
    shown = ["\n"] * num_front + [each.rstrip("\r\n") + "\n" for each in lines[num_front:]]
    parser = MarkdownIt("commonmark").enable(["table", "strikethrough"]).disable("text_join")
    units = Units()
    written: dict[int, list[tuple[int, int, str]]] = {}  # by line: where a text stands, and what replaces it
    cursor: dict[int, int] = {}
    for token in parser.parse("".join(shown)):
        if token.map is None:
            continue
        if token.type == "html_block":
            _add_html(lines, token, units, written)
        elif token.type == "inline" and (own := _lines_of(token, lines, cursor)):
            reference = _Inline(token, own, lines, units).reference()
            for each in own:
                written.setdefault(each.number, []).append((each.start, each.end, ""))
            if reference is not None:
                _replace(written, own, lines, reference)
            else:
                for each in own:
                    written[each.number].pop()
    return units.template(_with_replacements(lines, written))


def _add_html(
    lines: Sequence[str], token: "Token", units: Units, written: dict[int, list[tuple[int, int, str]]]
) -> None:
    first, behind = token.map or (0, 0)
    raw = "".join(lines[first:behind])
    for number in range(first, behind):
        reference = units.document(parse_document(raw, html_rules())) if number == first else ""
        written[number] = [(0, len(lines[number]), reference)]


def _replace(
    written: dict[int, list[tuple[int, int, str]]], own: Sequence[_Line], lines: Sequence[str], reference: str
) -> None:
    """Put a reference in place of the lines of a text, with all that is between them."""
    first, last = own[0], own[-1]
    if len(own) == 1:
        written[first.number][-1] = (first.start, first.end, reference)
        return
    written[first.number][-1] = (first.start, len(lines[first.number]), reference)
    for each in own[1:]:
        written[each.number][-1] = (0, each.end if each is last else len(lines[each.number]), "")


def _with_replacements(lines: Sequence[str], written: dict[int, list[tuple[int, int, str]]]) -> Iterator[str]:
    for number, line in enumerate(lines):
        at = 0
        for start, end, text in written.get(number, ()):
            yield line[at:start] + text
            at = end
        yield line[at:]


def _lines_of(token: "Token", lines: Sequence[str], cursor: dict[int, int]) -> list[_Line]:
    """Return where the lines of a text stand; nothing where the parser has changed them."""
    first, _ = token.map or (0, 0)
    own: list[_Line] = []
    for number, content in enumerate(token.content.split("\n"), start=first):
        if number >= len(lines):
            return []
        start = lines[number].find(content, cursor.get(number, 0))
        if start < 0:
            return []
        own.append(_Line(number, start, start + len(content)))
        cursor[number] = start + len(content)
    return own


class _Inline:
    """Turns the inline tokens of a text into text with codes, and back."""

    def __init__(self, token: "Token", own: Sequence[_Line], lines: Sequence[str], units: Units) -> None:
        self._content, self._units = token.content, units
        self._coded = CodedText()
        self._raws: dict[int, tuple[str, str]] = {}
        self._open: list[tuple[int, int]] = []  # codes, and where their text begins
        self._breaks: list[str] = []
        self._at = 0
        self._plain: set[str] = set()  # special characters that are not escaped
        self._tokens = token.children or []
        # What is between the content of each line and that of the next: a line end, and the marks of blocks.
        self._between = [
            lines[one.number][one.end :] + lines[other.number][: other.start] for one, other in pairwise(own)
        ]

    def reference(self) -> str | None:
        """Return the reference to the unit; None where there is no text, or it is not where it should be."""
        if not has_letters(self._content):
            return None
        try:
            for index, token in enumerate(self._tokens):
                self._add(token, index)
        except _MisplacedError:
            return None
        if self._open or self._content[self._at :].strip():
            return None
        return self._units.refer(self._coded.unit(self._written))

    def _take(self, text: str) -> str:
        """Return text that stands next, and go on behind it.

        Raises:
            _MisplacedError: it does not.
        """
        while (
            not self._content.startswith(text, self._at) and self._content[self._at : self._at + 1].isspace()
        ):
            self._at += 1
        if not self._content.startswith(text, self._at):
            raise _MisplacedError
        self._at += len(text)
        return text

    def _match(self, pattern: re.Pattern[str]) -> str:
        match = pattern.match(self._content, self._at)
        if match is None:
            raise _MisplacedError
        self._at = match.end()
        return match.group()

    def _add(self, token: "Token", index: int) -> None:
        kind = token.type
        if kind == "text":
            self._plain |= set(self._take(token.content)) & set(_SPECIAL)
            if not (index and self._tokens[index - 1].type == "link_open" and self._is_address(index - 1)):
                self._coded.text(token.content)
        elif kind == "text_special":
            self._take(token.markup)
            self._coded.text(token.content)
        elif kind == "softbreak":
            self._coded.text(" ")
            self._at = self._content.index("\n", self._at) + 1
        elif kind == "hardbreak":
            end = self._content.index("\n", self._at) + 1
            between = self._between[self._content.count("\n", 0, self._at)]
            self._breaks.append(self._content[self._at : end - 1] + between)
            self._coded.line_break()
            self._at = end
        elif kind == "code_inline":
            self._take(token.markup)
            code = re.compile(rf"(?s:.*?)(?<!`){token.markup}(?!`)")
            self._raws[self._coded.point(is_seen=True)] = token.markup + self._match(code), ""
        elif kind == "image":
            self._add_image(token)
        elif kind == "html_inline":
            self._add_tag(token)
        elif kind in ("link_open", "link_close"):
            self._add_link(token, index)
        elif kind.endswith("_open"):
            self._begin(self._take(token.markup))
        elif kind.endswith("_close"):
            self._end(self._take(token.markup))
        else:
            raise _MisplacedError

    def _begin(self, raw: str) -> None:
        code = self._coded.open()
        self._raws[code] = raw, ""
        self._open.append((code, self._at))

    def _end(self, raw: str) -> int:
        if not self._open:
            raise _MisplacedError
        code, start = self._open.pop()
        self._raws[code] = self._raws[code][0], raw
        self._coded.close(code)
        return start

    def _is_address(self, index: int) -> bool:
        return self._tokens[index].markup in ("autolink", "linkify")

    def _add_link(self, token: "Token", index: int) -> None:
        if self._is_address(index):
            if token.type == "link_open":
                self._take("<")
            else:
                start = self._content.rindex("<", 0, self._at)
                self._take(">")
                self._raws[self._coded.point(is_seen=True)] = self._content[start : self._at], ""
        elif token.type == "link_open":
            self._begin(self._take("["))
        else:
            label = self._content[self._open[-1][1] : self._at] if self._open else ""
            self._take("]")
            target = _DESTINATION.match(self._content, self._at)
            raw = target.group() if target else ""
            self._at += len(raw)
            # A reference by its own text, which changes.
            self._end("]" + (f"[{label}]" if raw in ("", "[]") else raw))

    def _add_image(self, token: "Token") -> None:
        self._take("![")
        end = self._at + len(token.content)
        label = self._content[self._at : end]
        self._at = end
        self._take("]")
        target = _DESTINATION.match(self._content, self._at)
        raw = target.group() if target else ""
        self._at += len(raw)
        plain = re.sub(r"[\[\]]", "", label)
        alternative = self._units.plain(plain, label, lambda text: re.sub(r"([\[\]\\])", r"\\\1", text))
        raw = f"[{label}]" if raw in ("", "[]") else raw
        self._raws[self._coded.point(is_seen=True)] = f"![{alternative}]{raw}", ""

    def _add_tag(self, token: "Token") -> None:
        raw = self._take(token.content)
        tag = _HTML_TAG.fullmatch(raw)
        if tag is None or tag["single"] or tag["name"].lower() in ("br", "img", "wbr", "input"):
            self._raws[self._coded.point(is_seen=False)] = raw, ""
        elif not tag["close"]:
            is_closed = any(
                each.type == "html_inline" and each.content.lower().startswith(f"</{tag['name'].lower()}")
                for each in self._tokens[self._tokens.index(token) :]
            )
            if is_closed:
                self._begin(raw)
            else:
                self._raws[self._coded.point(is_seen=False)] = raw, ""
        else:
            self._end(raw)

    def _written(self, translation: str) -> str:
        escaped = re.compile(f"[{re.escape(''.join(set(_SPECIAL) - self._plain))}]")
        texts: list[str] = []
        for kind, text, number in coded_parts(translation):
            opening, closing = self._raws.get(number, ("", ""))
            if kind == "text":
                plain = _ENTITY.sub("&amp;", html.unescape(text))
                texts.append(escaped.sub(lambda match: f"\\{match.group()}", plain))
            elif kind == "break":
                texts.append(self._breaks[number] if number < len(self._breaks) else "")
            else:
                texts.append(closing if kind == "close" else opening)
        line = "".join(texts)
        if _BLOCK_START.match(line) and not _BLOCK_START.match(self._content):
            line = f"\\{line}" if not line[0].isdigit() else re.sub(r"[.)]", r"\\\g<0>", line, count=1)
        if self._breaks:
            return line
        return with_line_ends(line, self._content.split("\n"), self._between, avoid=_BLOCK_START)
