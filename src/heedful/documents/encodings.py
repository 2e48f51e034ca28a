"""The encoding of a text document: the one that it names, or UTF-8. Its translation has the same."""

import codecs
import re
import string
from collections.abc import Callable, Mapping
from contextlib import suppress
from itertools import chain, islice

from heedful.data.catalogues import po_fields
from heedful.documents.formats import Syntax
from heedful.documents.tokens import attributes, tokenize
from heedful.errors import InputError

_BYTE_ORDER_MARKS = {
    codecs.BOM_UTF8: "utf-8",
    codecs.BOM_UTF16_LE: "utf-16-le",
    codecs.BOM_UTF16_BE: "utf-16-be",
}
_XML = re.compile(r"""\s*<\?xml[^>]*?\sencoding\s*=\s*["']([\w.:-]+)""")
_PO = re.compile(r"""(?i)(?:\A|\\n)Content-Type:(?:(?!\\n).)*?charset\s*=\s*(?:\\")?(?P<name>[\w.:-]*)""")
# Python's encodings for the names that browsers take for a larger one, or that Python does not know
# (https://encoding.spec.whatwg.org, 4.2).
_OF_BROWSERS = {
    **dict.fromkeys(("ascii", "iso8859-1", "x-cp1252"), "cp1252"),
    **dict.fromkeys(("gb2312", "gbk", "x-gbk"), "gb18030"),
    **dict.fromkeys(("shift_jis", "x-sjis", "ms932"), "cp932"),
    **dict.fromkeys(("euc_kr", "windows-949"), "cp949"),
    **dict.fromkeys(("iso-8859-8-i", "logical", "csiso88598i", "csiso88598e", "visual"), "iso8859-8"),
    **dict.fromkeys(("iso8859-11", "tis-620", "dos-874", "windows-874"), "cp874"),
    **dict.fromkeys(("big5", "cn-big5", "x-x-big5"), "big5hkscs"),
    **{f"x-cp125{number}": f"cp125{number}" for number in range(1, 9) if number != 2},
    "iso8859-9": "cp1254",
    "koi8-ru": "koi8-u",
    "x-euc-jp": "euc_jp",
    "x-mac-ukrainian": "mac_cyrillic",
    "x-mac-roman": "mac_roman",
    "unicode-1-1-utf-8": "utf-8",
}  # fmt: skip
_HEAD = 65_536  # bytes of a page, or of the header of a catalogue, in which its encoding is looked for
# In an encoding that is not based on ASCII, such as UTF-7, text outside the translation would change.
_ASCII = string.printable + r"\u0041"


def decode_text(data: bytes, *, syntax: Syntax | None) -> tuple[str, Callable[[str], bytes]]:
    """Return the text of a file, and a function that encodes its translation with the same byte order mark.

    A character that the encoding lacks is written as a number in HTML and XML; a catalogue becomes UTF-8.

    Args:
        data: the bytes of the file.
        syntax: the syntax in which it names an encoding; None: without a byte order mark, it is in UTF-8.

    Raises:
        InputError: it is not in that encoding, or cannot be written in it again, or has NUL characters.
    """
    mark, name = byte_order_mark(data)
    if not mark and syntax is not None:
        name = {"html": _charset_of_html, "xml": _charset_of_xml, "po": _charset_of_po}[syntax](data)
    if not mark and not _is_ascii_based(name):
        raise InputError(f"unknown encoding {name!r}; convert it to UTF-8")
    try:
        text = data[len(mark) :].decode(name)
    except UnicodeDecodeError as error:
        raise not_decoded(name, error.start + len(mark)) from None
    if text.encode(name, errors="replace") != data[len(mark) :]:
        raise InputError(f"has characters that {name} writes in several ways; convert it to UTF-8")
    if "\0" in text:
        raise InputError("has NUL characters; this is no text")

    is_markup = syntax in ("html", "xml")

    def encode(translation: str) -> bytes:
        own = name
        if syntax == "po":
            translation, own = _with_charset(translation, name)
        try:
            return mark + translation.encode(own, errors="xmlcharrefreplace" if is_markup else "strict")
        except UnicodeEncodeError as error:
            char = translation[error.start]
            raise InputError(f"{char!r} does not exist in {name}; convert the document to UTF-8") from None

    return text, encode


def _is_ascii_based(name: str) -> bool:
    """Return whether Python knows an encoding that writes ASCII as it is."""
    try:
        return _ASCII.encode(name) == _ASCII.encode() and _ASCII.encode().decode(name) == _ASCII
    except (LookupError, ValueError):
        return False


def byte_order_mark(data: bytes) -> tuple[bytes, str]:
    """Return the byte order mark of a file, or b"", and its encoding, or UTF-8."""
    marks = (mark for mark in _BYTE_ORDER_MARKS if data.startswith(mark))
    mark = next(marks, b"")
    return mark, _BYTE_ORDER_MARKS.get(mark, "utf-8")


def not_decoded(name: str, byte: int) -> InputError:
    """Return the error of a byte that is not in an encoding."""
    return InputError(f"not {name} (byte {byte}); convert it to UTF-8")


def _charset_of_html(data: bytes) -> str:
    tokens = tokenize(data[:_HEAD].decode("latin-1"))
    named = (_charset_of_meta(attributes(token.raw)) for token in tokens if token.name == "meta")
    name = next(filter(None, named), "") or _charset_of_xml(data)
    if name.lower().startswith("utf-16"):  # as browsers take it
        return "utf-8"
    known = name.lower()
    with suppress(LookupError):
        known = codecs.lookup(known).name
    return _OF_BROWSERS.get(known, name)


def _charset_of_meta(values: Mapping[str, str]) -> str:
    """Return the encoding that a tag `meta` with these attributes names; "" if none."""
    in_content = None
    if values.get("http-equiv", "").lower() == "content-type":
        in_content = re.search(r"""(?i)charset\s*=\s*["']?([\w.:-]+)""", values.get("content", ""))
    return (values.get("charset") or (in_content[1] if in_content else "")).strip()


def _charset_of_xml(data: bytes) -> str:
    declaration = _XML.match(data[:_HEAD].decode("latin-1"))
    return declaration[1] if declaration else "utf-8"


def _charset_of_po(data: bytes) -> str:
    """Return the encoding of a catalogue of gettext: UTF-8 if it names ASCII, or none."""
    name = ""
    with suppress(InputError, LookupError):  # raised again when it is read
        name, _ = _charset_of_header(data.decode("latin-1")) or ("", slice(0))
        name = "utf-8" if codecs.lookup(name).name == "ascii" else name
    return "utf-8" if name.upper() in ("", "CHARSET", "UTF8", "UTF-8") else name


def _charset_of_header(catalogue: str) -> tuple[str, slice] | None:
    """Return the encoding that the header of a catalogue names, perhaps "", and where; None for no name.

    Raises:
        InputError: see `read_po`.
    """
    singular = ""
    for field in po_fields(catalogue):
        if field.keyword == "msgid":
            singular = field.text
        if field.keyword == "msgstr" and not singular:
            # The name, and the word before it, may be divided between strings.
            of_strings = (range(quoted.start() + 1, quoted.end() - 1) for quoted in field.strings)
            positions = list(islice(chain.from_iterable(of_strings), _HEAD))
            charset = _PO.search("".join(catalogue[at] for at in positions))
            if charset is None:
                return None
            start, end = (positions[at - 1] + 1 for at in charset.span("name"))
            return charset["name"], slice(start, end)
    return None


def _with_charset(catalogue: str, name: str) -> tuple[str, str]:
    """Return a catalogue of gettext that names its encoding in its header, and the encoding.

    The encoding stays, or becomes UTF-8 if it lacks a character, as msginit does for a template in
    ASCII. A header that names another, or "CHARSET", stays as long as all is ASCII.
    """
    try:
        catalogue.encode(name)
    except UnicodeEncodeError:
        name = "utf-8"
    if name == "utf-8" and not catalogue.isascii() and (declared := _charset_of_header(catalogue)):
        named, span = declared
        if named.upper() not in ("UTF-8", "UTF8"):
            catalogue = f"{catalogue[: span.start]}UTF-8{catalogue[span.stop :]}"
    return catalogue, name
