"""From the tokens of HTML or XML to runs of text with inline tags, and what is between them."""

import html
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from heedful.serving.markup.marked_text import Document, MarkedText, Marker
from heedful.serving.markup.placeholders import find, with_placeholders
from heedful.serving.markup.tokens import Kind, Token, tokenize

# Elements that stand inside a sentence, besides those that a page defines itself (their names have a hyphen)
# and those with a number for a name; every other tag of HTML ends one.
_INLINE = frozenset({
    "a", "abbr", "acronym", "audio", "b", "bdi", "bdo", "big", "button", "canvas", "cite", "data",
    "del", "dfn", "em", "embed", "font", "i", "iframe", "img", "input", "ins", "label", "map", "mark",
    "meter", "nobr", "object", "output", "picture", "progress", "q", "ruby", "s", "select", "slot",
    "small", "span", "strike", "strong", "sub", "sup", "svg", "time", "tt", "u", "video", "wbr",
})  # fmt: skip
_UNTRANSLATED = frozenset({
    "code", "kbd", "samp", "var", "math", "svg", "script", "style", "textarea", "noscript", "template",
})  # fmt: skip
_PREFORMATTED = frozenset(("pre", "textarea", "listing"))
_BEFORE_XML = ("!DOCTYPE", "?xml")  # which stay where they are
_MAX_DEPTH = 50  # of inline elements inside each other; deeper ones are tags without content
_TAG_IN_TEXT = re.compile(r"<(?P<close>/?)(?P<name>[A-Za-z0-9][\w.-]*)[^<>]*?(?P<single>/?)>")
_BLANKS = re.compile(r"[\t\n\v\f\r\x1c-\x1e\x85\u2028\u2029]")


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
    inline, separate = _INLINE | _UNTRANSLATED | set(not_splitting), frozenset(splitting)

    def ends_sentence(name: str) -> bool:
        return name in separate or not (name in inline or "-" in name or name.isdecimal())

    return TagRules(ends_sentence, _UNTRANSLATED | set(ignored))


def xml_rules(*, splitting: Sequence[str] = (), ignored: Sequence[str] = ()) -> TagRules:
    """Return the rules of XML: tags stand inside sentences, but for those that are said to separate them."""
    separate = frozenset((*splitting, *_BEFORE_XML))
    return TagRules(separate.__contains__, frozenset(ignored), xml=True)


def plain_document(text: str) -> Document:
    """Return a text without markup, but for elements as libraries of translations write them (<0>cat</0>)."""
    tokens: list[Token] = []
    at = 0
    for start, end in find(text):
        tag = _TAG_IN_TEXT.match(text, start, end)
        if tag:
            tokens.append(Token(Kind.TEXT, text[at:start]))
            kind = Kind.POINT if tag["single"] else Kind.CLOSE if tag["close"] else Kind.OPEN
            tokens.append(Token(kind, text[start:end], tag["name"]))
            at = end
    tokens.append(Token(Kind.TEXT, text[at:]))
    partners = _partners(tokens)
    paired = {*partners, *partners.values()}
    texts = [
        each if index in paired else Token(Kind.TEXT, each.raw) for index, each in enumerate(tokens)
    ]  # a tag without its other half is a placeholder
    return Document([_marked(texts, lambda each: each.raw)], lambda each: each, [True])


def parse_document(text: str, rules: TagRules) -> Document:
    """Return a document of HTML or XML taken apart: every character is in one of its parts."""
    tokens = _with_whole_elements(tokenize(text, xml=rules.xml), rules)
    parts: list[str | MarkedText] = []
    lines_matter: list[bool] = []
    preformatted = 0
    run: list[Token] = []
    for token in [*tokens, None]:
        separates = token is None or (token.name != "" and rules.ends_sentence(token.name))
        if token is not None and not separates:
            run.append(token)
            continue
        if run:
            parts.append(_marked(run, _text if preformatted else _text_with_blanks))
            lines_matter.append(preformatted > 0)
            run = []
        if token is not None:
            parts.append(token.raw)
            lines_matter.append(False)
            if token.name in _PREFORMATTED and not rules.xml:
                preformatted += {Kind.OPEN: 1, Kind.CLOSE: -1}.get(token.kind, 0)
    return Document(parts, lambda each: html.escape(each, quote=False), lines_matter)


def _with_whole_elements(tokens: Sequence[Token], rules: TagRules) -> Iterator[Token]:
    """Yield the tokens, with each element that is not to be translated as one of them."""
    partners = _partners(tokens)
    at = 0
    while at < len(tokens):
        token = tokens[at]
        end = partners.get(at, at)
        if end > at and (token.untranslated or token.name in rules.untranslated):
            raw = "".join(each.raw for each in tokens[at : end + 1])
            yield Token(Kind.POINT, raw, token.name)
            at = end + 1
        else:
            yield token
            at += 1


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


def _marked(run: Sequence[Token], text_of: Callable[[Token], str]) -> MarkedText:
    """Return a run of text and inline tags as text with markers."""
    ends = _not_too_deep(_partners(run))
    starts = {end: start for start, end in ends.items()}
    markers: list[Marker] = []
    texts: list[str] = []
    length = 0
    for index, token in enumerate(run):
        if token.kind is Kind.TEXT:
            texts.append(text_of(token))
            length += len(texts[-1])
        elif index in ends:
            markers.append(Marker(length, token.raw, "open", index))
        elif index in starts:
            markers.append(Marker(length, token.raw, "close", starts[index]))
        else:
            markers.append(Marker(length, token.raw))
    return with_placeholders(MarkedText("".join(texts), tuple(markers)))
