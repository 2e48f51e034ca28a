"""The tokens of HTML and XML: text, tags, and all else that is markup, however broken."""

import html
import re
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import cached_property, partial
from html.entities import html5

from heedful.spans.placeholders import Range, blocks, find, is_block
from heedful.spans.reading import counted
from heedful.spans.spanned_text import Builder, SpannedText, markup, spellings
from heedful.spans.spanned_text import Kind as SpanKind


class Kind(Enum):
    """Kinds of tokens."""

    TEXT = "text"
    OPEN = "open"
    CLOSE = "close"
    POINT = "point"  # a tag without content, a comment, a declaration
    BREAK = "break"  # a mark in a text without markup that separates sentences

    @classmethod
    def of_tag(cls, *, single: object, close: object) -> "Kind":
        """Return the kind of a tag: whether it has no content, else whether it ends an element."""
        if single:
            return cls.POINT
        return cls.CLOSE if close else cls.OPEN


@dataclass(frozen=True, slots=True)
class Token:
    """A part of a document.

    Attributes:
        kind: what the part is.
        raw: as it is written.
        name: the name of a tag, in lower case for HTML; "!DOCTYPE" and "?xml" for what is before the root
            element of XML.
        translated: what the tag says of its element, whether it is to be translated; None: nothing.
    """

    kind: Kind
    raw: str
    name: str = ""
    translated: bool | None = None

    @property
    def text(self) -> str:
        """The characters that text stands for."""
        return html.unescape(self.raw)


UNTRANSLATED_ELEMENTS = frozenset({
    "code", "kbd", "samp", "var", "math", "svg", "script", "style", "textarea", "noscript", "template",
})  # fmt: skip
ENDS_PARAGRAPH = frozenset({
    "address", "article", "aside", "blockquote", "details", "dialog", "div", "dl", "fieldset",
    "figcaption", "figure", "footer", "form", "h1", "h2", "h3", "h4", "h5", "h6", "header", "hgroup",
    "hr", "main", "menu", "nav", "ol", "p", "pre", "search", "section", "table", "ul",
})  # fmt: skip
_VOID = frozenset({
    "area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "param", "source",
    "track", "wbr",
})  # fmt: skip
# The markup of HTML, as browsers take it (https://html.spec.whatwg.org, 13.2.5), with the tags of templates,
# and numbers as names, which libraries of translations use.
_NAME_OF_HTML = r"[a-zA-Z][^\s/<>]*+ | \d++ (?= \s*+ /?+ > )"
_HTML = re.compile(
    rf"""
    (?P<opening> <!-- | <!\[CDATA\[ | <\?(?: php\b | = ) | <% | <[!?] )
    | <(?P<close>/?+) (?P<name>{_NAME_OF_HTML})
    | (?P<close_of_nothing> </ [^<>]*+ > )
    | (?P<message> \{{ \s*+ \w++ \s*+ , )
    | (?P<formula> \\\( (?: (?! \\[()] ) [^<] ){{1,1000}}+ \\\)
        | \\\[ (?= (?: (?! \\[\[\]] ) [^<\]=^_{{}}+] ){{0,1000}}+ [=^_{{}}+] )
            (?: (?! \\[\[\]] ) [^<] ){{1,1000}}+ \\\]
        | \$\$ (?= [^<$=^_{{}}\\+]{{0,1000}}+ [=^_{{}}\\+] ) [^<$]{{1,1000}}+ \$\$ )
    """,
    re.VERBOSE,
)
_ENDS_OF_HTML = {
    "<!--": re.compile(r"--!?>"),
    "<![CDATA[": re.compile(r"\]\]>"),
    "<?php": re.compile(r"\?>"),
    "<?=": re.compile(r"\?>"),
    "<%": re.compile(r"%>"),
}
_TO_QUOTE = re.compile(r"""(?> [^<>=] | = (?! \s*+ ["'] ) )*+ (?: > | = \s*+ (["']) )""", re.VERBOSE)
_WITHOUT_QUOTES = re.compile(r"[^<>]*+>")
# What is in these elements is no markup; in the first two it is no text either.
_END_OF_ELEMENT = {
    name: re.compile(rf"</{name}(?=[\s/>])", re.IGNORECASE)
    for name in ("script", "style", "textarea", "title")
}
_CODE = ("script", "style")
# An attribute in the order of a tag: as no part of a tag is left out, none is found in the value of another.
ATTRIBUTE = re.compile(
    r"""(?:\s|(?<=["'/]))(?P<name>[^\s"'<>/=]++)\s*+=\s*+
    (?: "(?P<double>[^"]*+)" | '(?P<single>[^']*+)' | (?P<bare>[^\s"'=<>`]++) )""",
    re.VERBOSE,
)
_MARKED = re.compile("translate|mention|hashtag|page-?list|pagebreak", re.IGNORECASE)
_PAGE_NUMBERS = frozenset(("page-list", "pagebreak", "doc-pagelist", "doc-pagebreak"))  # of a printed book


# The markup of XML 1.0 (sections 2.1 to 2.8 and 4.1). No part can match a text in two ways, and none is
# looked for again once it has no end: the time grows with the length of the document.
_NAME = r"(?:[^\W\d]|:)[\w:.\-]*"
_XML = re.compile(
    rf"""
    (?P<opening> <!-- | <!\[CDATA\[ | <\? | <!DOCTYPE )
    | (?P<tag> <(?P<close>/?+) (?P<name>{_NAME})
        (?P<rest> (?> [^<>"'] | "[^"]*" | '[^']*' )*+ (?= > ) | [^<>]*+ ) > )  # or a quote has no end
    | & (?P<entity>{_NAME}) ;
    """,
    re.VERBOSE,
)
_ENDS = {"<!--": re.compile("-->"), "<![CDATA[": re.compile("]]>"), "<?": re.compile(r"\?>")}
_DECLARATION = "<?xml "
# It ends after its own declarations; quotes and comments may hold what would end it.
_DOCTYPE = re.compile(
    r"""
    <!DOCTYPE (?> [^\[\]<>"'] | "[^"]*" | '[^']*' )*+
    (?: \[ (?> [^\]<"'] | "[^"]*" | '[^']*' | <!--.*?--> | <\?.*?\?> | <(?!!--|\?) )*+ \] \s*+ )?+ >
    """,
    re.VERBOSE | re.DOTALL,
)


def attributes(tag: str) -> dict[str, str]:
    """Return the attributes of a tag by their names in lower case; the last one of a name counts."""
    found = ATTRIBUTE.finditer(tag)
    return {value["name"].lower(): html.unescape(value[value.lastgroup or 0]) for value in found}


def attribute_in(tag: str, name: str) -> re.Match[str] | None:
    """Return where a tag has an attribute, with any prefix of a namespace; the last one of a name counts.

    The group `lastgroup` of the match is the value as it is written.
    """
    found: re.Match[str] | None = None
    for attribute in ATTRIBUTE.finditer(tag):
        prefix, _, local = attribute["name"].rpartition(":")
        if local == name and prefix != "xmlns":
            found = attribute
    return found


def attributes_of_tags(text: str, names: str) -> Iterator[dict[str, str]]:
    """Yield the attributes, by lower names, of the start tags in XML with local names of a pattern."""
    tag = rf"""<(?:[\w.-]+:)?(?:{names})\s(?:[^<>"']|"[^"]*"|'[^']*')*+>"""
    return map(attributes, re.findall(tag, text))


def _translated(tag: str, name: str) -> bool | None:
    """Return whether a tag says that its element is translated.

    Links as Mastodon marks them are not, and no numbers of pages, which may be Roman.
    """
    if not _MARKED.search(tag):
        return None
    values = {key: value.lower().rstrip("/") for key, value in attributes(tag).items()}
    classes = {*values.get("class", "").split()}
    roles = {*values.get("epub:type", "").split(), *values.get("role", "").split()}
    untranslated = {"notranslate", "mention", "hashtag"} if name == "a" else {"notranslate"}
    says = "no" if classes & untranslated or roles & _PAGE_NUMBERS else values.get("translate")
    return {"no": False, "yes": True}.get(says or "")


def tokenize(document: str, *, xml: bool = False) -> list[Token]:
    """Return the tokens of a document; anything is one, however broken.

    Entities are never expanded but for the characters that HTML has names for: one that a document of XML
    declares is a token without content, as are the declarations.
    """
    return list(counted((_XmlTokenizer if xml else _HtmlTokenizer)(document).tokens()))


class _Tokenizer:
    """Reads a document from left to right; the time grows with its length, even if markup has no end."""

    pattern: re.Pattern[str]  # finds where markup may begin
    texts: Mapping[str, re.Pattern[str]] = {}  # the end tags of elements without markup inside

    def __init__(self, document: str) -> None:
        self._document = document
        self._no_more: set[str] = set()  # what has no end from here on

    def end(self, match: re.Match[str]) -> int:
        """Return where the markup ends that begins with a match; -1: it is text."""
        raise NotImplementedError

    def token(self, match: re.Match[str], raw: str) -> Token:
        """Return the token of markup."""
        raise NotImplementedError

    def tokens(self) -> Iterator[Token]:
        """Yield the tokens."""
        document = self._document
        text = at = 0  # where text that is not yet a token begins, and where to look for markup
        while match := self.pattern.search(document, at):
            start, end = match.start(), self.end(match)
            if end < 0:
                at = match.end()
                continue
            if start > text:
                yield Token(Kind.TEXT, document[text:start])
            token = self.token(match, document[start:end])
            yield token
            text = at = end
            if token.kind is Kind.OPEN and token.name in self.texts:
                text = at = self._end_of_content(token.name, end)
                if at > end:
                    yield Token(Kind.POINT if token.name in _CODE else Kind.TEXT, document[end:at])
        if text < len(document):
            yield Token(Kind.TEXT, document[text:])

    def _end_of_content(self, name: str, start: int) -> int:
        if match := self.find(self.texts, name, start):
            return match.start()
        return len(self._document) if name in _CODE else start

    def find(self, ends: Mapping[str, re.Pattern[str]], what: str, start: int) -> re.Match[str] | None:
        """Return the end of something that begins before; None if it has none."""
        if what in self._no_more or what not in ends:
            return None
        match = ends[what].search(self._document, start)
        if match is None:
            self._no_more.add(what)
        return match


class _XmlTokenizer(_Tokenizer):
    pattern = _XML

    def end(self, match: re.Match[str]) -> int:
        opening, entity = match["opening"], match["entity"]
        if entity is not None and f"{entity};" in html5:  # a character that has a name
            return -1
        if opening is None:
            return match.end()
        end = self.find(_ENDS, opening, match.end())
        if opening not in (*_ENDS, *self._no_more):  # a document has one type
            self._no_more.add(opening)
            end = _DOCTYPE.match(self._document, match.start())
        return end.end() if end else -1

    def token(self, match: re.Match[str], raw: str) -> Token:
        name = match["name"]
        if name:
            kind = Kind.of_tag(single=match["rest"].endswith("/"), close=match["close"])
            return Token(kind, raw, name, _translated(raw, name))
        names = {"<!DOCTYPE": "!DOCTYPE", "<?": "?xml" if raw.startswith(_DECLARATION) else ""}
        return Token(Kind.POINT, raw, names.get(match["opening"], ""))


class _HtmlTokenizer(_Tokenizer):
    """Reads HTML: a comment or declaration without an end goes to the end of the document, as in browsers."""

    pattern = _HTML
    texts = _END_OF_ELEMENT

    def __init__(self, document: str) -> None:
        super().__init__(document)
        self._endless: set[int] = set()  # places in tags, after a quoted value, from where no end is found

    def token(self, match: re.Match[str], raw: str) -> Token:
        if not match["name"]:
            return Token(Kind.POINT, raw)
        name = match["name"].lower()
        if match["close"]:
            return Token(Kind.CLOSE, raw, name)
        kind = Kind.of_tag(single=name in _VOID or raw.endswith("/>"), close=False)
        return Token(kind, raw, name, _translated(raw, name))

    def end(self, match: re.Match[str]) -> int:
        if match["name"]:
            return self._end_of_tag(match.end())
        if match["close_of_nothing"] or match["formula"]:
            return match.end()
        if match["message"]:  # it may have tags inside
            end = self._blocks.get(match.start(), -1)
            return end if end > 0 and is_block(self._document, match.start(), end) else -1
        opening = match["opening"]
        if end_of_markup := self.find(_ENDS_OF_HTML, opening, match.start() + 2):
            return end_of_markup.end()
        if opening == "<%":
            return -1
        end = 0 if opening == "<!--" else self._document.find(">", match.end()) + 1
        return end or len(self._document)

    @cached_property
    def _blocks(self) -> dict[int, int]:
        return blocks(self._document)

    def _end_of_tag(self, at: int) -> int:
        behind_name = at
        passed: list[int] = []
        while at not in self._endless and (match := _TO_QUOTE.match(self._document, at)):
            if match[1] is None:
                return match.end()
            at = self._document.find(match[1], match.end()) + 1
            if at == 0:
                break
            passed.append(at)
        self._endless.update(passed)
        match = _WITHOUT_QUOTES.match(self._document, behind_name)  # a quote without an end is no quote
        return match.end() if match else -1


def partners(tokens: Sequence[Token]) -> dict[int, int]:
    """Return the index of the end tag for each start tag that has one, properly nested."""
    waiting: dict[str, list[int]] = {}
    depth: list[int] = []
    index_of_start: dict[int, int] = {}
    for index, token in enumerate(tokens):
        if token.kind is Kind.OPEN:
            waiting.setdefault(token.name, []).append(index)
            depth.append(index)
        elif token.kind is Kind.CLOSE and waiting.get(token.name):
            start = waiting[token.name][-1]
            while depth and depth[-1] >= start:  # what was left open inside has no end
                waiting[tokens[depth.pop()].name].pop()
            index_of_start[start] = index
    return index_of_start


Mark = tuple[Range, Kind, str]  # where a tag is in a text, its kind and its name


def tokens_of(text: str, marks: Iterable[Mark]) -> list[Token]:
    """Return the tokens of a text with marks, in order; before, between and behind them is text."""
    tokens: list[Token] = []
    at = 0
    for (start, end), kind, name in marks:
        tokens += [Token(Kind.TEXT, text[at:start]), Token(kind, text[start:end], name)]
        at = end
    return [*tokens, Token(Kind.TEXT, text[at:])]


_TAG_IN_TEXT = re.compile(r"[<\[](?P<close>/?)(?P<name>[A-Za-z0-9][\w.-]*).*?(?P<single>/?)[>\]]", re.DOTALL)


# Elements of HTML that separate sentences in a string, too.
_BLOCKS = ENDS_PARAGRAPH | {
    "br", "caption", "dd", "dt", "legend", "li", "option", "summary", "tbody", "td", "tfoot", "th", "thead",
    "tr",
}  # fmt: skip
# What is no tag: bars between forms of plurals, marks of lines, unambiguous marks of Markdown.
_LAYOUT = re.compile(
    r"""
    (?P<bar> (?<! [^\S\r\n] ) [^\S\r\n]++ \| (?! \| ) [^\S\r\n]++
            (?: (?: \{\d++\} | [\[\]] [\d*]++ , [\w*]++ [\[\]] ) [ ]++ )?+
        | (?<= \w ) \| (?= \w ) )
    | (?P<item> ^ [ \t]*+ (?: \#{1,6}+ | [-*+>\u2022] ) [ \t]++ (?= \S ) )
    | (?P<number> ^ [ \t]*+ \d{1,3}+ [.)] [ \t]++ (?= \S ) )
    | (?P<bold> \*\* )
    | (?P<link> \[ (?= [^\[\]\n]{1,200}+ \]\( [^()\s]{1,300}+ \) ) )
    | (?P<target> \]\( [^()\s]{1,300}+ \) )
    """,
    re.VERBOSE | re.MULTILINE,
)
_BETWEEN_KEYS = ("+", "-", " + ")
_LAYOUT_KINDS = {"bar": Kind.BREAK, "link": Kind.OPEN, "target": Kind.CLOSE}


def plain_text(text: str) -> SpannedText:
    """Return a text without markup, but for what programs write in strings: tags, HTML, marks of lines."""
    found = find(text)
    if any(text[start] in "<[" for start, _ in found) or _LAYOUT.search(text):
        return spanned(plain_tokens(text))
    return SpannedText(text, (), tuple(found))


def plain_tokens(text: str) -> list[Token]:
    """Return the tokens of a text without markup (`plain_text`); an element of code is one."""
    found = find(text)
    marks = [_tag_of(tag) for place in found if (tag := _TAG_IN_TEXT.fullmatch(text, *place))]
    marks += _layout(text, found)
    tokens = tokens_of(text, sorted(marks, key=lambda mark: mark[0]))
    ends = partners(tokens)
    paired = {*ends, *ends.values()}  # a tag without its other half is a placeholder
    whole: list[Token] = []
    at = 0
    while at < len(tokens):
        token, behind = tokens[at], at + 1
        if at in ends and token.name in UNTRANSLATED_ELEMENTS:
            behind = ends[at] + 1
            raw = "".join(part.raw for part in tokens[at:behind])
            if len(whole) > 1 and whole[-1].raw in _BETWEEN_KEYS and whole[-2].name == token.name:
                *whole, before, sign = whole  # Ctrl+C
                raw = before.raw + sign.raw + raw
            token = Token(Kind.POINT, raw, token.name)
        elif token.kind is not Kind.BREAK and token.name and at not in paired:
            token = Token(Kind.TEXT, token.raw)
        whole.append(token)
        at = behind
    return whole


def _tag_of(tag: re.Match[str]) -> Mark:
    name = tag["name"].lower()
    is_block = name in _BLOCKS and tag.group().startswith("<")
    return tag.span(), Kind.BREAK if is_block else Kind.of_tag(single=tag["single"], close=tag["close"]), name


def _layout(text: str, placeholders: Sequence[Range]) -> Iterator[Mark]:
    """Yield the marks of a text that are no tags; numbers begin its lines if several lines have a mark."""
    starts = [start for start, _ in placeholders]
    found = list(counted(_LAYOUT.finditer(text)))
    is_list = sum(match.lastgroup in ("item", "number") for match in found) > 1
    num_bold = 0
    for match in found:
        number, kind = bisect_right(starts, match.start()) - 1, match.lastgroup or ""
        is_inside = number >= 0 and match.start() < placeholders[number][1]
        if is_inside or (kind == "number" and not is_list):
            continue
        if kind == "bold":
            num_bold += 1
            yield match.span(), Kind.OPEN if num_bold % 2 else Kind.CLOSE, kind
        else:
            name = "link" if kind in ("link", "target") else ""
            yield match.span(), _LAYOUT_KINDS.get(kind, Kind.POINT), name


_UNSEEN = re.compile(r"<!--.*-->|<[!?].*>|</.*>|<(?!img|input)[^<>]*>", re.DOTALL)  # nothing that is shown
_LOW = re.compile(r"<sub[\s/>]", re.IGNORECASE)


def spanned(
    run: Sequence[Token], add_text: Callable[[Builder, Token], None] = lambda to, token: to.text(token.raw)
) -> SpannedText:
    """Return a run of text and inline tags as a text to translate.

    Args:
        run: the tokens in order.
        add_text: adds the characters of a token of text.
    """
    ends = partners(run)
    closing = frozenset(ends.values())
    builder = Builder()
    for index, token in enumerate(run):
        if token.kind is Kind.TEXT:
            add_text(builder, token)
        elif token.kind is Kind.BREAK:
            builder.point(token.raw, "break")
        elif index in ends:
            builder.open(token.raw, is_low=_LOW.match(token.raw) is not None)
        elif index in closing:
            builder.close(token.raw)
        else:
            builder.point(token.raw, _kind_of_point(token))
    return builder.source()


def _kind_of_point(token: Token) -> SpanKind:
    if token.raw[:4].lower() == "<wbr":
        return "wbr"
    if token.raw == "\\N":  # in subtitles
        return "break"
    is_shown = not _UNSEEN.fullmatch(token.raw)
    if token.kind is Kind.POINT and token.name and re.match(r"<\d", token.raw) is None:
        return "object" if is_shown else "tag"
    return "sign" if is_shown else "point"


_BEGIN_OF_TAG = re.compile("<(?=[A-Za-z/!?])")  # browsers look for its end behind the text
_ENTITY = re.compile(r"(&(?:\#\d+|\#[xX][0-9A-Fa-f]+|[A-Za-z]\w*);?)")


def entity_writer(
    run: Sequence[Token], tokens_of: Callable[[str], Sequence[Token]] = tokenize
) -> Callable[[SpannedText], str]:
    """Return a function that writes a translation with entities or bare characters, as in its source.

    A character that the source writes in several ways is written in the same order if the translation has it
    as often; otherwise by an entity if it needs one. If bare characters would become markup, for example in a
    translation with <b> of a source with a bare <, entities replace them.

    Args:
        run: the tokens of the source.
        tokens_of: returns the tokens of a translation as it is written.
    """
    raw = "".join(token.raw for token in run if token.kind is Kind.TEXT)
    if _escaped(html.unescape(raw)) == raw:
        return _with_entities
    pieces = _ENTITY.split(raw)
    of_entity = {html.unescape(piece) for piece in pieces if piece.startswith("&")}
    forms: dict[str, list[str]] = {}
    for piece in pieces:
        for form in [piece] if len(html.unescape(piece)) == 1 else piece:
            char = html.unescape(form)
            if char in of_entity or char in "&<>":
                forms.setdefault(char, []).append(form)
    return partial(_as_spelled, forms, tokens_of)


def _as_spelled(
    forms: Mapping[str, Sequence[str]],
    tokens_of: Callable[[str], Sequence[Token]],
    translation: SpannedText,
) -> str:
    def read(written: str) -> list[tuple[Kind, str]]:
        """Return what a reader of the format finds: characters, and markup as it is."""
        return [
            (token.kind, token.text if token.kind is Kind.TEXT else token.raw) for token in tokens_of(written)
        ]

    usual = _with_entities(translation)
    without_signs = {char: ways for char, ways in forms.items() if char not in "&<>"}
    for forms_of_chars in (forms, without_signs):
        new = markup(translation, partial(_spelled, spellings(forms_of_chars, translation.text)))
        if read(new) == read(usual):
            return new
    return usual


def _spelled(left: Mapping[str, Iterator[str]], text: str) -> str:
    written = "".join(next(left[char]) if char in left else _escaped(char) for char in text)
    return _BEGIN_OF_TAG.sub("&lt;", written)


def _escaped(text: str) -> str:
    return html.escape(text, quote=False)


def _with_entities(translation: SpannedText) -> str:
    return markup(translation, _escaped)
