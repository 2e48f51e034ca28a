"""Catalogues of messages, `.po` files of gettext: their fields, and their messages as pairs of texts."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import BinaryIO

from heedful.data.tmx import Unit
from heedful.errors import InputError
from heedful.text.languages import tag_of_language

_PO_TOKEN = re.compile(
    r"""(?P<string>"(?:[^"\\\r\n]|\\.)*+")
        | (?P<keyword>msgctxt|msgid_plural|msgid|msgstr(?:\[\d+\])?|domain)
        | (?P<flags>\#,[^\r\n]*) | \#[^\r\n]* | \s+""",
    re.VERBOSE,
)
ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "a": "\a", "b": "\b", "f": "\f", "v": "\v"}
_ESCAPED = re.compile(
    r"\\(?:x(?P<hex>[0-7][0-9A-Fa-f])|(?P<octal>[01][0-7]{2}|[0-7]{1,2}(?![0-7]))|(?P<char>.))"
)
_LANGUAGE = re.compile(r"(?im)^Language:[ \t]*([\w@.-]+)")
_CHARSET = re.compile(r"(?im)^Content-Type:.*?charset=([\w.-]+)")
_HEAD = 65_536  # bytes


@dataclass(frozen=True)
class PoField:
    """A keyword of an entry in a catalogue, and its string, which may be written as several.

    Attributes:
        keyword: such as `msgid`.
        is_fuzzy: whether the entry is marked as fuzzy: a person has to check its translation.
        strings: the parts of the string.
    """

    keyword: str
    is_fuzzy: bool = False
    strings: list[re.Match[str]] = field(default_factory=list)

    @property
    def text(self) -> str:
        """The string."""
        return _ESCAPED.sub(_unescaped, "".join(string.group()[1:-1] for string in self.strings))


def po_fields(text: str) -> Iterator[PoField]:
    """Yield the fields of all entries of a catalogue, without comments.

    Raises:
        InputError: something that no catalogue has.
    """
    fields: list[PoField] = []  # without the ones that were yielded
    at, flags, is_fuzzy, before = 0, "", False, ""
    while at < len(text):
        token = _PO_TOKEN.match(text, at)
        if token is None or (token["string"] and not fields):
            line = text[at:].splitlines()[0]
            number = len(re.findall(r"\r\n|\r|\n", text[:at])) + 1
            raise InputError(f"line {number}: not a catalogue of gettext: {line.strip()[:40]!r}")
        flags += token["flags"] or ""
        if token["string"]:
            fields[-1].strings.append(token)
        elif keyword := token["keyword"]:
            yield from (field for field in fields if field.strings)
            if keyword == "msgctxt" or (keyword == "msgid" and before != "msgctxt"):  # an entry begins
                is_fuzzy, flags = "fuzzy" in flags, ""
            fields, before = [PoField(keyword, is_fuzzy)], keyword
        at = token.end()
    yield from (field for field in fields if field.strings)


def units_of_po(
    file: BinaryIO, *, src: str | None, tgt: str | None, remedy: str = ""
) -> Iterator[list[Unit]]:
    """Yield the messages of a catalogue with their translations, in one list.

    A message that is fuzzy or without a translation has an empty target. Of a message with plurals, the
    singular has the first form, and the plural the last. If the catalogue is for the language of the sources,
    its translations are the sources.

    Args:
        file: the file, decompressed.
        src: the language of the sources, as a tag of BCP 47; None: the language of the messages.
        tgt: the language of the targets; None: the language of the catalogue.
        remedy: what to do if it has several languages, which no catalogue has.

    Raises:
        InputError: the file is no catalogue, or for another language, or has no translation.
    """
    content = file.read()
    header = content[:_HEAD].decode("latin-1").replace("\\n", "\n").replace('"', "")
    charset, language = _CHARSET.search(header), _LANGUAGE.search(header)
    try:
        text = content.decode(_encoding(charset[1] if charset else ""))
    except (LookupError, UnicodeDecodeError) as error:
        raise InputError(f"its text is not in the encoding that it names: {error}") from None
    units = list(_units(text))
    if not any(unit.source and unit.target for unit in units):
        raise InputError("no message has a translation; a catalogue for training needs its msgstr filled")
    named = language[1] if language else None
    is_for = [language is not None and _is_same(language, named) for language in (src, tgt)]
    if named and tgt is not None and not any(is_for):
        raise InputError(f"its language is {named}, and the pairs are wanted in {tgt}")
    if is_for == [True, False]:
        units = [Unit(unit.line, unit.target, unit.source) for unit in units]
    yield units


def _encoding(name: str) -> str:
    return "utf-8-sig" if name.upper() in ("", "CHARSET", "UTF-8", "UTF8", "ASCII", "US-ASCII") else name


def _is_same(language: str, named: str | None) -> bool:
    return named is not None and tag_of_language(language, [named]) is not None


def _units(text: str) -> Iterator[Unit]:
    """Yield the messages of a catalogue, without its header."""
    singular, plural, forms = "", "", list[PoField]()
    line, counted = 1, 0

    def units() -> Iterator[Unit]:
        if not singular or not forms:
            return
        texts = ["" if form.is_fuzzy else form.text for form in forms]
        if not plural:
            yield Unit(line, singular, texts[0])
            return
        if len(texts) > 1:
            yield Unit(line, singular, texts[0])
        yield Unit(line, plural, texts[-1])

    for entry in po_fields(text):
        if entry.keyword == "msgid":
            yield from units()
            start = entry.strings[0].start()
            line, counted = line + text.count("\n", counted, start), start
            singular, plural, forms = entry.text, "", []
        elif entry.keyword == "msgid_plural":
            plural = entry.text
        elif entry.keyword.startswith("msgstr"):
            forms.append(entry)
    yield from units()


def _unescaped(escape: re.Match[str]) -> str:
    if escape["char"]:
        return ESCAPES.get(escape["char"], escape["char"])
    return chr(int(escape["hex"], 16) if escape["hex"] else int(escape["octal"], 8))
