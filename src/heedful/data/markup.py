"""Files of markup, which are never read as lines of text."""

import re
from pathlib import PurePath

from heedful.errors import CorpusError

_AS_DOCUMENT = "translate it with --document, or write its text one sentence a line"
_AS_PAIRS = "translate it with --document; for pairs of texts, write it as TMX, XLIFF or .po"
_AS_UNITS = "give it as source and as target both, or as --pairs"
# What is never read as lines, by the end of its name: what it is, and what to do with it.
_MARKUP = {
    ".tmx": ("TMX", _AS_UNITS),
    **dict.fromkeys((".xlf", ".xliff"), ("XLIFF", _AS_UNITS)),
    ".po": ("a catalogue of messages", _AS_UNITS),
    **dict.fromkeys((".sdlxliff", ".mxliff"), ("XLIFF", _AS_PAIRS)),
    ".pot": ("a catalogue without translations", _AS_PAIRS),
    **dict.fromkeys((".html", ".htm", ".xhtml"), ("HTML", _AS_DOCUMENT)),
    ".xml": ("XML", _AS_DOCUMENT),
}
# An XML declaration, or the first element of TMX or HTML: no sentence begins with these.
_MARKUP_START = re.compile(
    rb"(\xef\xbb\xbf)?\s*"
    rb"(<\?xml\s+version\s*=[^>]*\?>\s*(<|\Z)|<tmx\s+version\s*=|<!doctype\s+(html|tmx)\b)",
    re.IGNORECASE,
)


def refuse_markup(name: str, start: bytes = b"") -> None:
    """Refuse a file of markup where lines are read: by the end of its name, or by how its text begins.

    Args:
        name: of the file.
        start: its first line, or more.

    Raises:
        CorpusError: it says what to do with the file.
    """
    found = _MARKUP.get(PurePath(name.lower().removesuffix(".gz")).suffix)
    if found is None and _MARKUP_START.match(start):
        is_html = b"<!doctype html" in start.lower()
        as_tmx = ("TMX", f"let its name end in .tmx, and {_AS_UNITS}")
        found = as_tmx if b"<tmx" in start else _MARKUP[".html" if is_html else ".xml"]
    if found is not None:
        raise CorpusError(f"{name}: is {found[0]}, not lines of text; {found[1]}")
