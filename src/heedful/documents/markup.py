"""From the tokens of HTML or XML to runs of text with inline tags, and what is between them."""

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from operator import attrgetter

from heedful.documents.template import NO_BLANKS, Template, Unit, lined_unit
from heedful.documents.tokens import (
    ENDS_PARAGRAPH,
    UNTRANSLATED_ELEMENTS,
    Kind,
    Token,
    entity_writer,
    partners,
    tokenize,
)

# Elements that stand inside a sentence, besides those that a page defines itself (their names have a hyphen)
# and those with a number for a name; every other tag of HTML ends one.
_INLINE = frozenset({
    "a", "abbr", "acronym", "audio", "b", "bdi", "bdo", "big", "button", "canvas", "cite", "data",
    "del", "dfn", "em", "embed", "font", "i", "iframe", "img", "input", "ins", "label", "map", "mark",
    "meter", "nobr", "object", "output", "picture", "progress", "q", "ruby", "s", "select", "slot",
    "small", "span", "strike", "strong", "sub", "sup", "svg", "time", "tt", "u", "video", "wbr",
})  # fmt: skip
# Elements without a required end tag, and the start tags that end them; so does the end of what is around
# them (https://html.spec.whatwg.org, 13.1.2.4).
_CLOSED_BY = {
    "p": ENDS_PARAGRAPH,
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
_LINE_BREAKS = frozenset(("br", "linebreak"))  # as strings of programs and CommonMark's XML name them
_MAX_DEPTH = 50  # nesting of inline elements in which a block element is looked for
_SPACES = " \t\n\r\f"
_WITHIN_LINE = re.compile(r"[^\S\n\r]+")
_BLANKS = re.compile(
    r"(?P<line_end>(?<![ \t])[ \t]*+[\n\r][ \t\n\r]*+)|[\t\n\v\f\r\x1c-\x1e\x85\u2028\u2029]"
)


@dataclass(frozen=True)
class TagRules:
    """Which tags do what.

    Attributes:
        ends_sentence: whether a tag of that name separates sentences.
        untranslated: names of elements that are not translated.
        xml: whether names and contents have no meaning by themselves; in HTML they have one.
        in_outline: whether a tag of that name may separate sentences by its place in the document (see
            `_outline`); None: none does.
    """

    ends_sentence: Callable[[str], bool]
    untranslated: frozenset[str]
    xml: bool = False
    in_outline: Callable[[str], bool] | None = None


def html_rules(
    *, splitting: Sequence[str] = (), not_splitting: Sequence[str] = (), ignored: Sequence[str] = ()
) -> TagRules:
    """Return the rules of HTML; the arguments name further elements, as for `xml_rules`."""
    inline, separate = {*_INLINE, *UNTRANSLATED_ELEMENTS, *not_splitting, ""}, frozenset(splitting)

    def ends_sentence(name: str) -> bool:
        return name in separate or not (name in inline or "-" in name or name.isdecimal())

    return TagRules(ends_sentence, UNTRANSLATED_ELEMENTS | set(ignored))


def xml_rules(
    *,
    splitting: Sequence[str] = (),
    not_splitting: Sequence[str] = (),
    ignored: Sequence[str] = (),
    outline: bool = False,
) -> TagRules:
    """Return the rules of XML: tags are inside sentences, except the ones that separate them by name.

    Args:
        splitting: names of elements that separate sentences.
        not_splitting: names of elements that separate none, wherever they are.
        ignored: names of elements that are not translated.
        outline: whether elements without text beside them separate sentences (`_outline`).
    """
    inline = frozenset(not_splitting)
    separate = _LINE_BREAKS - inline | {*splitting, *_BEFORE_XML}
    return TagRules(
        separate.__contains__,
        frozenset(ignored),
        xml=True,
        in_outline=(lambda name: name not in inline) if outline else None,
    )


def read_text(text: str, rules: TagRules | None) -> Template:
    """Return a text to translate, with the rules of its markup; None: it has none."""
    units = Template()
    parts = [units.refer(Unit(text, str))] if rules is None else read_markup(text, rules, units)
    return units.filled(parts)


def read_markup(
    text: str,
    rules: TagRules,
    units: Template,
    *,
    tag: Callable[[Token], str] = attrgetter("raw"),
) -> Iterator[str]:
    """Yield the parts of HTML or XML, with references to its texts.

    Args:
        text: the document, or a part of one.
        rules: what its tags do.
        units: the list to which the texts are added.
        tag: a function that returns the text to write for a token.
    """
    tokens = tokenize(text, xml=rules.xml)
    if not rules.xml:
        tokens = without_ruby(tokens)
    ends = partners(tokens) if rules.xml else partners(tokens) | _implied_ends(tokens)
    separators = {len(tokens)}
    if rules.in_outline:
        separators |= _outline(tokens, rules.in_outline)
    preformatted = 0
    run: list[Token] = []
    for index, read in chain(_whole(tokens, range(len(tokens)), ends, rules), [(len(tokens), _END)]):
        token = replace(read, raw=tag(read))
        if index not in separators and not rules.ends_sentence(token.name):
            run.append(token)
            continue
        if any(map(_has_text, run)):
            before, run, behind = ("", run, "") if preformatted else _without_edges(_with_item_mark(run))
            unit = lined_unit(
                run,
                NO_BLANKS if preformatted else _BLANKS,
                text_of=attrgetter("text"),
                written=entity_writer(run, partial(tokenize, xml=rules.xml)),
            )
            yield from (before, units.refer(unit), behind)
        else:
            yield _raw(run)
        run = []
        yield token.raw
        if token.name in _PREFORMATTED and not rules.xml:
            preformatted += {Kind.OPEN: 1, Kind.CLOSE: -1}.get(token.kind, 0)


_END = Token(Kind.POINT, "")


def _raw(tokens: Sequence[Token]) -> str:
    return "".join(token.raw for token in tokens)


def _outline(tokens: Sequence[Token], may_separate: Callable[[str], bool]) -> frozenset[int]:
    """Return the indices of the tags of elements of XML that have siblings, and no text beside them.

    Elements with a blank between them, for example bold words, are running text if elements of that name have
    text beside them elsewhere.
    """
    start_of = {end: start for start, end in partners(tokens).items()}
    open_elements = [-1]  # the document first
    parents: dict[int, int] = {}  # the index of the element that a tag stands in
    num_inside = Counter[int]()
    with_text, with_blanks = set[int](), set[int]()
    for index, token in enumerate(tokens):
        if token.kind is Kind.TEXT:
            if any(map(str.isalnum, token.text)):
                with_text.add(open_elements[-1])
            elif _WITHIN_LINE.fullmatch(token.raw):
                with_blanks.add(open_elements[-1])
        elif index in start_of:
            while open_elements.pop() != start_of[index]:
                pass
            parents[index] = open_elements[-1]
        elif token.name and token.kind is not Kind.CLOSE:
            parents[index] = open_elements[-1]
            num_inside[open_elements[-1]] += 1
            if token.kind is Kind.OPEN:
                open_elements.append(index)
    inline = {tokens[index].name for index, parent in parents.items() if parent in with_text}
    running = {parent for index, parent in parents.items() if tokens[index].name in inline}
    kept = with_text | (with_blanks & running)
    return frozenset(
        index
        for index, parent in parents.items()
        if parent not in kept and num_inside[parent] > 1 and may_separate(tokens[index].name)
    )


def without_ruby(tokens: list[Token]) -> list[Token]:
    """Return tokens of HTML or WebVTT without ruby but for its bases: how the source is pronounced goes."""
    if not any(token.name == "ruby" for token in tokens):
        return tokens
    ends = partners(tokens) | _implied_ends(tokens)
    behind_ruby = {start: end for start, end in ends.items() if tokens[start].name == "ruby"}
    kept: list[Token] = []
    at = end_of_ruby = 0
    while at < len(tokens):
        name, end = tokens[at].name, at
        end_of_ruby = max(end_of_ruby, behind_ruby.get(at, 0))
        if at < end_of_ruby and name in _PRONOUNCED:
            end = min(ends.get(at, at), end_of_ruby - 1)
        elif at > end_of_ruby or name not in ("ruby", "rb"):
            kept.append(tokens[at])
        at = end + 1
    return kept


def _has_text(token: Token) -> bool:
    return token.kind is Kind.TEXT and any(map(str.isalpha, token.text))


# The number or the sign of an item in a page of Word, before blanks in an element of their own.
_ITEM_MARK = re.compile(r"\s*(?:[^\W_]{1,4}|[\d.]{1,12}|[^\w\s]{0,2})[.)]?\s*")
_ITEM_BLANKS = re.compile(r"(?:(?:&nbsp;|&#160;|\xa0)[ \t\r\n]*)+")


def _with_item_mark(run: list[Token]) -> list[Token]:
    """Return a run with the mark of an item as one token: `1.<span>&nbsp;&nbsp; </span>`."""
    texts = [at for at, token in enumerate(run) if token.kind is Kind.TEXT and token.raw.strip()]
    match texts[:2]:
        case [mark, blanks] if mark + 2 == blanks < len(run) - 1 and run[blanks + 1].kind is Kind.CLOSE:
            is_mark = _ITEM_MARK.fullmatch(run[mark].text) and _ITEM_BLANKS.fullmatch(run[blanks].raw)
            if is_mark:
                whole = Token(Kind.POINT, _raw(run[mark : blanks + 2]))
                return [*run[:mark], whole, *run[blanks + 2 :]]
    return run


def _without_edges(run: Sequence[Token]) -> tuple[str, list[Token], str]:
    """Return the white space before a run of tokens, the run without it, and the white space after it."""
    first = replace(run[0], raw=run[0].raw.lstrip(_SPACES))
    before = run[0].raw.removesuffix(first.raw)
    *tokens, last = first, *run[1:]
    core = last.raw.rstrip(_SPACES)
    tokens.append(replace(last, raw=core))
    return before, [token for token in tokens if token.raw], last.raw[len(core) :]


def _whole(
    tokens: Sequence[Token], indices: range, ends: Mapping[int, int], rules: TagRules
) -> Iterator[tuple[int, Token]]:
    """Yield tokens with their indices; an untranslated element is one token."""
    at = indices.start
    while at < indices.stop:
        token, end = tokens[at], ends.get(at, at)
        if end > at and (token.translated is False or token.name in rules.untranslated):
            yield from _kept(tokens, range(at, end + 1), ends, rules)
            at = end + 1
        else:
            yield at, token
            at += 1


def _kept(
    tokens: Sequence[Token], indices: range, ends: Mapping[int, int], rules: TagRules
) -> Iterator[tuple[int, Token]]:
    """Yield an untranslated element, and separately the elements inside it that are marked as translated."""
    name, start = tokens[indices.start].name, indices.start
    at = start + 1
    while at < indices.stop:
        end = ends.get(at, at)
        if end > at and tokens[at].translated and end < indices.stop:
            yield indices.start, Token(Kind.POINT, _raw(tokens[start:at]), name)
            yield from _whole(tokens, range(at, end + 1), ends, rules)
            start = at = end + 1
        else:
            at += 1
    yield indices.start, Token(Kind.POINT, _raw(tokens[start : indices.stop]), name)


def _implied_ends(tokens: Sequence[Token]) -> dict[int, int]:
    """Return the index of the last token of each element of HTML that needs no end tag."""
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
        blocks = (around for around in names if around not in _INLINE)
        return name in _CLOSED_BY.get(next(blocks, ""), ())

    for index, token in enumerate(tokens):
        while (token.kind is Kind.OPEN or token.name == "hr") and is_closed_by(token.name):
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
