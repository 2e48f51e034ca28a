"""Pages of HTML: text between tags, attributes that a reader sees, the language; and books of pages."""

import html
import posixpath
import re
import zipfile
from collections.abc import Mapping
from functools import partial
from urllib.parse import unquote

from heedful.documents.directions import new_direction
from heedful.documents.formats import PartReader, Reading, primary_language
from heedful.documents.markup import html_rules, read_markup
from heedful.documents.template import Template
from heedful.documents.tokens import ATTRIBUTE, Kind, Token, attributes
from heedful.documents.xml_text import (
    Element,
    XmlReader,
    XmlRules,
    plain_content,
    tags_of,
    with_attribute,
    with_value,
)
from heedful.errors import InputError
from heedful.text.languages import is_right_to_left

# Attributes that browsers show or read aloud; a value is a text on a button, a content in a preview.
_SHOWN = frozenset({
    "alt", "title", "placeholder", "label", "aria-label", "aria-description", "aria-roledescription",
})  # fmt: skip
_BUTTONS = frozenset(("button", "submit", "reset"))
_PREVIEWS = frozenset({
    "description", "og:title", "og:description", "og:image:alt", "twitter:title", "twitter:description",
})  # fmt: skip


def read_html(text: str, reading: Reading) -> Template:
    """Read HTML: the text between tags that separate sentences, and attributes that a reader sees.

    The page then names the language to translate into, if it is known.
    """
    units = Template()
    page = PageTags(units, reading.language)
    return units.filled(read_markup(text, html_rules(), units, tag=page.written))


class PageTags:
    """Writes the tags of a page, with references to the units in their attributes."""

    def __init__(self, units: Template, language: str | None) -> None:
        self._units, self._language = units, language
        self._named = ""  # the language that the page is in

    def written(self, token: Token) -> str:
        """Return a start tag, or a tag without content, as it is written; other tokens as they are."""
        raw = token.raw
        if not token.name or "=" not in raw:
            return raw
        is_tag = raw.startswith("<") and raw.count("<") == 1 and token.name not in ("link", "style")
        if token.kind is Kind.CLOSE or token.translated is False or not is_tag:
            return raw
        values = attributes(raw)
        written = ATTRIBUTE.sub(partial(self._attribute, token.name, values), raw)
        return self._with_direction(written, values) if token.name == "html" else written

    def _attribute(self, tag: str, values: Mapping[str, str], attribute: re.Match[str]) -> str:
        """Return an attribute as it is written, with the reference to its value if readers see that."""
        name, form = attribute["name"].lower(), attribute.lastgroup or ""
        raw, value = attribute[form], values[name]
        if name in ("lang", "xml:lang"):
            new = self._new_language(primary_language(value)) or raw
        elif _is_shown(tag, name, values):
            escape = _quoted if form == "bare" else partial(html.escape, quote=True)
            new = self._units.plain(value, raw, escape)
        else:
            return attribute.group()
        start, end = (at - attribute.start() for at in attribute.span(form))
        return attribute.group()[:start] + new + attribute.group()[end:]

    def _new_language(self, language: str) -> str | None:
        """Return the language of the translation in place of the page's own; None: another is named."""
        self._named = self._named or language
        if self._language is None or language != self._named or language == primary_language(self._language):
            return None
        return self._language

    def _with_direction(self, raw: str, values: Mapping[str, str]) -> str:
        """Return the first tag of a page with the direction of the language, if that is another."""
        if self._language is None or not self._named:
            return raw
        direction = "rtl" if is_right_to_left(self._language) else "ltr"
        if "dir" in values:
            names = [found["name"] for found in ATTRIBUTE.finditer(raw) if found["name"].lower() == "dir"]
            return with_value(raw, names[-1], lambda _: direction)
        return raw if direction == "ltr" else re.sub(r"^<\w+", r'\g<0> dir="rtl"', raw)


def _is_shown(tag: str, name: str, values: Mapping[str, str]) -> bool:
    """Return whether readers see the value of an attribute, by its name and the others of its tag."""
    if (tag, name) == ("input", "value"):
        return values.get("type", "").lower() in _BUTTONS
    if (tag, name) == ("meta", "content"):
        return (values.get("name") or values.get("property") or "").lower() in _PREVIEWS
    return name in _SHOWN


def _quoted(value: str) -> str:
    return f'"{html.escape(value, quote=True)}"'


_DIRECTION = "page-progression-direction"
_PACKAGE = "http://www.idpf.org/2007/opf"
_PREFIXES = {
    "http://purl.org/dc/elements/1.1/": "dc",
    "http://www.daisy.org/z3986/2005/ncx/": "ncx",
    _PACKAGE: "opf",
}


def book_parts(package: zipfile.ZipFile, reading: Reading) -> dict[str, PartReader]:
    """Return how each part of a book (EPUB 2 and 3) is read: pages, tables of contents, and its title.

    Raises:
        InputError: it is no book.
    """
    names = frozenset(package.namelist())
    container = "META-INF/container.xml"
    tags = tags_of(package, container) if container in names else ()
    roots = [own.get("full-path", "") for tag, own in tags if tag == "rootfile"]
    if not roots or not names.issuperset(roots):
        raise InputError("damaged, or no EPUB: it names no package of pages")
    contents: PartReader = _book_rules(reading).read, "xml"
    reader_of: dict[str, PartReader] = {
        "application/xhtml+xml": (partial(read_html, reading=reading), "html"),
        "application/x-dtbncx+xml": contents,
    }
    parts: dict[str, PartReader] = {}
    for root in roots:
        parts[root] = contents
        for tag, item in tags_of(package, root):
            path = posixpath.join(posixpath.dirname(root), unquote(item.get("href", "")))
            name, kind = posixpath.normpath(path), item.get("media-type", "")
            if tag == "item" and name in names and kind in reader_of:
                parts[name] = reader_of[kind]
    return parts


def _book_rules(reading: Reading) -> XmlRules:
    language = reading.language

    def its_language(node: Element, _: XmlReader) -> str:
        return node.verbatim if language is None else node.holding(language)

    def in_language(tag: str, name: str) -> str:
        if language is None:
            return tag
        if name != "opf:spine":
            return with_value(tag, "lang", lambda _: language)
        direction = new_direction(reading)
        return tag if direction is None else with_attribute(tag, _DIRECTION, direction)

    return XmlRules(
        prefixes=_PREFIXES,
        units={
            **dict.fromkeys(("dc:title", "dc:description", "dc:subject", "ncx:text"), plain_content),
            "dc:language": its_language,
        },
        tags=dict.fromkeys(("opf:package", "opf:spine", "ncx:ncx"), in_language),
        skipped=frozenset(("ncx:pageTarget",)),
        may_declare=True,
    )
