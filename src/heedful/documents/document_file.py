"""A document as units to translate, their translation in chunks, and the file with it."""

import codecs
import copy
import re
import shutil
import zipfile
import zlib
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from io import BytesIO
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, BinaryIO

from heedful.documents import office
from heedful.documents.encodings import Syntax, byte_order_mark, decode_text, not_decoded
from heedful.documents.formats import MARKDOWN, SUPPORTED, TABLE, TEXT, format_of
from heedful.documents.markdown import read_markdown
from heedful.documents.mixed_content import open_document_parts, read_tmx, read_xliff
from heedful.documents.template import Template, Unit
from heedful.documents.text_files import (
    COLUMN_OPTION,
    check_columns,
    parse_columns,
    read_json,
    read_lines,
    read_po,
    read_subtitles,
    read_table,
)
from heedful.documents.web_pages import book_parts, read_html
from heedful.documents.xml_text import XmlReader, XmlRules, tags_of
from heedful.errors import InputError
from heedful.spans.reading import WATCH, Watch
from heedful.spans.sentences import join, restored, route, routed_text, split, without_placeholders
from heedful.spans.spanned_text import SpannedText, has_letters
from heedful.spans.words import Output, PairTranslator, aligned_outputs

if TYPE_CHECKING:
    from heedful.decoding.options import SearchOptions

Reader = Callable[[str], Template]
_PartReaders = Callable[[zipfile.ZipFile], Mapping[str, XmlRules | Reader]]
_MAX_FILE = 256 * 2**20  # bytes of a file that is read as a whole, and of a part of a package
_MAX_PACKAGE = 2 * 2**30  # bytes of a package, unpacked
_MAX_RATIO = 250  # between a large part and its compressed size; tables of numbers have about 30
_LARGE = 16 * 2**20
_MEDIA = re.compile(  # ends of the names of members that hold no text
    r"(?i)\.(?:png|jpe?g|gif|bmp|tiff?|emf|wmf|webp|mp[34]|m4[av]|wav|wmv|avi|mov|[ot]tf|woff2?|odttf|bin|do[ct]x?|xlsx?|pptx?)\Z"
)
_OLD_OFFICE = b"\xd0\xcf\x11\xe0"


_SYNTAX: Mapping[str, Syntax] = {"HTML": "html", "tmx": "xml", "xliff": "xml", "po": "po"}
_TABLES = {".csv": None, ".tsv": "\t"}
_NO_COLUMNS = f"has no columns; {{option}} is for {' and '.join(_TABLES)}"
_TABLE_HEAD = 2**20  # bytes, in which the first line of a table is


@dataclass(frozen=True)
class DocumentFile:
    """A document that was read.

    Attributes:
        parts: for each member of a package, its text and the function that encodes it; other documents have
            one part.
        package: the file, if it is a package.
    """

    parts: Mapping[str, tuple[Template, Callable[[str], bytes]]]
    package: bytes | None = None

    @cached_property
    def units(self) -> list[Unit]:
        """The units in the order of the document."""
        return [unit for template, _ in self.parts.values() for unit in template.units]

    def write(self, written: Sequence[str], stream: BinaryIO) -> None:
        """Write the document with what is written for the translation of each unit."""
        texts: dict[str, bytes] = {}
        at = 0
        for name, (template, encode) in self.parts.items():
            texts[name] = encode(template.joined(written[at : at + len(template.units)]))
            at += len(template.units)
        if self.package is None:
            stream.write(texts[""])
            return
        with zipfile.ZipFile(BytesIO(self.package)) as old, zipfile.ZipFile(stream, "w") as new:
            new.comment = old.comment
            for info in old.infolist():
                own = copy.copy(info)
                if info.filename in texts:
                    new.writestr(own, texts[info.filename])
                else:
                    with old.open(info) as source, new.open(own, "w") as target:
                        shutil.copyfileobj(source, target)


def check_table(name: str, file: BinaryIO, *, columns: Sequence[str], option: str) -> None:
    """Check that a file has the columns that hold text, if it is a table; else that there are none.

    Args:
        name: the name of the file; its extension says the format.
        file: its beginning is read.
        columns: see `read_document`.
        option: see `read_document`.

    Raises:
        InputError: it has not; the columns that it has are in the message.
    """
    suffix = PurePath(name).suffix.lower()
    try:
        if suffix not in _TABLES and columns:
            raise InputError(_NO_COLUMNS.format(option=option))
        if suffix not in _TABLES:
            return
        head = file.read(_TABLE_HEAD)
        file.seek(0)
        mark, encoding = byte_order_mark(head)
        try:
            text = codecs.getincrementaldecoder(encoding)().decode(head[len(mark) :])
        except UnicodeDecodeError as error:
            raise not_decoded(encoding, error.start + len(mark)) from None
        check_columns(text, columns, delimiter=_TABLES[suffix], option=option)
    except InputError as error:
        raise InputError(f"{name}: {_one_line(error)}") from None


def check_document(name: str, file: BinaryIO, *, columns: Iterable[str], option: str) -> list[str]:
    """Check that a file has a known format, and the columns that hold text if it is a table.

    Args:
        name: the name of the file; its extension says the format.
        file: its beginning is read.
        columns: as `parse_columns` reads them.
        option: see `read_document`.

    Returns:
        The columns, for `read_document`.

    Raises:
        InputError: it is no document, or has not these columns.
    """
    if format_of(name) is None:
        raise InputError(f"Invalid file: the file extension is none of a document; {SUPPORTED}")
    parsed = parse_columns(columns)
    check_table(name, file, columns=parsed, option=option)
    return parsed


def read_document(
    path: Path,
    *,
    columns: Sequence[str] = (),
    option: str = COLUMN_OPTION,
    language: str | None = None,
    source: str | None = None,
    max_bytes: int | None = None,
    watch: Watch = lambda characters, marks: None,
) -> DocumentFile:
    """Return a document, in the format that its name ends in.

    Args:
        path: the path of the file.
        columns: names or numbers of the columns of a table that hold text.
        option: the name of the option with the columns, for error messages.
        language: the one that it is translated into, which TMX, XLIFF and gettext name; None: unknown.
        source: the one that it is translated from, which XLIFF names; None: unknown.
        max_bytes: the limit for the text and the markup of a package, unpacked; None: no limit.
        watch: a function that is told what is read; an error that it raises ends the reading.

    Raises:
        InputError: a format that is not read, a file that is damaged or too large, or locked by a password.
    """
    suffix = PurePath(path).suffix.lower()
    kind = format_of(path.name)
    if kind is None:
        raise InputError(f"{path}: cannot be read as a document; {SUPPORTED}")
    parts_of: Mapping[str, _PartReaders] = {
        "Office": partial(_office_parts, language=language),
        "OpenDocument": open_document_parts,
        "EPUB": partial(book_parts, language=language),
    }
    readers: Mapping[str, Reader] = {
        TEXT: read_lines,
        MARKDOWN: read_markdown,
        "HTML": partial(read_html, language=language),
        "subtitles": partial(read_subtitles, escaped=suffix == ".vtt"),
        "po": partial(read_po, language=language),
        "xliff": partial(read_xliff, language=language, source=source),
        "tmx": partial(read_tmx, language=language, source=source),
        "json": read_json,
        TABLE: partial(read_table, columns=columns, delimiter=_TABLES.get(suffix), option=option),
    }
    token = WATCH.set(watch)
    try:
        if path.stat().st_size > _MAX_FILE:
            raise InputError(f"more than {_MAX_FILE:,} bytes; split it")
        if kind != TABLE and columns:
            raise InputError(_NO_COLUMNS.format(option=option))
        if kind in parts_of:
            return _read_package(path.read_bytes(), parts_of[kind], max_bytes)
        text, encode = decode_text(path.read_bytes(), syntax=_SYNTAX.get(kind))
        return DocumentFile({"": (readers[kind](text), encode)})
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {(error.strerror or str(error)).lower()}") from None
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, ValueError) as error:
        raise InputError(f"{path}: damaged, or not a {suffix[1:]} file: {_one_line(error)}") from None
    except InputError as error:
        raise InputError(f"{path}: {_one_line(error)}") from None
    finally:
        WATCH.reset(token)


def _one_line(error: Exception) -> str:
    text = " ".join(str(error).split())
    return f"{text[:1].lower()}{text[1:]}" if text else type(error).__name__


def _read_package(data: bytes, rules_of: _PartReaders, max_bytes: int | None) -> DocumentFile:
    """Return the document of a package: the parts with text, all others as they are.

    Raises:
        InputError: it is damaged, too large, or locked by a password.
    """
    if data.startswith(_OLD_OFFICE):
        raise InputError("locked by a password, or of an old format; remove the password, or save it anew")
    with zipfile.ZipFile(BytesIO(data)) as package:
        members = package.infolist()
        if any(each.flag_bits & 1 for each in members):
            raise InputError("locked by a password; remove the password")
        if len({each.filename for each in members}) < len(members):
            raise InputError("damaged: two members have the same name")
        total = sum(each.file_size for each in members)
        is_bomb = any(each.file_size > max(_LARGE, _MAX_RATIO * each.compress_size) for each in members)
        if total > _MAX_PACKAGE or is_bomb:
            raise InputError(f"unpacks to {total:,} bytes, out of {len(data):,}; such files are not read")
        size = sum(each.file_size for each in members if not _MEDIA.search(each.filename))
        if max_bytes is not None and size > max_bytes:  # before any of it is read
            raise InputError(f"its parts with text have {size:,} bytes; {max_bytes:,} are allowed; split it")
        rules = rules_of(package)
        if not rules:
            raise InputError("damaged: it has no parts with text")
        damaged = package.testzip()
        if damaged is not None:
            raise InputError(f"damaged: its member {damaged} has a wrong checksum")
        parts = {}
        for name, own in rules.items():
            if package.getinfo(name).file_size > _MAX_FILE:
                raise InputError(f"its part {name} has more than {_MAX_FILE:,} bytes; split it")
            try:
                is_xml = isinstance(own, XmlRules)
                syntax: Syntax | None = "xml" if is_xml else None if own is read_lines else "html"
                text, encode = decode_text(package.read(name), syntax=syntax)
                template = XmlReader(own).read(text) if isinstance(own, XmlRules) else own(text)
                parts[name] = template, encode
            except InputError as error:
                raise InputError(f"{name}: {error}") from None
    return DocumentFile(parts, data)


def _office_parts(package: zipfile.ZipFile, *, language: str | None) -> dict[str, XmlRules | Reader]:
    """Return how each part that people read is read, by the list of content types."""
    names = package.namelist()
    tags = partial(_tags_of_members, package)
    if _TYPES not in names:
        raise InputError("damaged, or no document of Office Open XML: it has no list of content types")
    if any("\\" in each for each in names):
        raise InputError(
            "the names of its parts have backslashes; open it in an office program and save it anew"
        )
    type_of_end: dict[str, str] = {}
    type_of_name: dict[str, str] = {}
    for tag, own in tags(re.escape(_TYPES)):
        if tag == "Default":
            type_of_end[own.get("Extension", "").lower()] = own.get("ContentType", "")
        elif tag == "Override":
            type_of_name[own.get("PartName", "").removeprefix("/")] = own.get("ContentType", "")
    for name in names:
        type_of_name.setdefault(name, type_of_end.get(PurePath(name).suffix[1:].lower(), ""))
    read = {
        name for name, kind in type_of_name.items() if office.PARTS.search(kind) and not _MEDIA.search(name)
    }
    if missing := sorted(read.difference(names)):
        raise InputError(f"damaged: its part {missing[0]} is missing")
    properties: set[str] = set()
    further: list[str] = []  # ends of the content types of other parts that change
    for name in read:
        text = package.read(name).decode("utf-8", "replace")
        properties |= {each.lower() for pair in _SHOWN_PROPERTY.findall(text) for each in pair}
        further += ["sheet.main+xml"] if _TEXT_RESULT.search(text) else []
    shown = [element for each, element in office.PROPERTIES.items() if each in properties]
    further += ["core-properties"] if shown else []
    further += ["wordprocessingml.styles+xml"] if language is not None else []
    read |= {each for each in names if any(end in type_of_name[each] for end in further)}
    # Names by which formulas and pivot tables find columns: cells with such a text stay.
    columns = (own.get("name", "") for tag, own in tags(_TABLE_PART) if tag in ("tableColumn", "cacheField"))
    rules = office.rules(
        names=frozenset(each.replace("_x000a_", "\n") for each in columns),
        properties=shown,
        language=language,
    )
    parts: dict[str, XmlRules | Reader] = {name: rules for name in type_of_name if name in read}
    # Parts that a Word document shows in their own formats (w:altChunk).
    chunks = (
        own.get("Target", "") for _, own in tags(_RELATIONS) if own.get("Type", "").endswith("/aFChunk")
    )
    for name in (each[1:] if each.startswith("/") else f"word/{each}" for each in chunks):
        if name not in names:
            continue
        kind = type_of_name[name].partition(";")[0]
        if kind not in _CHUNKS:
            raise InputError(
                f"its part {name} is a document of another format; open it in Word and save it anew"
            )
        parts[name] = _CHUNKS[kind]
    return parts


_TYPES = "[Content_Types].xml"
_CHUNKS: Mapping[str, Reader] = {
    **dict.fromkeys(("text/html", "application/xhtml+xml"), read_html),
    "text/plain": read_lines,
}
_RELATIONS = r"word/_rels/document\.xml\.rels"
_TABLE_PART = r"xl/(?:tables/[^/]+|pivotCache/pivotCacheDefinition[^/]*)\.xml"
# Properties that a control is bound to or a field shows; cells with a formula and a text as its result.
_SHOWN_PROPERTY = re.compile(
    r"""coreProperties\[1\]/(?:\w+:)?(\w+)\[1\]|[>"']\s*(TITLE|SUBJECT|KEYWORDS|COMMENTS)\b"""
)
_TEXT_RESULT = re.compile(r"""<(?:\w+:)?c\s[^<>]*\bt=["']str["'][^<>]*><(?:\w+:)?f""")


def _tags_of_members(package: zipfile.ZipFile, names: str) -> Iterator[tuple[str, dict[str, str]]]:
    """Yield the tags of the members with names that match a pattern."""
    for each in package.namelist():
        if re.fullmatch(names, each):
            yield from tags_of(package, each)


Translate = Callable[[Sequence[str], Container[str]], Sequence[Output]]
_CHUNK = 512  # sentences that are translated together


def translate_units(units: Sequence[Unit], translate: Translate) -> Iterator[list[str]]:
    """Yield what is written for the translations of units, in chunks.

    Args:
        units: the units of any document; only a chunk of them is split at a time.
        translate: takes different sentences, and returns an output for each. Outputs of the sentences in its
            second argument have the links of their words.
    """
    at = 0
    while at < len(units):
        chunk: list[list[SpannedText]] = []
        size = 0
        while size < _CHUNK and at + len(chunk) < len(units):
            chunk.append(split(units[at + len(chunk)].source))
            size += len(chunk[-1]) // 2
        new = iter(_translated([each for pieces in chunk for each in pieces[1::2]], translate))
        joined = (join(pieces, new) for pieces in chunk)
        yield [unit.written(text) for unit, text in zip(units[at : at + len(chunk)], joined, strict=True)]
        at += len(chunk)


def _translated(sentences: Sequence[SpannedText], translate: Translate) -> list[SpannedText]:
    """Return the translations of sentences: of two tries if the model loses a placeholder in the first."""
    routed = [route(each) for each in sentences]
    new: list[tuple[SpannedText, ...]] = [()] * len(sentences)
    left = list(range(len(sentences)))
    while left:
        texts = {index: routed_text(routed[index]) for index in left}
        aligned = {text for index, text in texts.items() if routed[index].spans}
        asked = [each for each in dict.fromkeys(texts.values()) if has_letters(each)]  # equal ones once
        output_of = dict(zip(asked, translate(asked, aligned), strict=True)) if asked else {}
        for index, text in texts.items():
            output = output_of.get(text, Output(text))
            if "\0" in output.text:
                output = Output(output.text.replace("\0", ""), output.links)
            new[index] = restored(sentences[index], routed[index], [output])
        left = [index for index in left if not new[index]]
        for index in left:
            routed[index] = without_placeholders(sentences[index])
    return [each for [each] in new]


def with_translator(
    translator: PairTranslator,
    options: "SearchOptions",
    *,
    known: Callable[[str], str | None] = lambda _: None,
    add: Callable[[str, str], None] = lambda _, __: None,
) -> Translate:
    """Return the translations of sentences by a translator, with links if they are requested.

    Args:
        translator: the translator for the document's languages.
        options: the options of the search.
        known: returns the translation of a sentence that needs no search; None: there is none.
        add: receives each sentence and its translation.
    """

    def translate(texts: Sequence[str], aligned: Container[str]) -> list[Output]:
        in_memory = [known(text) for text in texts]
        new = [text for text, target in zip(texts, in_memory, strict=True) if target is None]
        searched = iter(translator.translations(new, options=options))
        targets = [next(searched).text if each is None else each for each in in_memory]
        for text, target in zip(texts, targets, strict=True):
            add(text, target)
        marked = [index for index, text in enumerate(texts) if text in aligned]
        outputs = [Output(target) for target in targets]
        if marked:
            linked = aligned_outputs(
                translator, [texts[index] for index in marked], [[targets[index]] for index in marked]
            )
            for index, (output,) in zip(marked, linked, strict=True):
                outputs[index] = output
        return outputs

    return translate
