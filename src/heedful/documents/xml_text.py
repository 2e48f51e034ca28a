"""XML as a text with units: expat checks it and says where each tag begins, so that all else stays as it is.

Only what is inside a unit becomes a tree. Nothing that a document declares is expanded or loaded.
"""

import html
import re
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import ClassVar
from xml.parsers import expat

from heedful.documents.template import Template
from heedful.documents.tokens import attribute_in
from heedful.errors import InputError
from heedful.spans.reading import MANY, WATCH, counted
from heedful.spans.spanned_text import SpannedText, markup
from heedful.text.xml_parser import parser_of_xml

_BLOCK = 2**20  # bytes
_MAX_DEPTH = 200  # nesting of elements
_MAX_BYTES = 256 * 2**20
# Characters that no document of XML may have.
NO_XML = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff]")


@dataclass(frozen=True, slots=True)
class Chars:
    """Characters between tags: text, or a comment or an instruction, which have none.

    Attributes:
        verbatim: the characters as written.
        text: the text that they stand for.
    """

    verbatim: str
    text: str = ""
    name: ClassVar[str] = ""  # of no element


@dataclass(frozen=True, slots=True)
class Element:
    """An element inside a unit.

    Attributes:
        name: the name, with the prefix that the rules have for its namespace.
        attributes: the attributes by local name.
        opening: its start tag, as written.
        closing: its end tag; "" if the start tag is all.
        children: the children in order.
    """

    name: str
    attributes: Mapping[str, str]
    opening: str
    closing: str = ""
    children: "list[Element | Chars]" = field(default_factory=list)

    @property
    def text(self) -> str:
        """All text in the element."""
        return "".join(child.text for child in self.children)

    @property
    def inner(self) -> str:
        """The children as written."""
        return "".join(child.verbatim for child in self.children)

    @property
    def verbatim(self) -> str:
        """The element as written."""
        return self.holding(self.inner)

    def holding(self, *parts: str) -> str:
        """Return the element as written, with other content."""
        return "".join([self.opening, *parts, self.closing])

    @property
    def prefix(self) -> str:
        """The prefix as written, with its colon; "" if there is none."""
        return re.sub(r"(?s)<([^\s/>]*:)?.*", r"\1", self.opening)


TagChange = Callable[[str, str], str]  # of a start tag, as written, and the name of its element


@dataclass(frozen=True)
class XmlRules:
    """The rules that say what is text in documents of a format.

    Attributes:
        prefixes: the prefix for each namespace of the format.
        units: the function for each name of an element; it returns the text to write, with references.
        attributes: the attributes with text, for each name of an element.
        tags: the changes of start tags, for each name of an element.
        skipped: names of elements in which nothing is text.
        may_declare: whether a document type is allowed; entities never are.
    """

    prefixes: Mapping[str, str]
    units: "Mapping[str, Callable[[Element, XmlReader], str]]"
    attributes: Mapping[str, Sequence[str]] = field(default_factory=dict)
    tags: Mapping[str, TagChange] = field(default_factory=dict)
    skipped: frozenset[str] = frozenset()
    may_declare: bool = False

    def read(self, text: str) -> Template:
        """Return a document with references to its units; see `XmlReader.read`."""
        return XmlReader(self).read(text)


_OTHER_EVENTS = (
    "Default", "Comment", "ProcessingInstruction", "StartCdataSection", "EndCdataSection", "XmlDecl",
    "StartDoctypeDecl",
)  # fmt: skip


_TRANSLATED = {"yes": True, "no": False}


def _refuse_doctype(*_: object) -> None:
    raise InputError("damaged XML: it declares a document type, which this format does not allow")


class XmlReader:
    """Reads one document."""

    def __init__(self, rules: XmlRules) -> None:
        self.units = Template()
        self.keeps_space = False  # in the element that ends (xml:space)
        self._rules, self._watch = rules, WATCH.get()
        self._num_elements = self._start = 0
        self._parts: list[str] = []
        self._open: list[Element] = []  # in a unit
        self._text: list[tuple[str, str]] = []  # the last characters, in pieces: as written, and as read
        # Of each open element: whether text is translated in it, and whether white space is kept.
        self._states: list[tuple[bool, bool]] = [(True, False)]
        # What is done with the last event. Its text ends where the next event begins.
        self._last: Callable[[str], None] = lambda raw: None

    def read(self, text: str) -> Template:
        """Return the document with references to its units.

        Raises:
            InputError: it is not well-formed, declares entities, or is too deep or too large.
        """
        data = text.encode()
        if len(data) > _MAX_BYTES:
            raise InputError(f"XML of {len(data):,} bytes; at most {_MAX_BYTES:,} are read")

        parser = parser_of_xml("utf-8")

        def follow(event: Callable[[str], None]) -> None:
            at = parser.CurrentByteIndex
            self._last(data[self._start : at].decode())
            self._start, self._last = at, event

        parser.StartElementHandler = lambda name, own: follow(lambda raw: self._opened(name, own, raw))
        parser.EndElementHandler = lambda _: follow(self._closed)
        parser.CharacterDataHandler = lambda text: follow(lambda raw: self._chars(raw, text))
        for name in _OTHER_EVENTS:
            setattr(parser, f"{name}Handler", lambda *_: follow(lambda raw: self._chars(raw, "")))
        if not self._rules.may_declare:
            parser.StartDoctypeDeclHandler = _refuse_doctype
        _parse(parser, data)
        self._last(data[self._start :].decode())
        return self.units.filled(self._parts)

    def raw(self, node: Element | Chars) -> str:
        """Return what is written for a node, with references to the units in it."""
        if isinstance(node, Chars) or node.name in self._rules.skipped:
            return node.verbatim
        if node.attributes.get("translate") == "no":
            return node.verbatim
        if node.name in self._rules.units:
            return self._rules.units[node.name](node, self)
        return self.opening(node) + self.written(node.children) + node.closing

    def written(self, nodes: "Iterable[Element | Chars]") -> str:
        """Return what is written for nodes, one after the other."""
        return "".join(map(self.raw, nodes))

    def take_before(self, content: str) -> bool:
        """Remove what was written last, if it is this and only white space follows; return whether it is."""
        ends = (at for at in reversed(range(len(self._parts))) if not self._parts[at].isspace())
        at = next(ends)  # a document begins with a tag
        is_last = self._parts[at] == content
        if is_last:
            self._parts[at] = ""
        return is_last

    def opening(self, node: Element) -> str:
        """Return the start tag of a node, with references to the units in its attributes."""
        tag = node.opening
        for name in self._rules.attributes.get(node.name, ()):
            value = node.attributes.get(name, "")
            tag = with_value(tag, name, partial(self.units.plain, value, escape=as_attribute))
        change = self._rules.tags.get(node.name)
        return change(tag, node.name) if change else tag

    def _opened(self, full_name: str, attributes: Mapping[str, str], raw: str) -> None:
        self._end_text()
        if len(self._states) > _MAX_DEPTH:
            raise InputError(f"damaged XML: more than {_MAX_DEPTH} elements in each other")
        namespace, _, name = full_name.rpartition(" ")
        prefix = self._rules.prefixes.get(namespace, namespace)
        name = f"{prefix}:{name}".removeprefix(":")
        attributes = _without_namespaces(attributes)
        is_translated, keeps_space = self._states[-1]
        if not self._open:
            is_translated = _TRANSLATED.get(attributes.get("translate", ""), is_translated)
        is_translated = is_translated and name not in self._rules.skipped
        if space := attributes.get("space"):
            keeps_space = space == "preserve"
        self._states.append((is_translated, keeps_space))
        element = Element(name, attributes, raw)
        if self._open or (is_translated and name in self._rules.units):
            self._open.append(element)
            self._num_elements += 1
            if self._num_elements % MANY == 0:
                self._watch(0, MANY)
        else:
            self._parts.append(self.opening(element) if is_translated else raw)

    def _closed(self, raw: str) -> None:
        self._end_text()
        self.keeps_space = self._states.pop()[1]
        if not self._open:
            self._parts.append(raw)
            return
        element = replace(self._open.pop(), closing=raw)
        if self._open:
            self._open[-1].children.append(element)
        else:
            self._parts.append(self.raw(element))

    def _chars(self, raw: str, text: str) -> None:
        if not self._open:
            self._parts.append(raw)
        elif text:
            self._text.append((raw, text))
        else:
            self._end_text()
            self._open[-1].children.append(Chars(raw))

    def _end_text(self) -> None:
        if self._text:
            self._open[-1].children.append(Chars(*map("".join, zip(*self._text, strict=True))))
            self._text.clear()


def _parse(parser: expat.XMLParserType, data: bytes, *, is_last: bool = True) -> None:
    try:
        parser.Parse(data, is_last)
    except expat.ExpatError as error:
        raise InputError(f"damaged XML: {error}") from None


def tags_of(package: zipfile.ZipFile, name: str) -> Iterator[tuple[str, dict[str, str]]]:
    """Yield the local names of the elements of a part of a package, and their attributes by local name.

    Raises:
        InputError: it is not well-formed, or declares entities.
    """
    tags: list[tuple[str, dict[str, str]]] = []
    parser = parser_of_xml()
    parser.StartElementHandler = lambda name, own: tags.append(
        (name.rpartition(" ")[2], _without_namespaces(own))
    )
    with package.open(name) as file:
        block = b" "
        while block:  # a list of all tags would take 30 times the memory
            block = file.read(_BLOCK)
            _parse(parser, block, is_last=not block)
            yield from counted(tags)
            tags.clear()


def _without_namespaces(attributes: Mapping[str, str]) -> dict[str, str]:
    return {name.rpartition(" ")[2]: value for name, value in attributes.items()}


def with_value(tag: str, name: str, written: Callable[[str], str]) -> str:
    """Return a start tag with what a function returns for the value of an attribute, if it has that."""
    attribute = attribute_in(tag, name)
    if attribute is None:
        return tag
    start, end = attribute.span(attribute.lastgroup or 0)
    return tag[:start] + written(tag[start:end]) + tag[end:]


def with_attribute(tag: str, name: str, value: str) -> str:
    """Return a start tag with a value of an attribute, which it may not have had."""
    if attribute_in(tag, name.rpartition(":")[2]) is not None:
        return with_value(tag, name.rpartition(":")[2], lambda _: value)
    return re.sub(r"(?=\s*/?>\Z)", f' {name}="{value}"', tag, count=1)


def without_attribute(tag: str, name: str) -> str:
    """Return a start tag without an attribute."""
    attribute = attribute_in(tag, name)
    return tag if attribute is None else tag[: attribute.start()] + tag[attribute.end() :]


def elements(node: Element, *names: str) -> list[Element]:
    """Return the elements in an element: all, or those with one of these names."""
    found = [child for child in node.children if isinstance(child, Element)]
    return [child for child in found if child.name in names] if names else found


def plain_content(node: Element, reader: XmlReader) -> str:
    """Return an element with the reference to the unit that its text is."""
    return node.holding(reader.units.plain(node.text, node.inner, as_text))


def ends_of_pairs(
    nodes: Sequence[Element | Chars], pairs: Mapping[str, tuple[str, str, str]]
) -> dict[int, int]:
    """Return, for each element that begins something, the index of the one that ends it.

    Args:
        nodes: the elements in order.
        pairs: for the name of an element that begins something, the name of the one that ends it, and the
            attributes of both that are equal.
    """
    ends: dict[int, int] = {}
    next_of: dict[tuple[str, str | None], int] = {}
    attribute_of = {name: other for name, _, other in pairs.values()}
    found = [(at, node) for at, node in enumerate(nodes) if isinstance(node, Element)]
    for at, node in reversed(found):
        name, attribute, _ = pairs.get(node.name, ("", "", ""))
        if (end := next_of.get((name, node.attributes.get(attribute)))) is not None:
            ends[at] = end
        if node.name in attribute_of:
            next_of[node.name, node.attributes.get(attribute_of[node.name])] = at
    return ends


def as_text(text: str) -> str:
    """Return text as the content of an element."""
    return html.escape(NO_XML.sub("", text), quote=False)


def as_attribute(text: str) -> str:
    """Return text as the value of an attribute, between any quotes."""
    return html.escape(NO_XML.sub("", text), quote=True).replace("\n", "&#10;").replace("\t", "&#9;")


def written(text: SpannedText) -> str:
    """Return a text with its spans as the content of an element."""
    return markup(text, as_text)
