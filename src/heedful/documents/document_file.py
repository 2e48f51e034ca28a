"""A document as units to translate, their translation in chunks, and the file with it."""

import codecs
import copy
import shutil
import zipfile
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from io import BytesIO
from itertools import islice
from pathlib import Path
from typing import BinaryIO

from heedful.documents.encodings import byte_order_mark, decode_text, not_decoded
from heedful.documents.formats import (
    COLUMN_OPTION,
    MEDIA,
    TABLE,
    PartReader,
    Reading,
    Syntax,
    find_format,
    format_of,
    supported,
)
from heedful.documents.template import Template, Unit
from heedful.documents.text_files import check_columns, parse_columns
from heedful.errors import InputError
from heedful.spans.reading import WATCH, Watch

_MAX_FILE = 256 * 2**20  # bytes of a file that is read as a whole, and of a part of a package
_MAX_PACKAGE = 2 * 2**30  # bytes of a package, unpacked
_MAX_RATIO = 250  # between a large part and its compressed size; tables of numbers have about 30
_LARGE = 16 * 2**20
_OLD_OFFICE = b"\xd0\xcf\x11\xe0"
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
        rest = iter(written)
        texts = {
            name: encode(template.joined(list(islice(rest, len(template.units)))))
            for name, (template, encode) in self.parts.items()
        }
        if self.package is None:
            stream.write(texts[""])
            return
        with zipfile.ZipFile(BytesIO(self.package)) as old, zipfile.ZipFile(stream, "w") as new:
            new.comment = old.comment
            for info in old.infolist():
                if info.filename in texts:
                    new.writestr(copy.copy(info), texts[info.filename])
                else:
                    with old.open(info) as source, new.open(copy.copy(info), "w") as target:
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
    try:
        if format_of(name) != TABLE:
            _check_no_columns(columns, option)
            return
        head = file.read(_TABLE_HEAD)
        file.seek(0)
        mark, encoding = byte_order_mark(head)
        try:
            text = codecs.getincrementaldecoder(encoding)().decode(head[len(mark) :])
        except UnicodeDecodeError as error:
            raise not_decoded(encoding, error.start + len(mark)) from None
        check_columns(text, Reading(ending=Path(name).suffix.lower(), columns=columns, option=option))
    except InputError as error:
        raise InputError(f"{name}: {_one_line(error)}") from None


def _check_no_columns(columns: Sequence[str], option: str) -> None:
    if columns:
        raise InputError(f"has no columns; {option} is for .csv and .tsv")


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
        raise InputError(f"Invalid file: the file extension is none of a document; {supported()}")
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
    ending = path.suffix.lower()
    kind = find_format(path.name)
    if kind is None:
        raise InputError(f"{path}: cannot be read as a document; {supported()}")
    reading = Reading(ending=ending, language=language, source=source, columns=columns, option=option)
    token = WATCH.set(watch)
    try:
        if path.stat().st_size > _MAX_FILE:
            raise InputError(f"more than {_MAX_FILE:,} bytes; split it")
        if kind.name != TABLE:
            _check_no_columns(columns, option)
        reader = kind.load()
        if kind.is_package:
            return _read_package(path.read_bytes(), partial(reader, reading=reading), max_bytes)
        text, encode = decode_text(path.read_bytes(), syntax=kind.syntax)
        return DocumentFile({"": (reader(text, reading), encode)})
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {(error.strerror or str(error)).lower()}") from None
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, ValueError) as error:
        raise InputError(f"{path}: damaged, or not a {ending[1:]} file: {_one_line(error)[:200]}") from None
    except InputError as error:
        raise InputError(f"{path}: {_one_line(error)}") from None
    finally:
        WATCH.reset(token)


def _one_line(error: Exception) -> str:
    text = " ".join(str(error).split())
    return f"{text[:1].lower()}{text[1:]}" if text else type(error).__name__


def _read_package(
    data: bytes, parts_of: Callable[[zipfile.ZipFile], Mapping[str, PartReader]], max_bytes: int | None
) -> DocumentFile:
    """Return the document of a package: the parts with text, all others as they are.

    Raises:
        InputError: it is damaged, too large, or locked by a password.
    """
    if data.startswith(_OLD_OFFICE):
        raise InputError("locked by a password, or of an old format; remove the password, or save it anew")
    with zipfile.ZipFile(BytesIO(data)) as package:
        _check_members(package.infolist(), len(data), max_bytes)
        readers = parts_of(package)
        if not readers:
            raise InputError("damaged: it has no parts with text")
        damaged = package.testzip()
        if damaged is not None:
            raise InputError(f"damaged: its member {damaged} has a wrong checksum")
        parts = {name: _read_part(package, name, *reader) for name, reader in readers.items()}
    return DocumentFile(parts, data)


def _check_members(members: Sequence[zipfile.ZipInfo], size: int, max_bytes: int | None) -> None:
    """Refuse a package before any of it is unpacked: locked, damaged or too large.

    Args:
        members: its members.
        size: the bytes of the package.
        max_bytes: see `read_document`.
    """
    size_of = {member.filename: member.file_size for member in members}
    if any(member.flag_bits & 1 for member in members):
        raise InputError("locked by a password; remove the password")
    if len(size_of) < len(members):
        raise InputError("damaged: two members have the same name")
    total = sum(size_of.values())
    is_bomb = any(member.file_size > max(_LARGE, _MAX_RATIO * member.compress_size) for member in members)
    if total > _MAX_PACKAGE or is_bomb:
        raise InputError(f"unpacks to {total:,} bytes, out of {size:,}; such files are not read")
    text_size = sum(size_of[name] for name in size_of if not MEDIA.search(name))
    if max_bytes is not None and text_size > max_bytes:
        raise InputError(f"its parts with text have {text_size:,} bytes; {max_bytes:,} are allowed; split it")


def _read_part(
    package: zipfile.ZipFile, name: str, read: Callable[[str], Template], syntax: Syntax | None
) -> tuple[Template, Callable[[str], bytes]]:
    if package.getinfo(name).file_size > _MAX_FILE:
        raise InputError(f"its part {name} has more than {_MAX_FILE:,} bytes; split it")
    try:
        text, encode = decode_text(package.read(name), syntax=syntax)
        return read(text), encode
    except InputError as error:
        raise InputError(f"{name}: {error}") from None
