"""Markdown (CommonMark and tables): a parser finds the text; this module finds its place in the file."""

import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import accumulate, pairwise
from operator import add
from typing import TYPE_CHECKING

from heedful.documents.formats import Reading
from heedful.documents.markdown_anchors import Anchors
from heedful.documents.markdown_rules import (
    HTML_TAG,
    LITERAL,
    Environment,
    inline_tokens,
    markdown_parser,
)
from heedful.documents.markup import html_rules, read_markup
from heedful.documents.template import Replacement, Template, Unit
from heedful.documents.tokens import Kind
from heedful.documents.tokens import Token as HtmlToken
from heedful.documents.web_pages import PageTags
from heedful.spans.placeholders import Range
from heedful.spans.spanned_text import (
    WITHIN_CJK,
    Builder,
    Element,
    SpannedText,
    has_letters,
    parts,
    spellings,
    with_line_ends,
)

if TYPE_CHECKING:
    from markdown_it.token import Token

_LINE = re.compile(r"[^\r\n]*(?:\r\n|\r|\n|\Z)")
# Of YAML, TOML or JSON; or the title, the authors and the date for Pandoc.
_FRONT_MATTER = re.compile(
    r"""\A (?: ---[ \t]*\w* [ \t]* \n (?s: .*? \n )? (?: --- | \.\.\. )
    | \+\+\+ [ \t]* \n (?s: .*? \n )? \+\+\+
    | \{ (?= \s*" ) (?s: .*? ) \n \}
    | % [ ] (?P<title> .++ ) (?: \n (?: % | [ ] ) .*+ ){0,9}+ ) [ \t]* $""",
    re.VERBOSE | re.MULTILINE,
)
_SPECIAL = "\\`*_[]<>|~"
_ENTITY = re.compile(r"&(?=#?\w+;)")
_BEGIN_OF_TAG = re.compile(r"<[A-Za-z/!?][A-Za-z\d-]{0,20}")
_LINE_END = re.compile(r"(?:\r\n|\r|\n)(?P<blank>(?=[\r\n]))?")
# What begins a block at the start of a line.
_BLOCK_START = re.compile(r"(?:[-+*:]|\d+[.)])(?=\s|$)|[=>#|]|~~~|:::|!!!|\?\?\?")
_MAY_END = re.compile(f" (?!{_BLOCK_START.pattern})")  # where a line may
_TAGS = {"*": "em", "_": "em", "**": "strong", "__": "strong", "~~": "del"}
_HTML_TAG = re.compile(r"<(?P<close>/?)(?P<name>[A-Za-z][\w.-]*)(?s:.*?)(?P<single>/?)>")
_DESTINATION = re.compile(
    r"""
    \((?>
        \\. | <[^<>]*> | "(?:[^"\\]|\\.)*" | '(?:[^'\\]|\\.)*' | [^()\\<"'] | \((?:[^()\\]|\\.)*\) | ["'<]
    )*+\)
    | \[(?:[^\[\]\\]|\\.)*\]
    | """,
    re.VERBOSE | re.DOTALL,
)


_QUOTED = r"""\s (?P<quote>["']) (?P<text> (?: (?! (?P=quote) ) [^\\\n] | \\. )++ ) (?P=quote) \s*+"""
_TITLE = re.compile(rf"{_QUOTED} \) \Z", re.VERBOSE)
_TITLE_OF_DEFINITION = re.compile(rf"{_QUOTED} \Z", re.VERBOSE)
_OF_MKDOCS = ("!!!", "???", "===", "///", "--8<--")  # the marks of lines that only MkDocs reads
_ESCAPED = re.compile(r"\\([!-/:-@\[-`{-~])")


class _MisplacedError(Exception):
    """The text of a token is not where it was expected."""


def read_markdown(text: str, reading: Reading) -> Template:
    """Read Markdown: headings, paragraphs and cells are units, and so are alternative texts and HTML.

    Raises:
        MissingExtraError: the parser is not installed.
    """
    page = _Page(_LINE.findall(text))
    replaced = list(page.titles())
    kind_before = ""
    for token in page.blocks:
        if token.type == LITERAL:
            replaced += map(page.title, token.meta["titles"])
        elif token.type == HTML_TAG:
            start, end = map(page.place, token.meta["at"])
            replaced.append((start, end, page.tag(HtmlToken(Kind.OPEN, text[start:end], "tag"))))
        elif token.type == "html_block":
            replaced += _html(token, page)
        elif token.type == "inline" and (own := page.lines_of(token)):
            start, end = own[0][0], own[-1][1]
            written = _Inline(own, page).reference() or text[start:end]
            is_heading = kind_before == "heading_open"
            replaced.append((start, end, page.anchors.heading(written) if is_heading else written))
        kind_before = token.type
    page.units.finish = page.anchors.finish
    return page.units.replaced(text, sorted(replaced))


class _Page:
    """A page, its blocks, and where their texts stand in the file.

    Attributes:
        text: the text of the file.
        lines: its lines.
        offsets: where each line begins, and where the last ends.
        units: its texts.
        parser: the parser.
        definitions: what the parser keeps of the page: the definitions of links.
        blocks: the tokens of blocks.
        anchors: the names of its headings.
    """

    def __init__(self, lines: Sequence[str]) -> None:
        self.text, self.lines = "".join(lines), lines
        self.units, self.parser = Template(), markdown_parser()
        self.offsets = [0, *accumulate(map(len, lines))]
        shown = [line.rstrip("\r\n") + "\n" for line in lines]
        self._starts = [0, *accumulate(map(len, shown))]
        shown_text = "".join(shown)
        self._front = _FRONT_MATTER.match(shown_text)
        if self._front:  # blank lines of the same length
            shown_text = re.sub(".", " ", self._front.group()) + shown_text[self._front.end() :]
        self._shown = shown_text
        self._lines = shown_text.split("\n")
        self.definitions: Environment = {}
        self.blocks = self.parser.parse(shown_text, self.definitions)
        self._cursor: dict[int, int] = {}  # where a line goes on behind the texts that were found
        headings = [text.content for token, text in pairwise(self.blocks) if token.type == "heading_open"]
        is_of_mkdocs = any(
            token.type == LITERAL and token.content.startswith(_OF_MKDOCS) for token in self.blocks
        )
        self.anchors = Anchors(self.text, headings, self.words, is_of_mkdocs=is_of_mkdocs)
        self._tags = PageTags(self.units, None)

    def words(self, text: str) -> str:
        """Return what a reader sees of a text without pictures."""
        tokens = inline_tokens(self.parser, text, self.definitions)
        return "".join(token.content or " " for token in tokens if token.type in _WORDS)

    def tag(self, token: HtmlToken) -> str:
        """Return a tag as a template has it."""
        return self.anchors.follow(self._tags.written(token))

    def place(self, at: int) -> int:
        """Return the place in the file of a place in the text that the parser has."""
        line = bisect_right(self._starts, at) - 1
        return self.offsets[line] + at - self._starts[line]

    def titles(self) -> Iterator[Replacement]:
        """Yield the title of the page, and the definitions of links, as a template has them."""
        if self._front and self._front["title"]:
            yield self.title(self._front.span("title"))
        for definition in self.definitions.get("references", {}).values():
            first, behind = definition["map"]
            start, end = self.offsets[first], self.offsets[behind]
            raw = self.text[start:end]
            title = _TITLE_OF_DEFINITION.search(raw) if definition["title"] else None
            yield start, end, self.link(raw, title)

    def link(self, raw: str, title: re.Match[str] | None) -> str:
        """Return what follows the text of a link as a template has it; `title` is where its title is."""
        if title is None:
            return self.anchors.follow(raw)
        quote, written = title["quote"], title["text"]
        own = self.units.plain(
            _ESCAPED.sub(r"\1", written),
            written,
            lambda new: new.replace("\\", "\\\\").replace(quote, f"\\{quote}"),
        )
        start, end = title.span("text")
        return self.anchors.follow(raw[:start]) + own + raw[end:]

    def title(self, span: Range) -> Replacement:
        """Return a title, by its place for the parser, with the reference to its unit."""
        start, end = map(self.place, span)
        return start, end, self.units.plain(self.text[start:end], self.text[start:end], str)

    def lines_of(self, token: "Token") -> list[Range]:
        """Return where the lines of a text are in the file; nothing if the parser has changed them."""
        first, _ = token.map or (0, 0)
        own: list[Range] = []
        for number, content in enumerate(token.content.split("\n"), start=first):
            line = self._lines[number] if number < len(self._lines) else ""
            start = line.find(content, self._cursor.get(number, 0))
            if start < 0:  # a cell, without the escapes of its bars
                content = content.replace("|", "\\|")
                start = line.find(content, self._cursor.get(number, 0))
            if start < 0:
                return []
            self._cursor[number] = start + len(content)
            own.append((self.offsets[number] + start, self.offsets[number] + self._cursor[number]))
        return own


def _html(token: "Token", page: _Page) -> Iterator[Replacement]:
    """Yield a block of HTML with references to its units.

    It is read without the marks of blocks, which are put before its lines again.
    """
    first, behind = token.map or (0, 0)
    own, units = page.lines[first:behind], page.units
    ends = [len(line.rstrip("\r\n")) for line in own]
    starts = [end - len(text) for end, text in zip(ends, token.content.split("\n"), strict=False)]
    if min(starts) < 0:  # a tab that the parser has changed
        return
    raw = "".join(line[start:] for line, start in zip(own, starts, strict=True))
    last = own[-1][ends[-1] :]
    mark = max((line[:start] for line, start in zip(own[1:], starts[1:], strict=True)), key=len, default="")

    def with_marks(part: str) -> str:
        return _LINE_END.sub(lambda end: end[0] + (mark if end["blank"] is None else mark.rstrip()), part)

    rules, num_before = html_rules(ignored=["pre"]), len(units.units)
    parts = [*map(with_marks, read_markup(raw.removesuffix(last), rules, units, tag=page.tag)), last]
    for index, unit in enumerate(units.units[num_before:], start=num_before):
        write = unit.write
        units.units[index] = replace(unit, write=lambda new, write=write: with_marks(write(new)))
    yield page.offsets[first] + starts[0], page.offsets[behind], "".join(parts)


class _Inline:
    """Reads the inline tokens of a text as a text with spans, and writes its translation."""

    def __init__(self, own: Sequence[Range], page: _Page) -> None:
        self._page, self._units = page, page.units
        self._content = "\n".join(page.text[start:end] for start, end in own)
        self._builder = Builder()
        self._open: list[int] = []  # where the text of each open element begins
        self._line_ends: list[tuple[int, str]] = []  # the ones that may move
        self._has_breaks = False
        self._at = 0
        self._is_left_out = False  # in the text of ruby, which goes, or of an address
        self._tokens = inline_tokens(page.parser, self._content, page.definitions)
        special = [child.content for child in self._tokens if child.type == "text_special"]
        # The ways in which the source writes a character, in its order: escaped, as an entity, bare.
        self._forms: dict[str, list[str]] = {char: [] for char in (*_SPECIAL, "&", *special)}
        tags = (_HTML_TAG.fullmatch(child.content) for child in self._tokens if child.type == "html_inline")
        # How many end tags of each name follow.
        self._num_closing = Counter(tag["name"].lower() for tag in tags if tag and tag["close"])
        # What is between the contents of two lines: a line end, and the marks of blocks.
        self._between = [page.text[end:start] for (_, end), (start, _) in pairwise(own)]
        self._number = 0  # of line ends before here

    def reference(self) -> str:
        """Return the reference to the unit; "" if there is no text, or it is not where it should be."""
        if not has_letters(self._content):
            return ""
        try:
            for index, token in enumerate(self._tokens):
                if token.type in ("softbreak", "hardbreak"):
                    beside = self._tokens[max(0, index - 1) : index + 2]
                    self._add_line_end(token, moves=not any(map(_is_fixed, beside)))
                else:
                    self._add(token)
        except _MisplacedError:
            return ""
        if self._open or self._content[self._at :].strip():
            return ""
        self._length = self._builder.length
        return self._units.refer(Unit(self._builder.source(), self._written))

    def _take(self, text: str) -> str:
        """Return what stands in the file for text that is next, and go on after it.

        Raises:
            _MisplacedError: it does not.
        """
        start = self._content.find(text, self._at)
        if start < 0 or self._content[self._at : start].strip():
            raise _MisplacedError
        return self._taken(start, start + len(text))

    def _taken(self, start: int, end: int) -> str:
        self._at = end
        first, *others = self._content[start:end].split("\n")
        number, self._number = self._number, self._number + len(others)
        ends = self._between[number : self._number]
        return first + "".join(map(add, ends, others))

    def _match(self, pattern: re.Pattern[str]) -> str:
        match = pattern.match(self._content, self._at)
        if match is None:
            raise _MisplacedError
        return self._taken(*match.span())

    def _destination(self, label: str) -> str:
        """Return what follows the text of a link or an image; its text, if it is a reference by that."""
        raw = self._match(_DESTINATION)
        if raw in ("", "[]"):
            return f"[{label}]"
        return self._page.link(raw, _TITLE.search(raw))

    def _add(self, token: "Token") -> None:
        if token.type in _ADDED:
            getattr(self, _ADDED[token.type])(token)
        elif token.nesting > 0:
            self._begin(self._take(token.markup))
        elif token.nesting < 0:
            self._end(self._take(token.markup))
        else:
            raise _MisplacedError

    def _add_escaped(self, token: "Token") -> None:
        raw = self._take(token.markup)
        if token.content == "|":  # between values in a cell
            self._builder.point(raw, "break")
            return
        if token.content == raw:  # a bare backslash
            self._add_chars(raw)
            return
        self._forms[token.content].append(raw)
        self._builder.text(token.content)

    def _add_code(self, token: "Token") -> None:
        self._take(token.markup)
        code = re.compile(rf"(?s:.*?)(?<!`){token.markup}(?!`)")
        self._builder.point(token.markup + self._match(code), "object")

    def _add_text(self, token: "Token") -> None:
        raw = self._take(token.content)
        if not self._is_left_out:
            self._add_chars(raw)

    def _add_mark(self, token: "Token") -> None:
        raw, title = self._take(token.content), token.meta["title"]
        if token.meta["is_attached"] and self._builder.attach(raw):
            return
        if title:
            raw = raw.removesuffix(title) + self._units.plain(title, title, str)
        self._builder.point(raw, "object")

    def _add_chars(self, text: str) -> None:
        for char in text:
            if char in self._forms:
                self._forms[char].append(char)
        self._builder.text(text)

    def _add_line_end(self, token: "Token", *, moves: bool) -> None:
        end = self._content.index("\n", self._at) + 1
        between = self._between[self._number]
        if moves and token.type == "softbreak":
            self._line_ends.append((self._builder.length, between))
            if not WITHIN_CJK.match(self._builder.last[-1:] + self._content[end : end + 1]):
                self._builder.text(" ")
        else:
            self._has_breaks = True
            self._builder.point(self._content[self._at : end - 1] + between, "break")
        self._at, self._number = end, self._number + 1

    def _begin(self, raw: str) -> None:
        self._builder.open(raw, is_low=raw == "~" or raw[:4].lower() == "<sub")
        self._open.append(self._at)

    def _end(self, raw: str, *, label: str | None = None) -> None:
        if not self._open:
            raise _MisplacedError
        self._open.pop()
        self._builder.close(raw, format=label)

    def _begin_link(self, token: "Token") -> None:
        if _is_address(token):
            self._take("<")
            self._is_left_out = True
        else:
            self._begin(self._take("["))

    def _end_link(self, token: "Token") -> None:
        if _is_address(token):
            self._is_left_out = False
            start = self._content.rindex("<", 0, self._at)
            self._take(">")
            self._builder.point(self._content[start : self._at], "object")
            return
        if not self._open:
            raise _MisplacedError
        label = self._content[self._open[-1] : self._at].replace("\n", " ")
        self._take("]")
        # A reference by its own text, which changes.
        self._end("]" + self._destination(label), label=label)

    def _add_image(self, token: "Token") -> None:
        self._take("![")
        end = self._at + len(token.content)
        label = self._content[self._at : end]
        self._taken(self._at, end)
        self._take("]")
        raw = self._destination(label)
        plain = re.sub(r"[\[\]]", "", label)
        alternative = self._units.plain(plain, label, lambda text: re.sub(r"([\[\]\\])", r"\\\1", text))
        self._builder.point(f"![{alternative}]{raw}", "object")

    def _add_tag(self, token: "Token") -> None:
        raw = self._take(token.content)
        tag = _HTML_TAG.fullmatch(raw)
        if tag is None:
            self._builder.point(raw)
            return
        name, is_point = tag["name"].lower(), bool(tag["single"])
        if tag["close"]:
            self._num_closing[name] -= 1
        else:
            raw = self._page.tag(HtmlToken(Kind.OPEN, raw, name))
            is_point = is_point or not self._num_closing[name]
        if name in _RUBY:
            self._is_left_out = _RUBY[name] and not tag["close"]
        elif name == "br":
            self._has_breaks = True
            self._builder.point(raw, "break")
        elif is_point or name in ("img", "wbr", "input"):
            self._builder.point(raw)
        elif tag["close"]:
            self._end(raw)
        else:
            self._begin(raw)

    def _written(self, translation: SpannedText) -> str:
        tags: Mapping[str, str] = {}
        line = self._line(translation, tags)
        if any(what == "open" and markup in _TAGS for what, markup, _ in parts(translation)):
            # Beside some signs and letters, marks of emphasis are text; tags are not.
            with_tags = self._line(translation, _TAGS)
            if self._text(line) != self._text(with_tags):
                line, tags = with_tags, _TAGS
        if self._line_ends and not self._has_breaks:
            lines = with_line_ends(translation, self._line_ends, self._length, places=_MAY_END)
            line = self._line(lines, tags)
        if _BLOCK_START.match(line) and not _BLOCK_START.match(self._content):
            line = f"\\{line}" if not line[0].isdigit() else re.sub(r"[.)]", r"\\\g<0>", line, count=1)
        return line

    def _text(self, line: str) -> str:
        """Return the text that the parser finds in a line."""
        tokens = inline_tokens(self._page.parser, line, self._page.definitions)
        return "".join(token.content for token in tokens if token.type.startswith("text"))

    def _line(self, translation: SpannedText, tags: Mapping[str, str]) -> str:
        left = spellings(self._forms, translation.text)
        source = "".join(child.content if child.type == "text" else " " for child in self._tokens)
        bare_tags = frozenset(_BEGIN_OF_TAG.findall(source))  # which the source has as text
        others: dict[str, str] = {}  # how characters are written without a spelling of their own
        for char, own in self._forms.items():
            bare = f"\\{char}" if char in _SPECIAL and not own else char
            others[char] = next((form for form in own if form[0] == "&" != form), bare)

        def spelled(text: str, at: int) -> str:
            char = text[at]
            new = next(left[char]) if char in left else others.get(char, char)
            if new == "<" and (tag := _BEGIN_OF_TAG.match(text, at)) and tag.group() not in bare_tags:
                return "\\<"
            return "&amp;" if new == "&" and _ENTITY.match(text, at) else new

        texts: list[str] = []
        starts: list[int] = []  # of the texts in elements that are open
        for what, text, span in parts(translation):
            if what == "text":
                texts.append("".join(spelled(text, at) for at in range(len(text))))
            elif what == "open":
                starts.append(len(texts))
            elif isinstance(span, Element):
                start = starts.pop()
                texts[start:] = [_element(span, "".join(texts[start:]), tags)]
            else:
                texts.append(text)
        return "".join(texts)


# The methods that add inline tokens which are more than their marks.
_ADDED = {
    "text": "_add_text",
    "text_special": "_add_escaped",
    "mark": "_add_mark",
    "code_inline": "_add_code",
    "image": "_add_image",
    "html_inline": "_add_tag",
    "link_open": "_begin_link",
    "link_close": "_end_link",
}
_WORDS = ("text", "text_special", "code_inline", "softbreak")  # tokens with what a reader sees, not pictures
# Elements of ruby, which go, and whether their text goes too: how the source is pronounced.
_RUBY = {"ruby": False, "rb": False, "rt": True, "rp": True, "rtc": True}


def _is_fixed(token: "Token") -> bool:
    return token.type == "mark" and bool(token.meta["is_fixed"])


def _is_address(link: "Token") -> bool:
    return link.markup in ("autolink", "linkify")


def _element(span: Element, text: str, tags: Mapping[str, str]) -> str:
    """Return a translation in its marks.

    A link without text keeps the text of the source, so that its address stays. Emphasis of nothing, or with
    white space inside, would be text.
    """
    opening, closing = span.opening or "", span.closing or ""
    core = text.strip()
    if opening.startswith("[["):
        return opening + core + closing if core else ""
    if isinstance(span.format, str):  # the text of a link in the source
        return opening + (text if core else span.format) + closing
    if opening.startswith("<"):
        return opening + text + closing
    if not core:
        return text
    before, _, behind = text.partition(core)
    if opening in tags:
        opening, closing = f"<{tags[opening]}>", f"</{tags[opening]}>"
    return before + opening + core + closing + behind
