"""Pages of HTML: text between tags, attributes that a reader sees, the language; and books of pages."""

import html
import posixpath
import re
import zipfile
from collections.abc import Mapping
from functools import partial
from urllib.parse import unquote

from heedful.documents.formats import Reading, primary_language
from heedful.documents.markup import html_rules, read_markup
from heedful.documents.template import PartReader, Template
from heedful.documents.tokens import ATTRIBUTE, Kind, Token, attributes
from heedful.documents.xml_text import Element, XmlReader, XmlRules, plain_content, tags_of, verbatim
from heedful.errors import InputError

# Attributes that browsers show or read aloud; a value is a text on a button, a content in a preview.
_SHOWN = frozenset({
    "alt", "title", "placeholder", "label", "aria-label", "aria-description", "aria-roledescription",
})  # fmt: skip
_BUTTONS = frozenset(("button", "submit", "reset"))
_PREVIEWS = frozenset({
    "description", "og:title", "og:description", "og:image:alt", "twitter:title", "twitter:description",
})  # fmt: skip
_RIGHT_TO_LEFT = frozenset({
    "ar", "arc", "ckb", "dv", "fa", "he", "iw", "ks", "nqo", "ps", "sd", "syr", "ug", "ur", "yi",
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
        parts: list[str] = []
        at = 0
        for each in ATTRIBUTE.finditer(raw):
            new = self._new_value(token.name, each["name"].lower(), values, each)
            if new is not None:
                start, end = each.span(each.lastgroup or 0)
                parts += [raw[at:start], new]
                at = end
        raw = "".join([*parts, raw[at:]])
        return self._with_direction(raw, values) if token.name == "html" else raw

    def _new_value(self, tag: str, name: str, values: Mapping[str, str], match: re.Match[str]) -> str | None:
        """Return what is written for the value of an attribute; None: it stays."""
        value = values[name]
        if name in ("lang", "xml:lang"):
            primary = primary_language(value)
            self._named = self._named or primary
            is_own = self._language is not None and primary == self._named
            return self._language if is_own and primary != primary_language(self._language or "") else None
        is_button = name == "value" and tag == "input" and values.get("type", "").lower() in _BUTTONS
        kind = values.get("name") or values.get("property") or ""
        is_preview = name == "content" and tag == "meta" and kind.lower() in _PREVIEWS
        if not (name in _SHOWN or is_button or is_preview):
            return None
        escape = _quoted if match.lastgroup == "bare" else partial(html.escape, quote=True)
        return self._units.plain(value, match[match.lastgroup or 0], escape)

    def _with_direction(self, raw: str, values: Mapping[str, str]) -> str:
        """Return the first tag of a page with the direction of the language, if that is another."""
        if self._language is None or not self._named:
            return raw
        direction = "rtl" if primary_language(self._language) in _RIGHT_TO_LEFT else "ltr"
        if "dir" in values:
            return re.sub(r"""(\sdir\s*=\s*["']?)\w+""", rf"\g<1>{direction}", raw, flags=re.IGNORECASE)
        return raw if direction == "ltr" else re.sub(r"^<\w+", r'\g<0> dir="rtl"', raw)


def _quoted(value: str) -> str:
    return f'"{html.escape(value, quote=True)}"'


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
    contents: PartReader = _book_rules(reading.language).read, "xml"
    reader_of: dict[str, PartReader] = {
        "application/xhtml+xml": (partial(read_html, reading=reading), "html"),
        "application/x-dtbncx+xml": contents,
    }
    parts: dict[str, PartReader] = {}
    for root in roots:
        parts[root] = contents
        items = (own for tag, own in tags_of(package, root) if tag == "item")
        for own in items:
            path = posixpath.join(posixpath.dirname(root), unquote(own.get("href", "")))
            name, kind = posixpath.normpath(path), own.get("media-type", "")
            if name in names and kind in reader_of:
                parts[name] = reader_of[kind]
    return parts


def _book_rules(language: str | None) -> XmlRules:
    def its_language(node: Element, _: XmlReader) -> str:
        return verbatim(node) if language is None else node.opening + language + node.closing

    return XmlRules(
        prefixes=_PREFIXES,
        units={
            **dict.fromkeys(("dc:title", "dc:description", "dc:subject", "ncx:text"), plain_content),
            "dc:language": its_language,
        },
        may_declare=True,
    )
