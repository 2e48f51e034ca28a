"""Markdown (CommonMark and tables): a parser finds the text; this module finds its place in the file."""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING

from heedful.documents.formats import Reading
from heedful.documents.markup import html_rules, read_markup
from heedful.documents.template import Replacement, Template, Unit
from heedful.documents.tokens import Kind
from heedful.documents.tokens import Token as HtmlToken
from heedful.documents.web_pages import PageTags
from heedful.errors import needing
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
    from markdown_it import MarkdownIt
    from markdown_it.token import Token

_LINE = re.compile(r"[^\r\n]*(?:\r\n|\r|\n|\Z)")
_FRONT_MATTER = re.compile(r"\A(---|\+\+\+)[ \t]*\r?\n(?s:.*?)\n\1[ \t]*(?=\r?\n|\Z)")
_SPECIAL = "\\`*_[]<>|~"
_ENTITY = re.compile(r"&(?=#?\w+;)")
_BEGIN_OF_TAG = re.compile(r"<[A-Za-z/!?][A-Za-z\d-]{0,20}")
# What other programs read and the parser takes for text. After the marks of blocks: boxes of tasks, labels
# of footnotes, kinds of notes; anywhere: footnotes and formulas, with no blank at their ends: not $5 and $6.
_OPAQUE = re.compile(
    r"""
    ^(?P<marks> (?: [ \t>] | (?: [-+*] | \d++[.)] ) (?=[ \t]) )*+ )
        (?: (?P<label> \[[ xX]\] (?=[ \t]) | \[![\w-]++\][-+]? (?=[ \t]*$) | \*\[[^\[\]\n]++\]:
            | \| (?=[ ] [^|\n]++ $) )
        | (?P<note> \[\^[^\s\[\]]++\]: ) )
    | (?P<line> ^ (?: \[TOC\] | \[\[_TOC_\]\] | -+8<-+ .* | <<<\ .* | \([\w-]++\)= | import\ .*\ from\ ['"] .*
        | export\ (?: const | default | function | let )\ .* ) $ )
    | (?<! \\ ) (?: !\[\[ [^\[\]\n]++ \]\] | \[\[ [^\[\]|\n]++ \]\] (?! [(\[:] ) )
    | (?<! \\ ) (?P<page> \[\[ [^\[\]|\n]++ \| ) (?P<words> [^\[\]\n]++ ) \]\]
    | %% [^%\n]++ %% | (?<= \s ) \^[\w-]++ (?= [ \t]*$ )
    | (?<! \\ ) (?P<display> \$\$ (?: (?! \$\$ | \n[ \t>]*\n | ~~~ ) [^`] )++ \$\$ )
    | (?<! \\ ) (?P<brackets> \\\[ (?= (?: (?! \\[\[\]] | \n[ \t>]*\n ) [^`=^_{}] )*+ [=^_{}] )
        (?: (?! \\[\[\]] | \n[ \t>]*\n ) [^`] )++ \\\] )  # a formula, not \[escaped brackets\]
    | (?P<environment> \\begin\{ (?P<name> [\w*]++ ) \} (?: (?! \\end\{ | \n[ \t>]*\n ) [^`] ){0,2000}+
        \\end\{ (?P=name) \} )
    | (?<= [)\]`] ) (?P<attributes> \{ :?+ (?: [ \t]*+ (?: [\#.][\w-]++
        | [\w-]++= (?: "[^"\n]*+" | [^\s{}"]++ ) ) )++ [ \t]*+ \} )
    | (?<! [\w:] ) : [a-z][a-z0-9_]*+ (?: - [a-z0-9_]++ )++ : (?! [\w:] )
    | (?<! [\w+] ) \+\+ [\w-]++ (?: \+ [\w-]++ )*+ \+\+ (?! [\w+] )
    | (?<! \\ ) \[\^[^\s\[\]]++\]
    | (?<! \\ ) \\\( (?: (?! \\ [()] ) [^`\n] )++ \\\)
    | (?<! \\ ) \\[A-Za-z]++ (?: \{ [^{}\n]*+ \} )*+ | \{[a-z][\w:.-]*+\}`[^`\n]++`  # TeX, MyST
    | (?<! [\w$\\] ) \$ (?= [\w\\({\[|+-] ) [^$`\n]++ (?<! [\s\\] ) \$ (?! [\w$] )
    """,
    re.VERBOSE | re.MULTILINE,
)
# The first lines of containers (Docusaurus, VitePress, Pandoc), of notes and tabs (MkDocs) and of callouts
# (Obsidian), with their titles. A block of slashes has a kind alone or before a "|"; else it is prose.
_HEAD_LINE = re.compile(
    r"""
    ^(?P<marks> (?: [ \t>] | (?: [-+*] | \d++[.)] ) (?=[ \t]) )*+ ) (?:
        (?P<admonition> (?: !!! | \?\?\?\+? | ===[!+]? (?= [ \t]*" ) ) [ \t]* )
            (?P<kind> [^"\n]*+ ) (?: " (?P<quoted> [^"\n]*+ ) " )? [ \t]*
        | (?P<slashes> ///++ [ \t]* ) (?:
            (?! html \b ) [\w-]++ [ \t]*+ \| [ \t]*+ (?P<argument> [^\W\d_] [^={}\n]*+ )
            | [\w-]++ [ \t]*+ (?: \| .* )? )
        | (?P<container> :::++ [ \t]* ) (?= \S )
            (?: [\w-]++ \[ (?P<bracketed> [^\[\]\n]*+ ) \]
            | (?: [\w-]++ | \{[\w-]++\} ) [ \t]++ (?: \| [ \t]++ )?+ (?P<titled> [^\W\d_] [^={}\n]*+ ) | ) .*
        | \[![\w-]++\] [-+]? [ \t]++ (?P<callout> \S.* )
    )$""",
    re.VERBOSE | re.MULTILINE,
)
_SLASHES = re.compile(r"(?m)^[ \t>]*///+[ \t]*$")  # what ends a block of MkDocs, which begins as "/// note"
# Rows of a table that begin with "|": if it has one column, they need no other, and are no lines of verse.
_TABLE = re.compile(
    r"(?m)^(?:[ \t>]|(?:[-+*]|\d+[.)])[ \t])*+\|.*\n[ \t>]*\|[ \t:|]*-[ \t:|-]*$(?:\n[ \t>]*\|.*$)*"
)
_FIRST_CELL = re.compile(r"(?m)^([^|\n]*\|) ")
_CALLOUT = re.compile(r"(\[![\w-]++\][-+]?[ \t]++)(\S.*)")
# They are masked by characters that no text has; the second are beside line ends that must not move.
# The third and the fourth are around words of a link to a page: [[page|words]]. The fifth follow a span.
_MASK, _FIXED, _OPENING, _CLOSING, _ATTACHED = "\ue000", "\ue001", "\ue002", "\ue003", "\ue004"
_MASK_OF: dict[str | None, str] = {  # by the group that matches
    **dict.fromkeys(("label", "display", "brackets", "environment", "line"), _FIXED),
    "attributes": _ATTACHED,
}
_MASKED = re.compile(f"{_MASK}+|{_FIXED}+|{_OPENING}+|{_CLOSING}+|{_ATTACHED}+")
_FIXED_LINE = re.compile(rf"(?:(?<={_FIXED})|(?=[ \t]*\n[ \t]*{_FIXED}))[ \t]*\n")
_LINE_END = re.compile(r"(?:\r\n|\r|\n)(?P<blank>(?=[\r\n]))?")
# What begins a block at the start of a line.
_BLOCK_START = re.compile(r"(?:[-+*:]|\d+[.)])(?=\s|$)|[=>#|]|~~~|:::|!!!|\?\?\?")
_MAY_END = re.compile(f" (?!{_BLOCK_START.pattern})")  # where a line may
_TAGS = {"*": "em", "_": "em", "**": "strong", "__": "strong", "~~": "del"}
_HTML_TAG = re.compile(r"<(?P<close>/?)(?P<name>[A-Za-z][\w-]*)[^<>]*?(?P<single>/?)>")
_DESTINATION = re.compile(
    r"""
    \((?>
        \\. | <[^<>]*> | "(?:[^"\\]|\\.)*" | '(?:[^'\\]|\\.)*' | [^()\\<"'] | \((?:[^()\\]|\\.)*\) | ["'<]
    )*+\)
    | \[(?:[^\[\]\\]|\\.)*\]
    | """,
    re.VERBOSE | re.DOTALL,
)


_TITLE = re.compile(
    r"""\s (?P<quote>["']) (?P<text> (?: (?! (?P=quote) ) [^\\\n] | \\. )++ ) (?P=quote) \s*+ \) \Z""",
    re.VERBOSE,
)


class _MisplacedError(Exception):
    """The text of a token is not where it was expected."""


def read_markdown(text: str, reading: Reading) -> Template:
    """Read Markdown: headings, paragraphs and cells are units, and so are alternative texts and HTML.

    Raises:
        MissingExtraError: the parser is not installed.
    """
    parser = _parser()
    lines = _LINE.findall(text)
    front = _FRONT_MATTER.match(text)
    num_front = front.group().count("\n") + 1 if front else 0
    shown = ["\n"] * num_front + [line.rstrip("\r\n") + "\n" for line in lines[num_front:]]
    shown_text = "".join(shown)
    offsets = [0, *accumulate(map(len, lines))]
    units = Template()
    titles = _titles(shown_text)
    masked = _SLASHES.sub(lambda end: end[0].replace("/", ":"), _HEAD_LINE.sub(_mask_head, shown_text))
    masked = _TABLE.sub(lambda table: _FIRST_CELL.sub("\\1\t", table[0]), masked)
    masked = _OPAQUE.sub(_mask, masked)
    masked_lines = masked.split("\n")
    replaced: list[Replacement] = []
    cursor: dict[int, int] = {}
    is_title = False  # whether the text of a token is a title
    for token in parser.parse(masked):
        first, behind = token.map or (0, 0)
        if token.type in ("admonition_open", "container_any_open") and (title := titles.get(first)):
            start, end = offsets[first] + title[0], offsets[first] + title[1]
            replaced.append((start, end, units.plain(text[start:end], text[start:end], str)))
        elif token.type == "html_block":
            if html := _html(token, lines[first:behind], units):
                start, reference = html
                replaced.append((offsets[first] + start, offsets[behind], reference))
        elif token.type == "inline" and not is_title and behind:
            own = _lines_of(token, masked_lines, offsets, cursor)
            reference = _Inline(token, own, text, units, parser).reference() if own else ""
            if reference:
                replaced.append((own[0][0], own[-1][1], reference))
        is_title = token.type == "admonition_title_open"
    return units.replaced(text, sorted(replaced))


def _parser() -> "MarkdownIt":
    """Return the parser of CommonMark with tables, containers, notes, definitions and footnotes.

    Raises:
        MissingExtraError: it is not installed.
    """
    with needing("Markdown needs markdown-it-py and mdit-py-plugins", extra="documents"):
        from markdown_it import MarkdownIt
        from mdit_py_plugins.admon import admon_plugin
        from mdit_py_plugins.container import container_plugin
        from mdit_py_plugins.deflist import deflist_plugin
        from mdit_py_plugins.footnote import footnote_plugin
    parser = MarkdownIt("commonmark").use(admon_plugin).use(deflist_plugin).use(footnote_plugin)
    parser.use(container_plugin, "any", validate=lambda head, _: bool(head.strip()))
    left_out = ["text_join", "footnote_tail", "footnote_inline", "footnote_ref"]
    return parser.enable(["table", "strikethrough"]).disable(left_out)


def _titles(text: str) -> dict[int, Range]:
    """Return where the titles of containers and notes stand in their lines, by number."""
    titles: dict[int, Range] = {}
    number = at = 0
    for head in _HEAD_LINE.finditer(text):
        if head.lastgroup in ("quoted", "bracketed", "titled", "argument"):
            number, at = number + text.count("\n", at, head.start()), head.start()
            titles[number] = head.start(head.lastgroup) - at, head.end(head.lastgroup) - at
    return titles


def _mask_head(head: re.Match[str]) -> str:
    """Return the first line of a container, a note or a callout as the parser's plugins know it."""
    marks = head["marks"]
    if colons := head["container"] or head["slashes"]:
        marks += colons.replace("/", ":")
    elif head["admonition"]:
        marks += "???" if head["admonition"].startswith("?") else "!!!"
        marks += " " if head["admonition"][3:4].isspace() else ""
    return marks + _FIXED * (len(head.group()) - len(marks))


def _mask(opaque: re.Match[str]) -> str:
    """Return a replacement that the parser takes for a word: as long, with the same lines and block marks."""
    if opaque["note"]:
        return opaque.group()
    if opaque["page"]:
        return _OPENING * len(opaque["page"]) + opaque["words"] + _CLOSING * 2
    marks = opaque["marks"] or ""
    mask = _MASK_OF.get(opaque.lastgroup, _MASK)
    masked = re.sub(r"(\n[ \t>]*)|.", lambda char: char[1] or mask, opaque.group()[len(marks) :])
    return marks + masked


def _html(token: "Token", own: Sequence[str], units: Template) -> tuple[int, str] | None:
    """Return where HTML begins in its first line, and the reference to it, to the end of its lines.

    It is read without the marks of blocks, which are put before its lines again.
    """
    ends = [len(line.rstrip("\r\n")) for line in own]
    starts = [end - len(text) for end, text in zip(ends, token.content.split("\n"), strict=False)]
    if min(starts) < 0:  # a tab that the parser has changed
        return None
    raw = "".join(line[start:] for line, start in zip(own, starts, strict=True))
    last = own[-1][ends[-1] :]
    mark = max((line[:start] for line, start in zip(own[1:], starts[1:], strict=True)), key=len, default="")

    def with_marks(part: str) -> str:
        return _LINE_END.sub(lambda end: end[0] + (mark if end["blank"] is None else mark.rstrip()), part)

    rules, tags, first = html_rules(ignored=["pre"]), PageTags(units, None), len(units.units)
    parts = [*map(with_marks, read_markup(raw.removesuffix(last), rules, units, tag=tags.written)), last]
    for index, unit in enumerate(units.units[first:], start=first):
        write = unit.write
        units.units[index] = replace(unit, write=lambda new, write=write: with_marks(write(new)))
    return starts[0], "".join(parts)


def _lines_of(
    token: "Token", lines: Sequence[str], offsets: Sequence[int], cursor: dict[int, int]
) -> list[Range]:
    """Return where the lines of a text begin and end in the file; nothing if the parser has changed them."""
    first, _ = token.map or (0, 0)
    own: list[Range] = []
    for number, content in enumerate(token.content.split("\n"), start=first):
        start = lines[number].find(content, cursor.get(number, 0)) if number < len(lines) else -1
        if start < 0:
            return []
        cursor[number] = start + len(content)
        own.append((offsets[number] + start, offsets[number] + cursor[number]))
    return own


class _Inline:
    """Reads the inline tokens of a text as a text with spans, and writes its translation."""

    def __init__(
        self, token: "Token", own: Sequence[Range], text: str, units: Template, parser: "MarkdownIt"
    ) -> None:
        self._content, self._units, self._parser = token.content, units, parser
        self._tags = PageTags(units, None)
        # As long as the content, without masks.
        self._raw = "\n".join(text[start:end] for start, end in own)
        self._builder = Builder()
        self._open: list[int] = []  # where the text of each open element begins
        self._line_ends: list[tuple[int, str]] = []  # the ones that may move
        self._has_breaks = False
        self._at = 0
        self._number, self._counted = 0, 0  # of line ends, before a place in the content
        self._is_left_out = False  # in the text of ruby, which goes, or of an address
        self._tokens = token.children or []
        special = [child.content for child in self._tokens if child.type == "text_special"]
        # The ways in which the source writes a character, in its order: escaped, as an entity, bare.
        self._forms: dict[str, list[str]] = {char: [] for char in (*_SPECIAL, "&", *special)}
        tags = (_HTML_TAG.fullmatch(child.content) for child in self._tokens if child.type == "html_inline")
        # How many end tags of each name follow.
        self._num_closing = Counter(tag["name"].lower() for tag in tags if tag and tag["close"])
        # What is between the contents of two lines: a line end, and the marks of blocks.
        self._between = [text[end:start] for (_, end), (start, _) in pairwise(own)]

    def reference(self) -> str:
        """Return the reference to the unit; "" if there is no text, or it is not where it should be."""
        if not has_letters(self._content):
            return ""
        try:
            for token in self._tokens:
                self._add(token)
        except _MisplacedError:
            return ""
        if self._open or self._content[self._at :].strip():
            return ""
        self._length = self._builder.length
        return self._units.refer(Unit(self._builder.source(), self._written))

    def _take(self, text: str) -> str:
        """Return what stands for text that is next, and go on after it.

        Raises:
            _MisplacedError: it does not.
        """
        start = self._content.find(text, self._at)
        if start < 0 or self._content[self._at : start].strip():
            raise _MisplacedError
        self._at = start + len(text)
        return self._raw[start : self._at]

    def _match(self, pattern: re.Pattern[str]) -> str:
        match = pattern.match(self._content, self._at)
        if match is None:
            raise _MisplacedError
        self._at = match.end()
        return self._raw[match.start() : self._at]

    def _destination(self, label: str) -> str:
        """Return what follows the text of a link or an image; its text, if it is a reference by that."""
        raw = self._match(_DESTINATION)
        if raw in ("", "[]"):
            return f"[{label}]"
        title = _TITLE.search(raw)
        if title is None:
            return raw
        start, end = title.span("text")
        quote = title["quote"]
        own = re.sub(r"\\([!-/:-@\[-`{-~])", r"\1", title["text"])
        unit = self._units.plain(
            own, title["text"], lambda new: new.replace("\\", "\\\\").replace(quote, f"\\{quote}")
        )
        return raw[:start] + unit + raw[end:]

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
        self._forms[token.content].append(self._take(token.markup))
        self._builder.text(token.content)

    def _add_code(self, token: "Token") -> None:
        self._take(token.markup)
        code = re.compile(rf"(?s:.*?)(?<!`){token.markup}(?!`)")
        self._builder.point(token.markup + self._match(code), "object")

    def _add_text(self, token: "Token") -> None:
        text, raw = token.content, self._take(token.content)
        if self._is_left_out:
            return
        at = 0
        for mask in _MASKED.finditer(text):
            self._add_chars(raw[at : mask.start()])  # not what slashes are for the parser
            at = mask.end()
            own = raw[mask.start() : at]
            kind = mask.group()[0]
            if kind == _OPENING:
                self._begin(own)
            elif kind == _CLOSING:
                self._end(own)
            elif kind != _ATTACHED or not self._builder.attach(own):
                if callout := _CALLOUT.fullmatch(own):
                    own = callout[1] + self._units.plain(callout[2], callout[2], str)
                self._builder.point(own, "object")
        self._add_chars(raw[at:])

    def _add_chars(self, text: str) -> None:
        for char in text:
            if char in self._forms:
                self._forms[char].append(char)
        self._builder.text(text)

    def _add_line_end(self, token: "Token") -> None:
        moves = token.type == "softbreak" and not _FIXED_LINE.match(self._content, self._at)
        end = self._content.index("\n", self._at) + 1
        self._number += self._content.count("\n", self._counted, self._at)
        between, self._counted = self._between[self._number], self._at
        if moves:
            self._line_ends.append((self._builder.length, between))
            if not WITHIN_CJK.match(self._builder.last[-1:] + self._content[end : end + 1]):
                self._builder.text(" ")
        else:
            self._has_breaks = True
            self._builder.point(self._content[self._at : end - 1] + between, "break")
        self._at = end

    def _begin(self, raw: str) -> None:
        self._builder.open(raw, is_low=raw[:4].lower() == "<sub")
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
            self._builder.point(self._raw[start : self._at], "object")
            return
        if not self._open:
            raise _MisplacedError
        label = self._raw[self._open[-1] : self._at].replace("\n", " ")
        self._take("]")
        # A reference by its own text, which changes.
        self._end("]" + self._destination(label), label=label)

    def _add_image(self, token: "Token") -> None:
        self._take("![")
        end = self._at + len(token.content)
        label = self._raw[self._at : end]
        self._at = end
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
            raw = self._tags.written(HtmlToken(Kind.OPEN, raw, name))
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
        if _BLOCK_START.match(line) and not _BLOCK_START.match(self._raw):
            line = f"\\{line}" if not line[0].isdigit() else re.sub(r"[.)]", r"\\\g<0>", line, count=1)
        return line

    def _text(self, line: str) -> str:
        """Return the text that the parser finds in a line."""
        [token] = self._parser.parseInline(_OPAQUE.sub(_mask, line))
        return "".join(child.content for child in token.children or () if child.type.startswith("text"))

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
    "softbreak": "_add_line_end",
    "hardbreak": "_add_line_end",
    "code_inline": "_add_code",
    "image": "_add_image",
    "html_inline": "_add_tag",
    "link_open": "_begin_link",
    "link_close": "_end_link",
}
# Elements of ruby, which go, and whether their text goes too: how the source is pronounced.
_RUBY = {"ruby": False, "rb": False, "rt": True, "rp": True, "rtc": True}


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
