"""The parts of Office Open XML packages (docx, pptx, xlsx): which of them have text, and how each is read."""

import posixpath
import re
import zipfile
from collections.abc import Iterator
from functools import cached_property, partial
from itertools import chain
from pathlib import PurePath

from heedful.documents import office
from heedful.documents.formats import MEDIA, PartReader, Reading
from heedful.documents.text_files import read_lines
from heedful.documents.web_pages import read_html
from heedful.documents.xml_text import tags_of
from heedful.errors import InputError

_TYPES = "[Content_Types].xml"
_CHUNKS: dict[str, PartReader] = {
    **dict.fromkeys(("text/html", "application/xhtml+xml"), (partial(read_html, reading=Reading()), "html")),
    "text/plain": (partial(read_lines, reading=Reading()), None),
}
_RELATIONS = r"word/_rels/document\.xml\.rels"
_TABLE_PART = r"xl/(?:tables/[^/]+|pivotCache/pivotCacheDefinition[^/]*)\.xml"
# Properties that a control is bound to or a field shows; cells with a formula and a text as its result.
_SHOWN_PROPERTY = re.compile(
    r"""coreProperties\[1\]/(?:\w+:)?(\w+)\[1\]|[>"']\s*(TITLE|SUBJECT|KEYWORDS|COMMENTS)\b"""
)
_TEXT_RESULT = re.compile(r"""<(?:\w+:)?c\s[^<>]*\bt=["']str["'][^<>]*><(?:\w+:)?f""")


def office_parts(package: zipfile.ZipFile, reading: Reading) -> dict[str, PartReader]:
    """Return how each part that people read is read.

    Raises:
        InputError: it is no such package, a part is missing, or one is of another format.
    """
    opened = _Package(package)
    main = opened.main_parts()
    texts = [package.read(name).decode("utf-8", "replace") for name in main]
    properties = _shown_properties(texts)
    changed = {*main, *opened.further_parts(texts, properties, reading.language)}
    rules = office.rules(reading, names=opened.column_names(), properties=properties)
    parts: dict[str, PartReader] = dict.fromkeys(
        (name for name in opened.type_of if name in changed), (rules.read, "xml")
    )
    return parts | opened.chunks()


class _Package:
    """A package of Office Open XML, and what it says about its members."""

    def __init__(self, package: zipfile.ZipFile) -> None:
        """Check the names of the members.

        Raises:
            InputError: it has no list of content types, or names that office programs do not read.
        """
        self._package = package
        self._names = package.namelist()
        if _TYPES not in self._names:
            raise InputError("damaged, or no document of Office Open XML: it has no list of content types")
        if any("\\" in name for name in self._names):
            raise InputError(
                "the names of its parts have backslashes; open it in an office program and save it anew"
            )

    def _tags(self, names: str) -> Iterator[tuple[str, dict[str, str]]]:
        """Yield the tags of the members with names that match a pattern."""
        for name in self._names:
            if re.fullmatch(names, name):
                yield from tags_of(self._package, name)

    @cached_property
    def type_of(self) -> dict[str, str]:
        """The content type of each part: its own, or else the one of the end of its name."""
        of_end: dict[str, str] = {}
        of_name: dict[str, str] = {}
        for tag, attributes in self._tags(re.escape(_TYPES)):
            kind = attributes.get("ContentType", "")
            if tag == "Default":
                of_end[attributes.get("Extension", "").lower()] = kind
            elif tag == "Override":
                of_name[attributes.get("PartName", "").removeprefix("/")] = kind
        for name in self._names:
            of_name.setdefault(name, of_end.get(PurePath(name).suffix[1:].lower(), ""))
        return of_name

    def main_parts(self) -> list[str]:
        """Return the names of the parts with text.

        Raises:
            InputError: one of them is missing.
        """
        main = [name for name, kind in self.type_of.items() if office.PARTS.search(kind)]
        main = [name for name in main if not MEDIA.search(name)]
        if missing := sorted({*main}.difference(self._names)):
            raise InputError(f"damaged: its part {missing[0]} is missing")
        return main

    def further_parts(self, texts: list[str], properties: list[str], language: str | None) -> list[str]:
        """Return the names of the other parts that change: results of formulas, properties and styles.

        Args:
            texts: the text of each part with text.
            properties: the properties of the document that its text shows.
            language: the language of the translation; None: unknown.
        """
        is_changed = {
            "sheet.main+xml": any(map(_TEXT_RESULT.search, texts)),
            "core-properties": bool(properties),
            "wordprocessingml.styles+xml": language is not None,
            "spreadsheetml.styles+xml": True,
        }
        ends = [end for end, is_so in is_changed.items() if is_so]
        return [name for name in self._names if any(end in self.type_of[name] for end in ends)]

    def column_names(self) -> frozenset[str]:
        """Return the names by which formulas and pivot tables find columns: cells with such a text stay."""
        columns = (
            attributes.get("name", "")
            for tag, attributes in self._tags(_TABLE_PART)
            if tag in ("tableColumn", "cacheField")
        )
        return frozenset(name.replace("_x000a_", "\n") for name in columns)

    def chunks(self) -> dict[str, PartReader]:
        """Return how the parts are read that a Word document shows in their own formats (w:altChunk).

        Raises:
            InputError: one is a document of another format.
        """
        chunks: dict[str, PartReader] = {}
        for _, attributes in self._tags(_RELATIONS):
            name = posixpath.join("/word", attributes.get("Target", ""))[1:]
            if name not in self._names or not attributes.get("Type", "").endswith("/aFChunk"):
                continue
            kind = self.type_of[name].partition(";")[0]
            if kind not in _CHUNKS:
                raise InputError(
                    f"its part {name} is a document of another format; open it in Word and save it anew"
                )
            chunks[name] = _CHUNKS[kind]
        return chunks


def _shown_properties(texts: list[str]) -> list[str]:
    """Return the elements of the properties that texts show."""
    found = chain.from_iterable(map(_SHOWN_PROPERTY.findall, texts))
    names = {(control or field).lower() for control, field in found}
    return [element for name, element in office.PROPERTIES.items() if name in names]
