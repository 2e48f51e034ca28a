"""Sheets of Excel: what would contradict the translated cells, and what Excel limits."""

import html
import re
from functools import partial

from heedful.documents.template import Unit
from heedful.documents.xml_text import (
    Chars,
    Element,
    XmlReader,
    as_attribute,
    as_text,
    elements,
    plain_content,
    plain_text,
    verbatim,
    with_value,
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
    is_list = node.attributes.get("type") == "list"
    parts = (
        _list(each, reader)
        if is_list and isinstance(each, Element) and each.name == "x:formula1"
        else reader.raw(each)
        for each in node.children
    )
    return opening + "".join(parts) + node.closing


_MAX_LIST = 255


def _list(node: Element, reader: XmlReader) -> str:
    """Return a list of values with the reference to their unit: cells with one of them are translated."""
    text = plain_text(node)
    if not (text.startswith('"') and text.endswith('"') and has_letters(text)):
        return verbatim(node)
    builder = Builder()
    for number, value in enumerate(text[1:-1].replace('""', '"').split(",")):
        if number:
            builder.point(",", "break")
        builder.text(value)

    def write(translation: SpannedText) -> str:
        values = markup(translation, lambda value: as_text(value.replace(",", "\u201a").replace('"', '""')))
        is_short = _fits(html.unescape(values), _MAX_LIST)
        return f'"{values}"' if is_short else "".join(map(verbatim, node.children))

    return node.opening + reader.units.refer(Unit(builder.source(), write)) + node.closing


def formula_cell(node: Element, reader: XmlReader) -> str:
    """Return a cell, without a text that is the result of a formula: programs compute it anew."""
    children = elements(node)
    is_formula = any(each.name == "x:f" for each in children) and node.attributes.get("t") == "str"
    if not is_formula or not any(each.name == "x:v" and has_letters(plain_text(each)) for each in children):
        return node.opening + reader.content(node) + node.closing
    kept = (each for each in node.children if not (isinstance(each, Element) and each.name == "x:v"))
    return node.opening + "".join(map(verbatim, kept)) + node.closing


def calculation(node: Element, _: XmlReader) -> str:
    """Return the settings of calculation, by which results are computed when the workbook is opened."""
    if node.attributes.get("fullCalcOnLoad") in ("1", "true"):
        return verbatim(node)
    opening = re.sub(r"\sfullCalcOnLoad=(?:\"[^\"]*\"|'[^']*')", "", node.opening)
    end = "/>" if opening.endswith("/>") else ">"
    return opening.removesuffix(end) + ' fullCalcOnLoad="1"' + end + node.closing


def cached_strings(node: Element, reader: XmlReader) -> str:
    """Return the labels that a chart has copied from cells, with references to their units."""
    inside = (
        each.raw
        if isinstance(each, Chars)
        else plain_content(each, reader)
        if each.name == "c:v"
        else cached_strings(each, reader)
        for each in node.children
    )
    return node.opening + "".join(inside) + node.closing


# Codes in headers and footers of sheets: of their three sections, of formats, and of numbers.
_HEADER_CODE = re.compile(
    r"""&(?:(?P<section>[LCR])|(?P<style>"[^"]*"|\d+|K[0-9A-Fa-f+-]{6}|[BIUESXYOH])|[^&])"""
)


def header(node: Element, reader: XmlReader) -> str:
    """Return a header or footer with the reference to its unit; it stays if its translation is too long."""
    text = "".join(each.text for each in node.children if isinstance(each, Chars))
    if not has_letters(_HEADER_CODE.sub("", text)):
        return verbatim(node)
    builder = Builder()
    at = 0
    for match in _HEADER_CODE.finditer(text):
        builder.text(text[at : match.start()].replace("&&", "&"))
        at = match.end()
        kind: Kind = "break" if match["section"] else "point" if match["style"] else "object"
        builder.point(as_text(match.group()), kind)
    builder.text(text[at:].replace("&&", "&"))

    def write(translation: SpannedText) -> str:
        new = markup(translation, lambda part: as_text(part.replace("&", "&&")))
        return new if _fits(html.unescape(new), _MAX_HEADER) else "".join(map(verbatim, node.children))

    return node.opening + reader.units.refer(Unit(builder.source(), write)) + node.closing
