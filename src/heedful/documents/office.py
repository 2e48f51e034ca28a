"""Documents of Office Open XML (docx, pptx, xlsx): paragraphs of runs.

Programs split a sentence into runs wherever a format, a spelling mark or an editing session changes. The runs
of a paragraph are joined first. The format of most of its characters is the paragraph's; each other one is an
element in the text, and is put around the words that are aligned with it.
"""

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain

from heedful.documents.directions import (
    PROPERTIES_OF_WORD,
    attribute_of_language,
    new_direction,
    office_tags,
    word_properties,
)
from heedful.documents.formats import Reading, primary_language
from heedful.documents.sheets import (
    cached_strings,
    calculation,
    condition,
    formula,
    formula_cell,
    header,
    number_format,
    validation,
)
from heedful.documents.template import WHITE_SPACE, Unit
from heedful.documents.xml_text import (
    Element,
    XmlReader,
    XmlRules,
    as_text,
    elements,
    ends_of_pairs,
    plain_content,
    with_attribute,
    with_value,
)
from heedful.spans.placeholders import Range
from heedful.spans.spanned_text import (
    Builder,
    Kind,
    SpannedText,
    edges,
    has_letters,
    moved,
    parts,
)
from heedful.spans.spanned_text import Element as SpannedElement

_WORD, _DRAWING, _SHEET = "w", "a", "x"
_OOXML, _STRICT = "http://schemas.openxmlformats.org", "http://purl.oclc.org/ooxml"
_NAMES = {  # without /2006 in the strict form of the standard
    _WORD: "wordprocessingml/2006/main",
    _DRAWING: "drawingml/2006/main",
    "wp": "drawingml/2006/wordprocessingDrawing",
    "xdr": "drawingml/2006/spreadsheetDrawing",
    "pic": "drawingml/2006/picture",
    "p": "presentationml/2006/main",
    _SHEET: "spreadsheetml/2006/main",
    "c": "drawingml/2006/chart",
}
_PREFIXES = {
    **{f"{_OOXML}/{name}": prefix for prefix, name in _NAMES.items()},
    **{f"{_STRICT}/{name.replace('/2006', '')}": prefix for prefix, name in _NAMES.items()},
    f"{_OOXML}/package/2006/metadata/core-properties": "cp",
    "http://purl.org/dc/elements/1.1/": "dc",
    "http://schemas.microsoft.com/office/spreadsheetml/2018/threadedcomments": "tc",
    "urn:schemas-microsoft-com:vml": "v",
    "http://schemas.microsoft.com/office/spreadsheetml/2009/9/main": "x14",
    "http://schemas.microsoft.com/office/excel/2006/main": "xm",
}
_AROUND = frozenset({
    "w:hyperlink", "w:ins", "w:moveTo", "w:smartTag", "w:customXml", "w:dir", "w:bdo", "w:sdt",
})  # fmt: skip
_FIRST = frozenset(("w:pPr", "a:pPr"))  # stay before the text
_LAST = frozenset(("a:endParaRPr", "x:phoneticPr"))  # stay after it
# Where a spelling mistake was, where a page ended, how the source is pronounced: not true of a translation.
_DROPPED = frozenset(("w:proofErr", "w:lastRenderedPageBreak", "x:rPh"))
_BREAKS = frozenset(("w:br", "w:cr", "w:tab", "w:ptab", "a:br"))
_PAIRS = {f"w:{name}Start": (f"w:{name}End", "id", "id") for name in ("bookmark", "commentRange", "perm")}
_NO_WIDTH = frozenset({
    *_PAIRS, *(end for end, _, _ in _PAIRS.values()), "w:commentReference", "w:annotationRef",
    "w:footnoteReference", "w:endnoteReference", "w:footnoteRef", "w:endnoteRef", "w:softHyphen",
    "w:del", "w:moveFrom",
})  # fmt: skip
_KINDS: dict[str, Kind] = {
    **dict.fromkeys(_NO_WIDTH, "point"),
    **dict.fromkeys((*_BREAKS, "w:fldChar"), "break"),
}
# Fields with results that a program computes.
_COMPUTED = re.compile(
    r"\s*(?:PAGE|NUMPAGES|SECTIONPAGES|SECTION|PAGEREF|SEQ|DATE|TIME|CREATEDATE|SAVEDATE|PRINTDATE|EDITTIME|NUMWORDS"
    r"|NUMCHARS|MERGEFIELD|AUTHOR|USERNAME|FILENAME|FILESIZE|REVNUM|DOCPROPERTY|ADDIN|CITATION|BIBLIOGRAPHY|=)\b",
    re.IGNORECASE,
)
# What two runs may differ in and look the same: the language of the spelling, and what an editor knows.
_UNSEEN = re.compile(
    r"<[\w.-]*:?(?:lang|noProof)\b[^>]*/>|\s(?:lang|altLang|dirty|err|smtClean|noProof)=(?:\"[^\"]*\"|'[^']*')"
)
_NO_PROPERTIES = re.compile(r"(?:<[\w:]*rPr\s*/>|<([\w:]*rPr)\s*></\1>)?")
_LOW = re.compile(r"""\sval=["']subscript|:val=["']subscript|\sbaseline=["']-""")
_LANGUAGE_TAG = re.compile(r"[A-Za-z]{2,3}(?:-[A-Za-z0-9]{2,8})*")  # of BCP 47; not deu_Latn
_MAX_PAIRS = 20  # nesting of elements and fields; deeper ones are points
_ESCAPED = re.compile(r"_x[0-9A-Fa-f]{4}_")


@dataclass(frozen=True, slots=True)
class _Format:
    """How runs begin and end.

    Attributes:
        opening: the start tag and the properties; "" if text stands in no run.
        closing: the end tag.
    """

    opening: str
    closing: str


@dataclass(frozen=True, slots=True)
class _Item:
    """A part of a paragraph: a child of a run, with its format, or an element beside runs."""

    node: Element
    format: _Format | None = None
    key: str = ""  # equal for formats that look the same
    text: str | None = None  # of a run


class _Paragraph:
    """Reads the runs of one paragraph as a text with spans, and writes its translation."""

    def __init__(self, node: Element, reader: XmlReader, initial: str = "") -> None:
        self._reader, self._kind, self._prefix = reader, node.name.split(":")[0], node.prefix
        self._initial = initial  # of a drop cap before the paragraph
        self._builder = Builder()
        self._depth = 0
        self._format_of_key: dict[str, _Format] = {}
        self._base = ""  # the key of the format of runs that stand in no element
        self._key: str | None = None  # of the format that is open

    def reference(self, node: Element, drop_cap: str = "") -> str:
        """Return what is written for the paragraph, with the reference to its unit.

        Args:
            node: the paragraph.
            drop_cap: the paragraph before it, with the first letter of this one.
        """
        if _is_code(node):
            return drop_cap + node.verbatim
        items = list(self._items(child for child in elements(node) if child.name not in _FIRST | _LAST))
        if not any(has_letters(text) for _, text in self._texts(items, deep=True)):
            return drop_cap + self._reader.opening(node) + self._reader.written(node.children) + node.closing
        before = self._reader.opening(node) + self._properties(node, "pPr")
        behind = self._reader.written(elements(node, *_LAST)) + node.closing
        self._base = self._main_key(items)
        self._add(items)
        base = self._format_of_key[self._base]
        runs = partial(_written, base=base, prefix=self._prefix, kind=self._kind)
        source = self._builder.source()
        if drop_cap:
            before, runs = "", partial(_with_drop_cap, drop_cap, before, runs)
        return before + self._reader.units.refer(Unit(source, runs)) + behind

    def _items(self, nodes: Iterable[Element]) -> Iterator[_Item]:
        """Yield the items of a paragraph, or of an element in it: the children of its runs, one by one."""
        for node in nodes:
            if node.name == f"{self._kind}:r":
                yield from self._run_items(node)
            elif node.name == f"{self._kind}:t":  # of a cell without runs
                run = self._format_of_key.setdefault("", _Format("", ""))
                yield _Item(node, run, "", self._text(node))
            elif node.name not in _DROPPED:
                yield _Item(node)

    def _run_items(self, node: Element) -> Iterator[_Item]:
        """Yield the children of a run, but for its properties."""
        if _is_code(node):
            yield _Item(node)
            return
        properties = self._properties(node, "rPr")
        key = _UNSEEN.sub("", properties)
        if _NO_PROPERTIES.fullmatch(key):
            key = ""
        run = _Format(node.opening + properties, node.closing)
        self._format_of_key.setdefault(key, run)
        for child in elements(node):
            if child.name == "w:ruby":  # without how it is pronounced
                for base in elements(child, "w:rubyBase"):
                    yield from self._items(elements(base))
            elif child.name not in (f"{self._kind}:rPr", *_DROPPED):
                yield _Item(child, run, key, self._text(child))

    def _properties(self, node: Element, name: str) -> str:
        """Return the properties of a paragraph or a run; those that are needed, if it has none."""
        if found := elements(node, f"{self._kind}:{name}"):
            return self._reader.written(found)
        default = Element(f"{self._kind}:{name}", {}, f"<{self._prefix}{name}/>")
        needed = self._reader.raw(default)
        return "" if needed == default.verbatim else needed

    def _text(self, node: Element) -> str | None:
        """Return the text of a child of a run; None: it is something else."""
        if node.name == "w:noBreakHyphen":
            return "\u2011"
        if node.name != f"{self._kind}:t":
            return None
        return node.text if self._kind == _SHEET else WHITE_SPACE.sub(" ", node.text)

    def _texts(self, items: Sequence[_Item], *, deep: bool) -> Iterator[tuple[_Item, str]]:
        for item in items:
            if item.text:
                yield item, item.text
            elif deep and item.format is None and _is_around(item.node):
                yield from self._texts(list(self._items(elements(_content(item.node)))), deep=True)

    def _main_key(self, items: Sequence[_Item]) -> str:
        """Return the key of the format of most characters; what is in other elements counts if it is all."""
        lengths = Counter[str]()
        for item, text in list(self._texts(items, deep=False)) or self._texts(items, deep=True):
            lengths[item.key] += len(text)
        return max(lengths, key=lengths.__getitem__, default=self._base)

    def _add(self, items: Sequence[_Item]) -> None:
        """Add items, and close the format that they leave open."""
        at = 0
        ends: dict[int, int] = {}
        fields: dict[int, Range] = {}
        if self._depth < _MAX_PAIRS:
            ends, fields = ends_of_pairs([item.node for item in items], _PAIRS), _fields(items)
        while at < len(items):
            item, end = items[at], ends.get(at, at)
            if item.text is not None:
                self._add_text(item, item.text)
            elif at in fields:
                num_codes, end = fields[at]
                self._add_field(items[at : end + 1], num_codes)
            elif end > at:
                self._add_around(self._raw(item), items[at + 1 : end], self._raw(items[end]))
            elif item.format is None and _is_around(item.node):
                opening, closing = self._outside(item.node)
                self._add_around(opening, list(self._items(elements(_content(item.node)))), closing)
            else:
                kind = _KINDS.get(item.node.name, "object")
                self._builder.point(self._reader.raw(item.node), kind, format=item.format)
            at = end + 1
        self._close_format()

    def _add_text(self, item: _Item, text: str) -> None:
        if not text:
            return
        text, self._initial = self._initial + text, ""
        if self._key is not None and self._key != item.key:
            self._close_format()
        if self._key is None and item.key != self._base:
            is_low = _LOW.search(item.key) is not None
            self._builder.open(is_low=is_low, format=self._format_of_key[item.key])
            self._key = item.key
        at = 0
        for escape in () if self._kind == _WORD else _ESCAPED.finditer(text):
            self._builder.text(text[at : escape.start()])
            self._builder.point(escape.group(), "break", format=item.format)
            at = escape.end()
        self._builder.text(text[at:])

    def _close_format(self) -> None:
        if self._key is not None:
            self._builder.close()
            self._key = None

    def _add_around(self, opening: str, items: Sequence[_Item], closing: str) -> None:
        self._close_format()
        around, self._base = self._base, self._main_key(items)
        self._builder.open(opening, format=self._format_of_key.get(self._base))
        self._depth += 1
        self._add(items)
        self._depth -= 1
        self._builder.close(closing)
        self._base = around

    def _add_field(self, items: Sequence[_Item], num_codes: int) -> None:
        """Add a field with its result, which is after an item that separates it from the instruction."""
        codes = (item.node.text for item in items[:num_codes] if item.node.name == "w:instrText")
        if not num_codes or _COMPUTED.match("".join(codes)):
            self._builder.point("".join(map(self._raw, items)), "object")
        else:
            before = "".join(map(self._raw, items[: num_codes + 1]))
            self._add_around(before, items[num_codes + 1 : -1], self._raw(items[-1]))

    def _outside(self, node: Element) -> tuple[str, str]:
        content = _content(node)
        if content is node:
            return self._reader.opening(node), node.closing
        before = self._reader.written(child for child in node.children if child is not content)
        return node.opening + before + content.opening, content.closing + node.closing

    def _raw(self, item: _Item) -> str:
        raw = self._reader.raw(item.node)
        return raw if item.format is None else item.format.opening + raw + item.format.closing


def _written(translation: SpannedText, base: _Format, prefix: str, kind: str) -> str:
    """Return the runs of a translation.

    Args:
        translation: the translation of a paragraph.
        base: the format of text that is in no element.
        prefix: the prefix of the names of elements.
        kind: the kind of format: Word, DrawingML, or a sheet.
    """
    formats = [base]
    current: _Format | None = None
    parts_of_runs: list[str] = []
    texts: list[str] = []  # of the run, which has one element for them in most formats

    def go_on(following: _Format | None, raw: str = "") -> None:
        """Go on in a run of a format, or beside runs, with something that is not text."""
        nonlocal current
        if texts and (raw or current != following):
            text = "".join(texts)
            space = ' xml:space="preserve"' if kind != _DRAWING and text != text.strip() else ""
            parts_of_runs.append(f"<{prefix}t{space}>{text}</{prefix}t>")
            texts.clear()
        if current != following:
            parts_of_runs.extend([current.closing if current else "", following.opening if following else ""])
            current = following
        parts_of_runs.append(raw)

    for what, raw, span in parts(translation):
        own: _Format | None = getattr(span, "format", None)
        if span is None:
            go_on(formats[-1])
            texts.append(as_text(raw))
        elif what == "point" and not raw.startswith("<"):  # an escaped character
            go_on(own)
            texts.append(raw)
        elif what == "point":
            go_on(own, raw)
        elif isinstance(span, SpannedElement) and (span.opening or span.closing):
            go_on(None, raw)
        if what == "open":
            formats.append(own or formats[-1])
        elif what == "close":
            formats.pop()
    go_on(None)
    return "".join(parts_of_runs)


def _with_drop_cap(
    drop_cap: str, before: str, runs: Callable[[SpannedText], str], translation: SpannedText
) -> str:
    """Return the paragraph of a drop cap, and the one after it without its last tags."""
    first = _FIRST_LETTER.match(translation.text)
    end = first.end() if first else 0
    if any(0 < position < end for position, _, _ in edges(translation.spans)):
        end = 0
    letter = as_text(translation.text[:end])
    rest = SpannedText(translation.text[end:], moved(translation.spans, lambda at: max(0, at - end)))
    initial = _ONLY_TEXT.sub(lambda text: text[1] + letter + text[3], drop_cap, count=1)
    return initial + before + runs(rest)


def _fields(items: Sequence[_Item]) -> dict[int, Range]:
    """Return, for each field by the index of its begin, the number of items before its result, and its end.

    The number is 0 if it has no result.
    """
    fields: dict[int, Range] = {}
    begun: list[Range] = []
    for at, item in enumerate(items):
        match item.node.attributes.get("fldCharType"):
            case "begin":
                begun.append((at, 0))
            case "separate" if begun:
                begin, _ = begun[-1]
                begun[-1] = begin, at - begin
            case "end" if begun:
                begin, num_codes = begun.pop()
                fields[begin] = num_codes, at
    return fields


# The properties of a control with a citation, or with all that are cited.
_CITED = re.compile(r"MENDELEY|ZOTERO|EndNote|:citation\s*/>|:bibliography\s*/>")
# The names of styles of code, as pandoc, Word and LibreOffice give them.
_CODE_STYLE = re.compile(
    r"SourceCode|VerbatimChar|SourceText|PreformattedText|HTML(?:Code|Preformatted|Keyboard|Sample|Typewriter)"
    r"|Code(?:Char|Block|Inline)?",
    re.IGNORECASE,
)


def _is_code(node: Element) -> bool:
    """Return whether a paragraph or a run has a style of code."""
    if node.name not in ("w:p", "w:r"):
        return False
    properties = elements(node, f"{node.name}Pr")
    styles = chain.from_iterable(elements(found, f"{node.name}Style") for found in properties)
    return any(_CODE_STYLE.fullmatch(style.attributes.get("val", "")) for style in styles)


def _is_around(node: Element) -> bool:
    if node.name == "w:fldSimple":
        return not _COMPUTED.match(node.attributes.get("instr", ""))
    if node.name == "w:sdt" and _CITED.search("".join(child.inner for child in elements(node, "w:sdtPr"))):
        return False
    return node.name in _AROUND


def _content(node: Element) -> Element:
    """Return the element that directly holds the content of an element around runs: of a control, another."""
    return next(iter(elements(node, "w:sdtContent")), node)


# The letter of a drop cap, with quotes before it; and the text of a paragraph.
_FIRST_LETTER = re.compile(r"[^\w<&\v]*\w")
_ONLY_TEXT = re.compile(r"(<(?:\w+:)?t(?:\s[^<>]*)?>)([^<]*)(</(?:\w+:)?t>)")
_MAX_DROP_CAP = 3


def _is_drop_cap(node: Element) -> bool:
    frames = chain.from_iterable(elements(properties, "w:framePr") for properties in elements(node, "w:pPr"))
    return any(frame.attributes.get("dropCap", "none") != "none" for frame in frames)


def _paragraph(node: Element, reader: XmlReader) -> str:
    return _Paragraph(node, reader).reference(node)


def _codes_behind(node: Element, codes: Sequence[str]) -> list[str]:
    """Return the instructions of the fields that go on behind a node; `codes` are those before it."""
    codes = list(codes)
    for child in elements(node):
        match child.attributes.get("fldCharType"):
            case "begin":
                codes.append("")
            case "end" if codes:
                codes.pop()
        if child.name == "w:instrText" and codes:
            codes[-1] += child.text
        codes = _codes_behind(child, codes)
    return codes


def _paragraphs() -> Callable[[Element, XmlReader], str]:
    """Return the writer of Word paragraphs; it joins a drop cap to the paragraph after it.

    Paragraphs in a field that a program computes stay.
    """
    drop_cap = initial = ""
    codes: list[str] = []  # of the fields that go on

    def paragraph(node: Element, reader: XmlReader) -> str:
        nonlocal drop_cap, initial, codes
        before, codes = codes, _codes_behind(node, codes)
        if any(map(_COMPUTED.match, [*before, *codes])):  # a bibliography, for example
            return node.verbatim
        letter, drop_cap = drop_cap, ""
        if letter and reader.take_before(letter):
            return _Paragraph(node, reader, initial).reference(node, letter)
        if _is_drop_cap(node) and len(_ONLY_TEXT.findall(raw := node.verbatim)) == 1:
            initial = node.text.strip()
            if 0 < len(initial) <= _MAX_DROP_CAP:
                drop_cap = raw
                return raw
        return _Paragraph(node, reader).reference(node)

    return paragraph


_INDEX_ENTRY = re.compile(r"""(\s*XE\s+["\u201c])(?P<text>[^"\u201d]+)(?=["\u201d])""")


def _index_entry(node: Element, reader: XmlReader) -> str:
    """Return the instruction of a field: of an entry of an index, with the reference to its text."""
    entry = _INDEX_ENTRY.match(node.text)
    if entry is None:
        return node.verbatim
    own = reader.units.plain(entry["text"], as_text(entry["text"]), as_text)
    return node.holding(as_text(entry[1]), own, as_text(node.text[entry.end() :]))


_NO_TEXT = frozenset(("w:date", "w:picture", "w:docPartObj", "w:docPartList", "w:group"))


def _control(node: Element, reader: XmlReader) -> str:
    """Return the properties of a content control.

    Word writes what it is bound to over its text: a property of the document is translated with it, from all
    else it is freed.
    """
    bindings = [] if elements(node, *_NO_TEXT) else elements(node, "w:dataBinding")
    freed = [binding for binding in bindings if "coreProperties" not in binding.attributes.get("xpath", "")]
    return node.holding(reader.written(child for child in node.children if child not in freed))


_SHAPE = ("descr", "title")
_HEADERS = [f"x:{which}{what}" for which in ("odd", "even", "first") for what in ("Header", "Footer")]


def rules(
    reading: Reading, *, names: frozenset[str] = frozenset(), properties: Collection[str] = ()
) -> XmlRules:
    """Return the rules that say which elements of a document are text.

    Args:
        reading: the languages; runs name the one to translate into for spelling.
        names: the names of columns of tables and of fields of pivot tables; cells with such a text stay.
        properties: the properties of the document that its text shows.
    """
    language, direction = reading.language, new_direction(reading)

    def cell(node: Element, reader: XmlReader) -> str:
        return node.verbatim if names and node.text in names else _paragraph(node, reader)

    named = language if language is not None and _LANGUAGE_TAG.fullmatch(language) else None

    def in_language(node: Element, reader: XmlReader) -> str:
        opening, name = node.opening, "val" if node.name == "w:lang" else "lang"
        its = primary_language(node.attributes.get(name, ""))
        if named is not None and its != primary_language(named):
            opening = with_value(opening, name, lambda _: named)
        if named is not None and name == "val" and (kind := attribute_of_language(named)) != name:
            opening = with_attribute(opening, node.prefix + kind, named)
        return opening + reader.written(node.children) + node.closing

    return XmlRules(
        prefixes=_PREFIXES,
        units={
            "w:p": _paragraphs(),
            **dict.fromkeys(("a:p", "x:text"), _paragraph),
            **dict.fromkeys(("x:si", "x:is"), cell),
            **dict.fromkeys(_HEADERS, header),
            **dict.fromkeys(("c:strCache", "c:multiLvlStrCache"), cached_strings),
            **dict.fromkeys((*properties, "tc:text"), plain_content),
            "x:dataValidation": validation,
            **dict.fromkeys(("x:cfRule", "x14:cfRule"), condition),
            **dict.fromkeys(("x:formula", "xm:f"), formula),
            "x:numFmt": number_format,
            "w:instrText": _index_entry,
            **dict.fromkeys(PROPERTIES_OF_WORD, partial(word_properties, direction=direction)),
            "x:c": formula_cell,
            "x:calcPr": calculation,
            "w:sdtPr": _control,
            **dict.fromkeys(("w:lang", "a:rPr", "a:endParaRPr"), in_language),
        },
        attributes={
            **dict.fromkeys(("wp:docPr", "pic:cNvPr", "p:cNvPr", "xdr:cNvPr"), _SHAPE),
            **dict.fromkeys(("x:filter", "x:customFilter"), ("val",)),
            "v:shape": ("alt",),
            "v:textpath": ("string",),
            "w:listItem": ("displayText",),
            "w:listEntry": ("val",),
            **dict.fromkeys(("w:hyperlink", "a:hlinkClick", "x:hyperlink"), ("tooltip",)),
        },
        tags=office_tags(direction),
        skipped=frozenset(("w:del", "w:moveFrom")),
    )


# The elements of the properties that texts show, by the names of their elements and of fields.
PROPERTIES = {
    "title": "dc:title",
    "subject": "dc:subject",
    "description": "dc:description",
    "comments": "dc:description",
    "keywords": "cp:keywords",
    "category": "cp:category",
}
# The ends of the content types of parts that people read; macros, styles and settings are none of them.
PARTS = re.compile(
    r"(?:wordprocessingml\.(?:document|template)\.main|ms-word\.(?:document|template)\.macroEnabled\.main"
    r"|wordprocessingml\.(?:document\.glossary|header|footer|footnotes|endnotes|comments)"
    r"|presentationml\.(?:slide|notesSlide)|drawingml\.(?:chart|diagramData)|ms-office\.drawingml\.diagramDrawing"
    r"|spreadsheetml\.(?:sharedStrings|worksheet|comments)|ms-excel\.threadedcomments"
    r"|officedocument\.drawing)\+xml"
)
