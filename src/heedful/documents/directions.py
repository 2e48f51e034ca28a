"""The language and the direction of a translation, as office documents say them."""

import re
from functools import partial

from heedful.documents.formats import Reading, primary_language
from heedful.documents.xml_text import Element, TagChange, XmlReader, with_attribute, with_value
from heedful.text.languages import is_right_to_left

# For properties of Word: the element that says that text runs from right to left, and which elements of the
# schema come behind it (ECMA-376, 17.3.1.6, 17.3.2.30, 17.4.1, 17.6.1).
_WORD = {
    "w:pPr": (
        "bidi",
        "adjustRightInd snapToGrid spacing ind contextualSpacing mirrorIndents suppressOverlap jc"
        " textDirection textAlignment textboxTightWrap outlineLvl divId"
        " cnfStyle rPr sectPr pPrChange",
    ),
    "w:rPr": ("rtl", "cs em lang eastAsianLayout specVanish oMath rPrChange"),
    "w:tblPr": (
        "bidiVisual",
        "tblStyleRowBandSize tblStyleColBandSize tblW jc tblCellSpacing tblInd tblBorders shd tblLayout"
        " tblCellMar tblLook tblCaption tblDescription tblPrChange",
    ),
    "w:sectPr": ("bidi", "rtlGutter docGrid printerSettings sectPrChange"),
}
PROPERTIES_OF_WORD = frozenset(_WORD)
_OTHER_SIDE = {"l": "r", "r": "l"}
_FROM_START = {"left": "start", "right": "end"}
# Languages that office programs keep apart from others, besides those from right to left.
_EAST_ASIAN = frozenset(("ja", "ko", "yue", "zh"))


def new_direction(reading: Reading) -> str | None:
    """Return the direction of a translation, "rtl" or "ltr"; None: it is the document's, or not known."""
    if reading.language is None:
        return None
    is_new = is_right_to_left(reading.language)
    is_old = reading.source is not None and is_right_to_left(reading.source)
    if is_new == is_old:
        return None
    return "rtl" if is_new else "ltr"


def word_properties(node: Element, reader: XmlReader, *, direction: str | None) -> str:
    """Return properties of a paragraph, a run, a table or a section of Word in a direction."""
    if direction is None:
        return reader.opening(node) + reader.written(node.children) + node.closing
    name, behind = _WORD[node.name]
    children = [child for child in node.children if child.name != f"w:{name}"]
    if direction == "ltr":
        return node.holding(reader.written(children))
    following = {f"w:{other}" for other in behind.split()}
    at = next((at for at, child in enumerate(children) if child.name in following), len(children))
    mark = f"<{node.prefix}{name}/>"
    opening, closing = node.opening, node.closing
    if not closing:
        opening = f"{opening.rstrip('/> ')}>"
        closing = f"</{node.prefix}{node.name.removeprefix('w:')}>"
    return opening + reader.written(children[:at]) + mark + reader.written(children[at:]) + closing


def office_tags(direction: str | None) -> dict[str, TagChange]:
    """Return the changes of tags of slides and sheets in a direction."""
    if direction is None:
        return {}
    is_rtl = "1" if direction == "rtl" else "0"

    def paragraph(tag: str, _: str) -> str:
        tag = with_value(tag, "algn", lambda side: _OTHER_SIDE.get(side, side))
        return with_attribute(tag, "rtl", is_rtl)

    return {
        "a:pPr": paragraph,
        "a:tblPr": lambda tag, _: with_attribute(tag, "rtl", is_rtl),
        "x:sheetView": lambda tag, _: with_attribute(tag, "rightToLeft", is_rtl),
    }


def attribute_of_language(language: str) -> str:
    """Return what office programs call the kind of a language: "bidi", "eastAsia" or "val"."""
    if is_right_to_left(language):
        return "bidi"
    return "eastAsia" if primary_language(language) in _EAST_ASIAN else "val"


_ENDING_OF_KIND = {"bidi": "-complex", "eastAsia": "-asian", "val": ""}


def open_document_tags(reading: Reading) -> dict[str, TagChange]:
    """Return the changes of tags of OpenDocument for the language and the direction of the translation."""
    changes: dict[str, TagChange] = {}
    language, direction = reading.language, new_direction(reading)
    if language is not None:
        changes["style:text-properties"] = partial(_in_language, language=language)
    if direction is not None:
        for kind in ("paragraph", "page-layout", "table"):
            changes[f"style:{kind}-properties"] = partial(_in_direction, direction=direction)
    return changes


def _in_language(tag: str, _: str, *, language: str) -> str:
    ending = _ENDING_OF_KIND[attribute_of_language(language)]
    subtags = re.split("[-_]", language)
    region = next((subtag for subtag in subtags[1:] if subtag.isupper()), "none")
    tag = with_value(tag, f"language{ending}", lambda _: primary_language(language))
    return with_value(tag, f"country{ending}", lambda _: region)


def _in_direction(tag: str, name: str, *, direction: str) -> str:
    prefix = re.sub(r"(?s)<([^\s/>]*:)?.*", r"\1", tag)
    mode = "rl-tb" if direction == "rtl" else "lr-tb"
    tag = with_value(tag, "text-align", lambda side: _FROM_START.get(side, side))
    return with_attribute(tag, f"{prefix}writing-mode", mode)
