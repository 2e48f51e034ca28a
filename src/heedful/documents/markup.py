"""From the tokens of HTML or XML to runs of text with inline tags, and what is between them."""

import html
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from heedful.documents.marked_text import (
    Document,
    MarkedText,
    Marker,
    find,
    with_placeholders,
)
from heedful.documents.tokens import Kind, Token, tokenize

# Elements that stand inside a sentence, besides those that a page defines itself (their names have a hyphen)
# and those with a number for a name; every other tag of HTML ends one.
_INLINE = frozenset({
    "a", "abbr", "acronym", "audio", "b", "bdi", "bdo", "big", "button", "canvas", "cite", "data",
    "del", "dfn", "em", "embed", "font", "i", "iframe", "img", "input", "ins", "label", "map", "mark",
    "meter", "nobr", "object", "output", "picture", "progress", "q", "ruby", "s", "select", "slot",
    "small", "span", "strike", "strong", "sub", "sup", "svg", "time", "tt", "u", "video", "wbr",
})  # fmt: skip
_UNTRANSLATED_ELEMENTS = frozenset({
    "code", "kbd", "samp", "var", "math", "svg", "script", "style", "textarea", "noscript", "template",
})  # fmt: skip
# Elements whose end tag may be omitted, and the start tags that end them; so does the end of what is around
# them (https://html.spec.whatwg.org, 13.1.2.4).
_ENDS_PARAGRAPH = frozenset({
    "address", "article", "aside", "blockquote", "details", "dialog", "div", "dl", "fieldset",
    "figcaption", "figure", "footer", "form", "h1", "h2", "h3", "h4", "h5", "h6", "header", "hgroup",
    "hr", "main", "menu", "nav", "ol", "p", "pre", "search", "section", "table", "ul",
})  # fmt: skip
_CLOSED_BY = {
    "p": _ENDS_PARAGRAPH,
    "li": frozenset(("li",)),
    "dt": frozenset(("dt", "dd")),
    "dd": frozenset(("dt", "dd")),
    "td": frozenset(("td", "th", "tr", "tbody", "tfoot")),
    "th": frozenset(("td", "th", "tr", "tbody", "tfoot")),
    "tr": frozenset(("tr", "tbody", "tfoot")),
    "thead": frozenset(("tbody", "tfoot")),
    "tbody": frozenset(("tbody", "tfoot")),
    "tfoot": frozenset(),
    "option": frozenset(("option", "optgroup", "hr")),
    "optgroup": frozenset(("optgroup", "hr")),
    "rb": frozenset(("rt", "rp", "rb", "rtc")),
    "rt": frozenset(("rt", "rp", "rb", "rtc")),
    "rp": frozenset(("rt", "rp", "rb", "rtc")),
}
_PRONOUNCED = frozenset(("rt", "rp", "rtc"))
_PREFORMATTED = frozenset(("pre", "textarea", "listing"))
_BEFORE_XML = ("!DOCTYPE", "?xml")  # which stay where they are
_MAX_DEPTH = 50  # of inline elements inside each other; deeper ones are tags without content
_TAG_IN_TEXT = re.compile(r"<(?P<close>/?)(?P<name>[A-Za-z0-9][\w.-]*).*?(?P<single>/?)>", re.DOTALL)
_MAX_MARK = 12  # characters, and tokens, of a mark
_SPACES = " \t\n\r\f"
_BLANKS = re.compile(r"[ \t]*+[\n\r][ \t\n\r]*+|[\t\n\v\f\r\x1c-\x1e\x85\u2028\u2029]")


@dataclass(frozen=True)
class TagRules:
    """Which tags do what.

    Attributes:
        ends_sentence: whether a tag of that name separates sentences.
        untranslated: names of elements whose content stays as it is.
        xml: whether names and contents have no meaning of their own, as in HTML.
    """

    ends_sentence: Callable[[str], bool]
    untranslated: frozenset[str]
    xml: bool = False


def html_rules(
    *, splitting: Sequence[str] = (), not_splitting: Sequence[str] = (), ignored: Sequence[str] = ()
) -> TagRules:
    """Return the rules of HTML, with other tags that separate sentences, do not, or are not translated."""
    inline, separate = _INLINE | _UNTRANSLATED_ELEMENTS | set(not_splitting), frozenset(splitting)

    def ends_sentence(name: str) -> bool:
        return name in separate or not (name in inline or "-" in name or name.isdecimal())

    return TagRules(ends_sentence, _UNTRANSLATED_ELEMENTS | set(ignored))


def xml_rules(*, splitting: Sequence[str] = (), ignored: Sequence[str] = ()) -> TagRules:
    """Return the rules of XML: tags stand inside sentences, but for those that are said to separate them."""
    separate = frozenset((*splitting, *_BEFORE_XML))
    return TagRules(separate.__contains__, frozenset(ignored), xml=True)


_LINES_MATTER = (True,)


def plain_document(text: str) -> Document:
    """Return a text without markup, but for elements as libraries of translations write them (<0>cat</0>)."""
    tokens: list[Token] = []
    at = 0
    placeholders = find(text)
    for start, end in placeholders:
        tag = _TAG_IN_TEXT.fullmatch(text, start, end)
        if tag:
            tokens.append(Token(Kind.TEXT, text[at:start]))
            kind = Kind.POINT if tag["single"] else Kind.CLOSE if tag["close"] else Kind.OPEN
            tokens.append(Token(kind, text[start:end], tag["name"]))
            at = end
    if not tokens:
        return Document((MarkedText(text, (), tuple(placeholders)),), str, _LINES_MATTER)
    tokens.append(Token(Kind.TEXT, text[at:]))
    partners = _partners(tokens)
    paired = {*partners, *partners.values()}
    texts = [
        each if index in paired else Token(Kind.TEXT, each.raw) for index, each in enumerate(tokens)
    ]  # a tag without its other half is a placeholder
    return Document((marked_run(texts, lambda each: each.raw),), str, _LINES_MATTER)


def parse_document(text: str, rules: TagRules, *, tag: Callable[[Token], str] | None = None) -> Document:
    """Return a document of HTML or XML taken apart: every character is in one of its parts.

    Args:
        text: the document.
        rules: of its tags.
        tag: returns what is written for a token; None: the token.
    """
    tokens = tokenize(text, xml=rules.xml)
    if not rules.xml:
        tokens = _without_ruby(tokens)
    tokens = list(_with_whole_elements(tokens, rules))
    if tag is not None:
        tokens = [replace(each, raw=raw) if (raw := tag(each)) != each.raw else each for each in tokens]
    parts: list[str | MarkedText] = []
    raws: list[str] = []
    lines_matter: list[bool] = []
    preformatted = 0
    run: list[Token] = []
    for token in [*tokens, None]:
        separates = token is None or (token.name != "" and rules.ends_sentence(token.name))
        if token is not None and not separates:
            run.append(token)
            continue
        if run and not any(map(_has_text, run)):
            parts.append("".join(each.raw for each in run))
            raws.append("")
            lines_matter.append(preformatted > 0)
        elif run:
            before, run, behind = ("", run, "") if preformatted else _without_edges(run)
            marked = [marked_run(run, _text if preformatted else _text_with_blanks)] if run else []
            own: list[str | MarkedText] = [*filter(None, [before]), *marked, *filter(None, [behind])]
            parts += own
            raws += [each if isinstance(each, str) else "".join(token.raw for token in run) for each in own]
            lines_matter += [preformatted > 0] * len(own)
        run = []
        if token is not None:
            parts.append(token.raw)
            raws.append("")
            lines_matter.append(False)
            if token.name in _PREFORMATTED and not rules.xml:
                preformatted += {Kind.OPEN: 1, Kind.CLOSE: -1}.get(token.kind, 0)
    return Document(parts, lambda each: html.escape(each, quote=False), lines_matter, raws)


def _without_ruby(tokens: list[Token]) -> list[Token]:
    """Return tokens of HTML without ruby but for its bases: how the source is pronounced goes."""
    if not any(each.name == "ruby" for each in tokens):
        return tokens
    ends = _partners(tokens) | _implied_ends(tokens)
    behind_ruby = {start: end for start, end in ends.items() if tokens[start].name == "ruby"}
    kept: list[Token] = []
    at = end_of_ruby = 0
    while at < len(tokens):
        token = tokens[at]
        end_of_ruby = max(end_of_ruby, behind_ruby.get(at, 0))
        if at in behind_ruby or (at <= end_of_ruby and token.name in ("ruby", "rb")):
            at += 1
        elif at < end_of_ruby and token.name in _PRONOUNCED:
            at = min(ends.get(at, at), end_of_ruby - 1) + 1
        else:
            kept.append(token)
            at += 1
    return kept


def _has_text(token: Token) -> bool:
    return token.kind is Kind.TEXT and any(map(str.isalpha, token.text))


def _without_edges(run: Sequence[Token]) -> tuple[str, list[Token], str]:
    """Return the white space before a run of tokens, the run without it, and the white space behind it."""
    tokens = list(run)
    before = behind = ""
    if tokens[0].kind is Kind.TEXT:
        raw = tokens[0].raw
        core = raw.lstrip(_SPACES)
        before, tokens[0] = raw[: len(raw) - len(core)], Token(Kind.TEXT, core)
    if tokens[-1].kind is Kind.TEXT:
        raw = tokens[-1].raw
        core = raw.rstrip(_SPACES)
        behind, tokens[-1] = raw[len(core) :], Token(Kind.TEXT, core)
    return before, [each for each in tokens if each.raw], behind


def _with_whole_elements(tokens: Sequence[Token], rules: TagRules) -> Iterator[Token]:
    """Yield the tokens, with each element that is not to be translated as one of them."""
    ends = _partners(tokens) if rules.xml else _partners(tokens) | _implied_ends(tokens)
    yield from _whole(tokens, range(len(tokens)), ends, rules)


def _whole(
    tokens: Sequence[Token], indices: range, ends: Mapping[int, int], rules: TagRules
) -> Iterator[Token]:
    at = indices.start
    while at < indices.stop:
        token, end = tokens[at], ends.get(at, at)
        if end > at and (token.translated is False or token.name in rules.untranslated):
            yield from _kept(tokens, range(at, end + 1), ends, rules)
            at = end + 1
        else:
            yield token
            at += 1


def _kept(
    tokens: Sequence[Token], indices: range, ends: Mapping[int, int], rules: TagRules
) -> Iterator[Token]:
    """Yield an element that is not to be translated, but for elements inside that say that they are."""
    name, start = tokens[indices.start].name, indices.start
    at = start + 1
    while at < indices.stop:
        end = ends.get(at, at)
        if end > at and tokens[at].translated and end < indices.stop:
            yield Token(Kind.POINT, "".join(each.raw for each in tokens[start:at]), name)
            yield from _whole(tokens, range(at, end + 1), ends, rules)
            start = at = end + 1
        else:
            at += 1
    yield Token(Kind.POINT, "".join(each.raw for each in tokens[start : indices.stop]), name)


def _partners(tokens: Sequence[Token]) -> dict[int, int]:
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


def _implied_ends(tokens: Sequence[Token]) -> dict[int, int]:
    """Return the index of the last token of each element of HTML whose end tag may be omitted."""
    ends: dict[int, int] = {}
    open_elements: list[int] = []
    num_open: Counter[str] = Counter()

    def leave(last: int) -> None:
        start = open_elements.pop()
        num_open[tokens[start].name] -= 1
        if tokens[start].name in _CLOSED_BY:
            ends[start] = last

    def is_closed_by(name: str) -> bool:
        """Return whether a start tag ends the last element, or the one around it and its inline elements."""
        names = (tokens[start].name for start in open_elements[: -_MAX_DEPTH - 1 : -1])
        return name in _CLOSED_BY.get(next((each for each in names if each not in _INLINE), ""), ())

    for index, token in enumerate(tokens):
        if token.kind is Kind.OPEN or token.name == "hr":
            while is_closed_by(token.name):
                leave(index - 1)
        if token.kind is Kind.OPEN:
            open_elements.append(index)
            num_open[token.name] += 1
        elif token.kind is Kind.CLOSE and num_open[token.name]:
            while tokens[open_elements[-1]].name != token.name:
                leave(index - 1)
            leave(index)
    while open_elements:
        leave(len(tokens) - 1)
    return ends


def _not_too_deep(ends: Mapping[int, int]) -> dict[int, int]:
    """Return the elements that are inside at most `_MAX_DEPTH` others."""
    end_of_start: dict[int, int] = {}
    around: list[int] = []
    for start, end in sorted(ends.items()):
        while around and around[-1] < start:
            around.pop()
        around.append(end)
        if len(around) <= _MAX_DEPTH:
            end_of_start[start] = end
    return end_of_start


def _text(token: Token) -> str:
    return token.text


def _text_with_blanks(token: Token) -> str:
    """Return the text of a token, with blanks for line ends but in placeholders."""
    text = token.text
    if not _BLANKS.search(text):
        return text
    texts: list[str] = []
    at = 0
    for start, end in find(text):
        texts += [_BLANKS.sub(" ", text[at:start]), text[start:end]]
        at = end
    return "".join([*texts, _BLANKS.sub(" ", text[at:])])


# What goes with the word before it, and which letters and signs are before and behind.
_MARK = re.compile(r"[*\u00a7\u00b6]|[^\w\s&<>]*\d[^\s&<>A-Za-z]*")
_BEFORE_NUMBER = re.compile(r"(?:[^\W\d_]|[^\d\s][.,;:!?)\]}»”’'\"])\Z")
_LOW = re.compile(r"<sub[\s/>\d]", re.IGNORECASE)


class _Marks:
    """Finds elements that are no part of a word but go with the one before: book<sup>1</sup>, m<sup>2</sup>.

    A low number is a part of it (CO<sub>2</sub>), and so is one with letters behind it.
    """

    def __init__(
        self, run: Sequence[Token], ends: Mapping[int, int], text_of: Callable[[Token], str]
    ) -> None:
        self._run, self._ends, self._text_of = run, ends, text_of

    def is_mark(self, start: int, before: Sequence[str]) -> bool:
        """Return whether the element that begins with a token is one.

        Args:
            start: index of the token.
            before: the texts before it.
        """
        end = self._ends[start]
        if end - start > _MAX_MARK or _LOW.match(self._run[start].raw):
            return False
        text = "".join(map(self._text_of, self._texts(range(start, end))))
        if not 0 < len(text) <= _MAX_MARK or not (_MARK.fullmatch(text) or find(text) == [(0, len(text))]):
            return False
        last = "".join(before[-3:])[-2:]
        if any(map(str.isdigit, text)):
            behind = next(self._texts(range(end, len(self._run))), None)
            is_free = behind is None or not self._text_of(behind)[:1].isalnum()
            return is_free and _BEFORE_NUMBER.search(last) is not None
        return last[-1:].isalnum() and not any(map(str.isalnum, text)) and not set(text) & set("&<>")

    def end_of_blank(self, start: int, before: Sequence[str]) -> int:
        """Return the index behind tags without content that are all there is between two words; 0: none."""
        end = start
        while end < len(self._run) and _is_between_words(self._run[end]):
            end += 1
        if end == start or end == len(self._run) or self._run[end].kind is not Kind.TEXT:
            return 0
        last = before[-1][-1:] if before else ""
        is_between = last.isalnum() and self._text_of(self._run[end])[:1].isalnum()
        return (
            end
            if is_between or (last in (".", "!", "?") and self._text_of(self._run[end])[:1].isalpha())
            else 0
        )

    def _texts(self, indices: range) -> Iterator[Token]:
        return (self._run[at] for at in indices if self._run[at].kind is Kind.TEXT and self._run[at].raw)


def _is_between_words(token: Token) -> bool:
    """Return whether a tag separates words: not a place for a line end, nor a code without width."""
    is_tag = token.kind is Kind.POINT and token.name not in ("", "wbr")
    return is_tag and re.match(r"<\d", token.raw) is None


def marked_run(run: Sequence[Token], text_of: Callable[[Token], str]) -> MarkedText:
    """Return a run of text and inline tags as text with markers."""
    ends = _not_too_deep(_partners(run))
    starts = {end: start for start, end in ends.items()}
    markers: list[Marker] = []
    texts: list[str] = []
    length = behind_mark = 0
    marks = _Marks(run, ends, text_of)
    for index, token in enumerate(run):
        if index < behind_mark:  # a part of the last marker
            continue
        if index in ends and marks.is_mark(index, texts):
            behind_mark = ends[index] + 1
            markers.append(Marker(length, "".join(each.raw for each in run[index:behind_mark]), "mark"))
        elif token.kind is Kind.POINT and (behind_mark := marks.end_of_blank(index, texts)):
            markers.append(Marker(length, "".join(each.raw for each in run[index:behind_mark]), "blank"))
            texts.append(" ")
            length += 1
        elif token.kind is Kind.TEXT:
            texts.append(text_of(token))
            length += len(texts[-1])
        elif index in ends:
            markers.append(Marker(length, token.raw, "open", index))
        elif index in starts:
            markers.append(Marker(length, token.raw, "close", starts[index]))
        else:
            markers.append(Marker(length, token.raw))
    return with_placeholders(MarkedText("".join(texts), tuple(markers)))
