"""Sheets of Excel: what would contradict the translated cells, and what Excel limits."""

import html
import re
from functools import partial

from heedful.documents.template import Unit
from heedful.documents.xml_text import (
    Element,
    XmlReader,
    as_attribute,
    as_text,
    elements,
    plain_content,
    with_value,
    without_attribute,
)
from heedful.spans.spanned_text import Builder, Kind, SpannedText, has_letters, markup

# What Excel repairs a file for, if it is longer, in UTF-16: headers and footers, messages of validation.
_MAX_HEADER = 255
_MAX_MESSAGE = {"promptTitle": 32, "prompt": 255, "errorTitle": 32, "error": 255}


def _fits(text: str, max_length: int) -> bool:
    return len(text.encode("utf-16-le", "surrogatepass")) <= 2 * max_length


def validation(node: Element, reader: XmlReader) -> str:
    """Return a validation with references to its messages; one stays if its translation is too long."""

    def message(raw: str, name: str) -> str:
        def written(translation: str) -> str:
            return as_attribute(translation) if _fits(translation, _MAX_MESSAGE[name]) else raw

        return reader.units.plain(node.attributes[name], raw, written)

    opening = node.opening
    for name in _MAX_MESSAGE:
        opening = with_value(opening, name, partial(message, name=name))
    lists = elements(node, "x:formula1") if node.attributes.get("type") == "list" else []
    parts = [
        _list(child, reader) if isinstance(child, Element) and child in lists else reader.raw(child)
        for child in node.children
    ]
    return opening + "".join(parts) + node.closing


_MAX_LIST = 255


def _list(node: Element, reader: XmlReader) -> str:
    """Return a list of values with the reference to their unit: cells with one of them are translated."""
    text = node.text
    if not (text.startswith('"') and text.endswith('"') and has_letters(text)):
        return node.verbatim
    builder = Builder()
    for number, value in enumerate(text[1:-1].replace('""', '"').split(",")):
        if number:
            builder.point(",", "break")
        builder.text(value)

    def write(translation: SpannedText) -> str:
        values = markup(translation, lambda value: as_text(value.replace(",", "\u201a").replace('"', '""')))
        is_short = _fits(html.unescape(values), _MAX_LIST)
        return f'"{values}"' if is_short else node.inner

    return node.holding(reader.units.refer(Unit(builder.source(), write)))


# Between double quotes, also escaped: the texts of a list, and those that a formula looks for in cells.
_QUOTE = r"""(?: " | &quot; )"""
_QUOTED = rf"{_QUOTE} (?P<text> (?: (?! {_QUOTE} ) . | {_QUOTE}{_QUOTE} )++ ) {_QUOTE}"
LIST = re.compile(_QUOTED, re.VERBOSE)
_SOUGHT = re.compile(
    rf"""(?: ^ | [=;] | \b(?: SEARCH | FIND | LEN | contains-text | begins-with | ends-with )\( )
    \s* {_QUOTED}""",
    re.VERBOSE | re.IGNORECASE,
)


def quoted_texts(raw: str, reader: XmlReader, pattern: re.Pattern[str] = _SOUGHT) -> str:
    """Return a formula, as written in XML, with references to texts in it: cells with them are translated."""

    def text(found: re.Match[str]) -> str:
        own = html.unescape(found["text"]).replace('""', '"')
        new = reader.units.plain(own, found["text"], lambda text: as_attribute(text.replace('"', '""')))
        start, end = (at - found.start() for at in found.span("text"))
        return found[0][:start] + new + found[0][end:]

    return pattern.sub(text, raw)


def condition(node: Element, reader: XmlReader) -> str:
    """Return a rule for the format of cells, with references to the texts that it looks for."""
    text = node.attributes.get("text", "")
    opening = with_value(node.opening, "text", partial(reader.units.plain, text, escape=as_attribute))
    return opening + reader.written(node.children) + node.closing


def formula(node: Element, reader: XmlReader) -> str:
    """Return a formula of a rule for cells."""
    return node.holding(quoted_texts(node.inner, reader))


# Words in the format of a number: 0" pieces". Not currencies, which programs and people take for signs.
_WORDS = re.compile(rf"(?<! \\ ) (?= {_QUOTE} [^\"&;]*? [^\W\d_A-Z] [^\W\d_]{{2}} ) {_QUOTED}", re.VERBOSE)


def number_format(node: Element, reader: XmlReader) -> str:
    """Return the format of numbers with references to the words in it."""

    def code(raw: str) -> str:
        return quoted_texts(raw, reader, _WORDS)

    return with_value(node.opening, "formatCode", code) + node.inner + node.closing


def number_text(node: Element, reader: XmlReader) -> str:
    """Return a text in the format of a number of OpenDocument."""
    is_word = re.search(r"[^\W\d_]{3}", node.text) and not node.text.strip().isupper()
    return plain_content(node, reader) if is_word else node.verbatim


def formula_cell(node: Element, reader: XmlReader) -> str:
    """Return a cell, without a text that is the result of a formula: programs compute it anew."""
    is_formula = node.attributes.get("t") == "str" and elements(node, "x:f")
    if not is_formula or not any(has_letters(value.text) for value in elements(node, "x:v")):
        return node.holding(reader.written(node.children))
    return node.holding(*(child.verbatim for child in node.children if child.name != "x:v"))


def calculation(node: Element, _: XmlReader) -> str:
    """Return the settings of calculation, by which results are computed when the workbook is opened."""
    if node.attributes.get("fullCalcOnLoad") in ("1", "true"):
        return node.verbatim
    opening = without_attribute(node.opening, "fullCalcOnLoad")
    return re.sub(r"(?=/?>\Z)", ' fullCalcOnLoad="1"', opening, count=1) + node.closing


def cached_strings(node: Element, reader: XmlReader) -> str:
    """Return the labels that a chart has copied from cells, with references to their units."""
    if node.name == "c:v":
        return plain_content(node, reader)
    inside = (
        cached_strings(child, reader) if isinstance(child, Element) else child.verbatim
        for child in node.children
    )
    return node.holding(*inside)


# Codes in headers and footers of sheets: of their three sections, of formats, and of numbers.
_HEADER_CODE = re.compile(
    r"""&(?:(?P<section>[LCR])|(?P<style>"[^"]*"|\d+|K[0-9A-Fa-f+-]{6}|[BIUESXYOH])|[^&])"""
)


_KIND_OF_CODE: dict[str | None, Kind] = {"section": "break", "style": "point", None: "object"}


def header(node: Element, reader: XmlReader) -> str:
    """Return a header or footer with the reference to its unit; it stays if its translation is too long."""
    text = node.text
    if not has_letters(_HEADER_CODE.sub("", text)):
        return node.verbatim
    builder = Builder()
    at = 0
    for code in _HEADER_CODE.finditer(text):
        builder.text(text[at : code.start()].replace("&&", "&"))
        at = code.end()
        builder.point(as_text(code.group()), _KIND_OF_CODE[code.lastgroup])
    builder.text(text[at:].replace("&&", "&"))

    def write(translation: SpannedText) -> str:
        new = markup(translation, lambda part: as_text(part.replace("&", "&&")))
        return new if _fits(html.unescape(new), _MAX_HEADER) else node.inner

    return node.holding(reader.units.refer(Unit(builder.source(), write)))
