"""Documents of text with elements in it: OpenDocument, XLIFF and TMX."""

import re
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, product
from typing import NamedTuple

from heedful.documents.accelerators import with_accelerator, without_accelerator
from heedful.documents.directions import open_document_tags
from heedful.documents.formats import PartReader, Reading, primary_language
from heedful.documents.sheets import LIST, number_text, quoted_texts
from heedful.documents.template import WHITE_SPACE, Template, Unit
from heedful.documents.tokens import attributes_of_tags
from heedful.documents.xml_text import (
    Chars,
    Element,
    TagChange,
    XmlReader,
    XmlRules,
    as_attribute,
    as_text,
    elements,
    ends_of_pairs,
    with_value,
    without_attribute,
    written,
)
from heedful.errors import InputError
from heedful.spans.spanned_text import Builder, Code, Kept, Kind, SpannedText, has_letters
from heedful.text.languages import tag_of_language

_MAX_PAIRS = 20  # nesting of elements that begin and end something; deeper ones are points
_LINE_END = re.compile(r"(?<![ \t])[ \t]*+[\r\n]\s*+")


@dataclass(frozen=True)
class _Inline:
    """Which elements do what in a text; all others are in it without text.

    Attributes:
        around: elements around a part of the text.
        kinds: elements that separate sentences, and elements without width; other elements without text are
            between words, as pictures are.
        pairs: the element that ends what one begins, and the attributes of both that are equal.
        blank: elements that are a blank.
        low: the styles of subscripts.
        code: the styles of code.
    """

    around: frozenset[str]
    kinds: Mapping[str, Kind] = field(default_factory=dict)
    pairs: Mapping[str, tuple[str, str, str]] = field(default_factory=dict)
    blank: re.Pattern[str] | None = None
    low: frozenset[str] = frozenset()
    code: frozenset[str] = frozenset()


def _unit(node: Element, reader: XmlReader, rules: _Inline) -> Unit | None:
    """Return the unit of the content of an element; None if it has no text."""
    if not has_letters(_text(node, rules)):
        return None
    builder = Builder()
    _add(node.children, reader, rules, builder, 0)
    return Unit(builder.source(), written)


def _add(
    nodes: Sequence[Element | Chars], reader: XmlReader, rules: _Inline, builder: Builder, depth: int
) -> None:
    """Add nodes to a text; `depth` is how many elements they are in."""
    nodes, at = _without_ruby(nodes), 0
    ends = ends_of_pairs(nodes, rules.pairs) if depth < _MAX_PAIRS else {}
    while at < len(nodes):
        node, end = nodes[at], ends.get(at, at)
        if isinstance(node, Chars):
            _add_chars(node, rules, builder)
        elif end > at:
            builder.open(reader.raw(node))
            _add(nodes[at + 1 : end], reader, rules, builder, depth + 1)
            builder.close(reader.raw(nodes[end]))
        elif _is_around(node, rules):
            is_low = node.attributes.get("style-name") in rules.low
            builder.open(reader.opening(node), is_low=is_low)
            _add(node.children, reader, rules, builder, depth + 1)
            builder.close(node.closing)
        elif node.name == "text:s" and not builder.last[-1:].isspace():
            blank = Code(0, 0, node.verbatim)
            builder.place(Kept(0, 0, "blank", SpannedText("", (blank,))))
        else:
            builder.point(reader.raw(node), rules.kinds.get(node.name, "object"))
        at = end + 1


def _add_chars(chars: Chars, rules: _Inline, builder: Builder) -> None:
    if chars.text:
        builder.text(rules.blank.sub(" ", chars.text) if rules.blank else chars.text)
    elif chars.verbatim not in ("<![CDATA[", "]]>"):  # text of a section is written as any other
        builder.point(chars.verbatim)


def _without_ruby(nodes: Sequence[Element | Chars]) -> list[Element | Chars]:
    """Return nodes with the bases of ruby in place of it: how the source is pronounced goes."""
    flat: list[Element | Chars] = []
    for node in nodes:
        if isinstance(node, Element) and node.name == "text:ruby":
            for base in elements(node, "text:ruby-base"):
                flat += _without_ruby(base.children)
        else:
            flat.append(node)
    return flat


def _is_around(node: Element, rules: _Inline) -> bool:
    is_protected = node.attributes.get("translate") == "no" or node.attributes.get("mtype") == "protected"
    is_kept = is_protected or node.attributes.get("style-name") in rules.code
    return node.name in rules.around and bool(node.closing) and not is_kept


def _text(node: Element, rules: _Inline) -> str:
    texts: list[str] = []
    for child in _without_ruby(node.children):
        if isinstance(child, Chars):
            texts.append(child.text)
        elif _is_around(child, rules):
            texts.append(_text(child, rules))
    return "".join(texts)


_NAMESPACE = "urn:oasis:names:tc:opendocument:xmlns:"
_PAIRS_OF_TEXT = {
    **{f"text:{name}-start": (f"text:{name}-end", "name", "name") for name in ("bookmark", "reference-mark")},
    "office:annotation": ("office:annotation-end", "name", "name"),
}
_UNSEEN_IN_TEXT = frozenset({
    *_PAIRS_OF_TEXT, *(end for end, _, _ in _PAIRS_OF_TEXT.values()), "text:s", "text:note",
    "text:soft-page-break", "text:bookmark", "text:reference-mark", "text:change",
    "text:change-start", "text:change-end",
})  # fmt: skip
_PARAGRAPH = _Inline(
    around=frozenset(("text:span", "text:a", "text:meta")),
    kinds={
        **dict.fromkeys(("text:line-break", "text:tab"), "break"),
        **dict.fromkeys(_UNSEEN_IN_TEXT, "point"),
    },
    pairs=_PAIRS_OF_TEXT,
    blank=WHITE_SPACE,
)


def _cell(node: Element, reader: XmlReader) -> str:
    """Return a cell of a sheet; its value goes if it is translated, and what is shown is the value too."""
    content = reader.written(node.children)
    opening = node.opening if content == node.inner else without_attribute(node.opening, "string-value")
    return opening + content + node.closing


def _validation(node: Element, reader: XmlReader) -> str:
    """Return a condition of validity: the texts of a list are translated as cells are.

    For example of:cell-content-is-in-list("The house";"The dog").
    """
    opening = reader.opening(node)
    if "is-in-list" in node.attributes.get("condition", ""):
        opening = with_value(opening, "condition", lambda raw: quoted_texts(raw, reader, LIST))
    return opening + reader.written(node.children) + node.closing


def _condition(node: Element, reader: XmlReader) -> str:
    """Return a condition of a format: texts with which it compares cells are translated as these are."""
    opening = with_value(node.opening, "condition", lambda raw: quoted_texts(raw, reader))
    opening = with_value(opening, "value", lambda raw: quoted_texts(raw, reader))
    return opening + reader.written(node.children) + node.closing


_SHOWN = {
    **dict.fromkeys(("table:filter-condition", "table:filter-set-item"), ("value",)),
    **dict.fromkeys(("table:help-message", "table:error-message"), ("title",)),
    **dict.fromkeys(
        [f"form:{name}" for name in ("button", "checkbox", "radio", "fixed-text", "frame", "option", "item")],
        ("label", "title"),
    ),
    "text:alphabetical-index-mark": ("string-value", "key1", "key2"),
}


def _open_document(names: frozenset[str], rules: _Inline, tags: Mapping[str, TagChange]) -> XmlRules:
    """Return the rules that say which elements of an OpenDocument are text.

    Args:
        names: the field names of pivot tables, which find columns by them; cells with such a text stay.
        rules: what elements of a paragraph do.
        tags: the changes of start tags.
    """

    def paragraph(node: Element, reader: XmlReader) -> str:
        is_code = node.attributes.get("style-name") in rules.code
        unit = None if is_code else _unit(node, reader, rules)
        inner = reader.written(node.children) if unit is None else reader.units.refer(unit)
        return reader.opening(node) + inner + node.closing

    def cell(node: Element, reader: XmlReader) -> str:
        return node.verbatim if (node.text or None) in names else _cell(node, reader)

    return XmlRules(
        prefixes={
            **{f"{_NAMESPACE}{name}:1.0": name for name in ("text", "office", "table", "style", "form")},
            f"{_NAMESPACE}svg-compatible:1.0": "svg",
            f"{_NAMESPACE}drawing:1.0": "draw",
            f"{_NAMESPACE}datastyle:1.0": "number",
            "urn:org:documentfoundation:names:experimental:calc:xmlns:calcext:1.0": "calcext",
        },
        units={
            **dict.fromkeys(("text:p", "text:h", "svg:title", "svg:desc"), paragraph),
            **dict.fromkeys(("table:table-cell", "table:covered-table-cell"), cell),
            "table:content-validation": _validation,
            "number:text": number_text,
            **dict.fromkeys(("calcext:condition", "style:map"), _condition),
        },
        attributes=_SHOWN,
        tags=tags,
        skipped=frozenset(("text:tracked-changes", "office:scripts")),
    )


def open_document_parts(package: zipfile.ZipFile, reading: Reading) -> dict[str, PartReader]:
    """Return how each part of an OpenDocument is read that people read: contents, headers and footers.

    Raises:
        InputError: it is none, or is locked by a password.
    """
    names = package.namelist()
    if "content.xml" not in names:
        raise InputError("damaged, or no OpenDocument: it has no content.xml")
    if "META-INF/manifest.xml" in names and b"encryption-data" in package.read("META-INF/manifest.xml"):
        raise InputError("locked by a password; remove the password")
    parts = (name for name in names if re.fullmatch(r"(?:[^/]+/)?content\.xml|styles\.xml", name))
    with_styles = [name for name in ("content.xml", "styles.xml") if name in names]
    texts = [package.read(name).decode("utf-8", "replace") for name in with_styles]
    pivots = attributes_of_tags(texts[0], "data-pilot-field")
    fields = frozenset(pivot.get("table:source-field-name", "") for pivot in pivots)
    styles = list(chain.from_iterable(map(_styles, texts)))
    rules = replace(
        _PARAGRAPH,
        low=frozenset(style.name for style in styles if style.is_low),
        code=frozenset(style.name for style in styles if _CODE_STYLE.fullmatch(style.parent or style.name)),
    )
    return dict.fromkeys(parts, (_open_document(fields, rules, open_document_tags(reading)).read, "xml"))


# The names of styles of code, as pandoc and LibreOffice give them.
_CODE_STYLE = re.compile(r"(?:Source|Preformatted)_20_(?:Text|Code)|Teletype|Verbatim_20_Char|Example")


class _Style(NamedTuple):
    """A style of OpenDocument: its name, that of the one that it changes, and whether it is a subscript."""

    name: str
    parent: str
    is_low: bool


def _styles(text: str) -> Iterator[_Style]:
    """Yield the styles that a part of a document declares."""
    name = parent = ""
    for properties in attributes_of_tags(text, "style|text-properties"):
        name, parent = properties.get("style:name", name), properties.get("style:parent-style-name", "")
        is_low = properties.get("style:text-position", "").startswith(("sub", "-"))
        yield _Style(name, parent, is_low)


_CODES = {
    "xliff:bpt": ("xliff:ept", "id", "id"),
    "xliff:bx": ("xliff:ex", "id", "id"),
    "xliff:sc": ("xliff:ec", "id", "startRef"),
    "xliff:sm": ("xliff:em", "id", "startRef"),
    "bpt": ("ept", "i", "i"),
}
_SEGMENT = _Inline(
    around=frozenset(("xliff:g", "xliff:mrk", "xliff:pc", "hi")),
    kinds=dict.fromkeys((*_CODES, *(end for end, _, _ in _CODES.values())), "point"),
    pairs=_CODES,
)
_UNTRANSLATED = ("new", "needs-translation", "initial")


def _segment(node: Element, reader: XmlReader) -> str:
    """Return a unit of XLIFF with a target; what has one that is not marked as new stays."""
    of_name = {child.name: child for child in elements(node)}
    source, target = of_name.get("xliff:source"), of_name.get("xliff:target")
    if source is None:
        return node.verbatim
    state = (target or node).attributes.get("state", node.attributes.get("state"))
    is_new = state in _UNTRANSLATED
    divided = of_name.get("xliff:seg-source", source)
    done: dict[str, Element] = {}
    if target is not None and not is_new:
        segments = _segments_of(target)
        done = {mid: segment for mid, segment in segments.items() if has_letters(_text(segment, _SEGMENT))}
        is_complete = segments.keys() & _segments_of(divided).keys() <= done.keys()
        if is_complete and has_letters(_text(target, _SEGMENT)):
            return node.verbatim
    content = _target_of(divided, done, reader)
    if content is None:
        return node.verbatim
    prefix = source.prefix
    opening, closing = f"<{prefix}target>", f"</{prefix}target>"
    if target is not None:
        opening = _as_translated(target.opening.rstrip("/> \t\r\n") + ">")
    written = opening + content + closing
    parts: list[str] = []
    space = ""
    for child in node.children:
        parts.append(written if child is target else child.verbatim)
        if child is divided and target is None:
            parts += [space, written]
        space = child.verbatim if child.verbatim.isspace() else ""
    return _as_translated(node.opening) + "".join(parts) + node.closing


def _as_translated(tag: str) -> str:
    return with_value(tag, "state", lambda state: "translated" if state in _UNTRANSLATED else state)


def _is_segment(node: Element) -> bool:
    return node.name == "xliff:mrk" and node.attributes.get("mtype") == "seg"


def _segments_of(node: Element) -> dict[str, Element]:
    """Return the segments that a source or a target is divided into, by number."""
    found: dict[str, Element] = {}
    for child in elements(node):
        found |= {child.attributes.get("mid", ""): child} if _is_segment(child) else _segments_of(child)
    return found


_MESSAGE = re.compile(r"\{\s*\w+\s*,\s*(?:plural|select|selectordinal)\s*,")


def _has_message(source: Element) -> bool:
    """Return whether a source has plurals or choices of ICU with codes in them: it is left to people."""
    return bool(elements(source)) and _MESSAGE.search(_text(source, _SEGMENT)) is not None


def _string(source: Element, reader: XmlReader, rules: _Inline) -> Unit | None:
    """Return the unit of a source; without codes it is a string, perhaps with HTML or the key of a menu."""
    own = _text(source, rules)
    if len(source.children) != 1 or elements(source) or (rules.blank and rules.blank.search(own)):
        return _unit(source, reader, rules)
    accelerator, own = without_accelerator(own)
    if not has_letters(own):
        return None
    return Unit(own, lambda translation: as_text(with_accelerator(translation, accelerator)))


def _target_of(source: Element, done: Mapping[str, Element], reader: XmlReader) -> str | None:
    """Return the content of the target of a source, with the segments of the source; None: it has no text.

    Args:
        source: or its division into segments.
        done: segments of the target that have a text already.
        reader: the reader of the document.
    """
    keeps_space = source.attributes.get("space", "preserve" if reader.keeps_space else "") == "preserve"
    rules = _SEGMENT if keeps_space else replace(_SEGMENT, blank=_LINE_END)
    if not _segments_of(source):
        unit = None if _has_message(source) else _string(source, reader, rules)
        return None if unit is None else reader.units.refer(unit)
    num_before = len(reader.units.units)

    def written(node: Element | Chars) -> str:
        if isinstance(node, Chars):
            return node.verbatim
        if not _is_segment(node):
            return node.holding(*map(written, node.children))
        mid = node.attributes.get("mid", "")
        if mid in done:
            return done[mid].verbatim
        unit = _unit(node, reader, rules)
        return node.holding(reader.units.refer(unit)) if unit else node.verbatim

    content = "".join(map(written, source.children))
    return content if len(reader.units.units) > num_before else None


_XLIFF = XmlRules(
    prefixes={
        f"urn:oasis:names:tc:xliff:document:{version}": "xliff"
        for version in ("1.1", "1.2", "2.0", "2.1", "2.2")
    },
    units={"xliff:trans-unit": _segment, "xliff:segment": _segment},
    may_declare=True,
)


# In versions 1 and 2.
_SOURCE_LANGUAGE = ("source-language", "srclang")
_TARGET_LANGUAGE = ("target-language", "trglang")


def read_xliff(text: str, reading: Reading) -> Template:
    """Read XLIFF 1.1, 1.2 or 2: a source is a unit if its target is missing or marked as new.

    Raises:
        InputError: damaged, of another format, or for other languages.
    """
    language, source = reading.language, reading.source
    tags = list(attributes_of_tags(text, "file|xliff"))
    if other := _other_language(tags, _SOURCE_LANGUAGE, source):
        raise InputError(f"its source language is {other}, and the model translates from {source}")
    if other := _other_language(tags, _TARGET_LANGUAGE, language):
        raise InputError(f"its target language is {other}, and the translation would be in {language}")
    if not any(f'"{namespace}"' in text or f"'{namespace}'" in text for namespace in _XLIFF.prefixes):
        raise InputError("no XLIFF of versions 1.1, 1.2, 2.0, 2.1 or 2.2: it has no namespace of these")
    return _XLIFF.read(text)


def _other_language(
    tags: Sequence[Mapping[str, str]], names: Sequence[str], language: str | None
) -> str | None:
    """Return the first value of these attributes with another language than the one that is expected."""
    if language is None:
        return None
    for name, tag in product(names, tags):
        if primary_language(tag.get(name) or language) != primary_language(language):
            return tag[name]
    return None


def read_tmx(text: str, reading: Reading) -> Template:
    """Read a translation memory: each entry without a segment of a language gets one.

    The source language is needed only if the memory does not name it.

    Raises:
        InputError: damaged, of another format, or no language.
    """
    language = reading.language
    if not re.search(r"<tmx[\s>]", text):
        raise InputError("no TMX: it has no element tmx")
    if language is None:
        raise InputError("the model does not name its target language, which a translation memory needs")
    header = next(attributes_of_tags(text, "header"), {})
    its_source = header.get("srclang", reading.source or "").lower()

    def entry(node: Element, reader: XmlReader) -> str:
        tags = [variant.attributes.get("lang", "") for variant in elements(node, "tuv")]
        named = (node.attributes.get("srclang") or its_source).lower().replace("*all*", "")
        tag = tag_of_language(named, tags)
        if tag is None or tag_of_language(language, tags) is not None:
            return node.verbatim
        segments = elements(elements(node, "tuv")[tags.index(tag)], "seg")
        unit = _unit(segments[0], reader, _SEGMENT) if segments else None
        if unit is None:
            return node.verbatim
        parts = [child.verbatim for child in node.children]
        gap = parts[0] if parts[0].isspace() else ""
        new = f'<tuv xml:lang="{as_attribute(language)}"><seg>{reader.units.refer(unit)}</seg></tuv>'
        parts.insert(len(parts) - parts[-1].isspace(), gap + new)
        return node.holding(*parts)

    return XmlRules(prefixes={}, units={"tu": entry}, may_declare=True).read(text)
