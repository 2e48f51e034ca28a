"""Files of markup, which are never read as lines of text."""

import re
from io import BufferedReader
from pathlib import PurePath
from typing import BinaryIO

from heedful.errors import CorpusError

_START = 2**12  # bytes, by which markup is known
_AS_DOCUMENT = "translate it with --document, or write its text one sentence a line"
_AS_PAIRS = "translate it with --document; for pairs of texts, write it as TMX"
_AS_TMX = "give it as source and as target both, or as --pairs"
# What is never read as lines, by the end of its name: what it is, and what to do with it.
_MARKUP = {
    ".tmx": ("TMX", _AS_TMX),
    **dict.fromkeys((".xlf", ".xliff", ".sdlxliff", ".mxliff"), ("XLIFF", _AS_PAIRS)),
    **dict.fromkeys((".po", ".pot"), ("a catalogue of messages", _AS_PAIRS)),
    **dict.fromkeys((".html", ".htm", ".xhtml"), ("HTML", _AS_DOCUMENT)),
    ".xml": ("XML", _AS_DOCUMENT),
}
# A declaration and the begin of an element, or the first element of TMX: no sentence has these.
_MARKUP_START = re.compile(
    rb"(\xef\xbb\xbf)?\s*(<\?xml\s+version\s*=[^>]*\?>\s*<|<tmx\s+version\s*=|<!doctype\s+(html|tmx)\b)", re.I
)


def refuse_markup(stream: BinaryIO, name: str) -> None:
    """Refuse a file of markup where lines are read: by the end of its name, or by how its text begins.

    Raises:
        CorpusError: it says what to do with the file.
    """
    found = _MARKUP.get(PurePath(name.lower().removesuffix(".gz")).suffix)
    if found is None and isinstance(stream, BufferedReader):
        start = stream.peek(_START)
        if _MARKUP_START.match(start):
            as_tmx = ("TMX", f"let its name end in .tmx, and {_AS_TMX}")
            is_html = b"<!doctype html" in start.lower()
            found = as_tmx if b"<tmx" in start else _MARKUP[".html" if is_html else ".xml"]
    if found is not None:
        raise CorpusError(f"{name}: is {found[0]}, not lines of text; {found[1]}")
