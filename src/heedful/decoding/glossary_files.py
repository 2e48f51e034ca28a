"""Tables of terms as people have them: lines with tabs, CSV, and the first sheet of an Excel workbook."""

import csv
import logging
import re
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path, PurePosixPath
from typing import NamedTuple
from xml.etree import ElementTree

from heedful.data.files import read_lines
from heedful.errors import InputError

_log = logging.getLogger("heedful.decoding")
_UTF_16 = (b"\xff\xfe", b"\xfe\xff")
_ZIP = b"PK\x03\x04"
_DELIMITERS = ("\t", ";", ",")  # of as many rows in columns, the first: a cell may well have a comma
_MOST_COLUMNS = 4
_MOST_BYTES = 128 * 2**20  # of a part of a workbook
_DAMAGED = (
    OSError,
    RuntimeError,
    KeyError,
    ValueError,
    zipfile.BadZipFile,
    zlib.error,
    ElementTree.ParseError,
)
_COLUMN = re.compile("[A-Z]+")
_SOURCE = {"source", "src", "source term", "source text", "source language"}
_TARGET = {"target", "tgt", "target term", "target text", "target language", "translation"}
# The codes of ISO 639-1, and the English names of languages with many speakers: what columns are called.
_LANGUAGE_NAMES = """
    aa ab ae af ak am an ar as av ay az ba be bg bi bm bn bo br bs ca ce ch co cr cs cu cv cy da de
    dv dz ee el en eo es et eu fa ff fi fj fo fr fy ga gd gl gn gu gv ha he hi ho hr ht hu hy hz ia
    id ie ig ii ik io is it iu ja jv ka kg ki kj kk kl km kn ko kr ks ku kv kw ky la lb lg li ln lo
    lt lu lv mg mh mi mk ml mn mr ms mt my na nb nd ne ng nl nn no nr nv ny oc oj om or os pa pi pl
    ps pt qu rm rn ro ru rw sa sc sd se sg si sk sl sm sn so sq sr ss st su sv sw ta te tg th ti tk
    tl tn to tr ts tt tw ty ug uk ur uz ve vi vo wa wo xh yi yo za zh zu afrikaans albanian arabic
    armenian azerbaijani basque belarusian bengali bosnian bulgarian burmese catalan chinese
    croatian czech danish dutch english estonian filipino finnish french galician georgian german
    greek gujarati hebrew hindi hungarian icelandic indonesian irish italian japanese kannada kazakh
    khmer korean latvian lithuanian macedonian malay malayalam maltese marathi mongolian nepali
    norwegian persian polish portuguese punjabi romanian russian serbian slovak slovenian spanish
    swahili swedish tamil telugu thai turkish ukrainian urdu uzbek vietnamese welsh
"""


class Row(NamedTuple):
    """A row of a table, and its number from 1 (in CSV, of its last line)."""

    number: int
    cells: list[str]


def read_table(path: Path) -> Iterator[Row]:
    """Yield the rows of a table that have a text, without a header row.

    A workbook or UTF-16 is known by its first bytes, CSV by the name `.csv`; all else has tabs.

    Raises:
        CorpusError: a file that cannot be read.
        InputError: no such workbook, or no such CSV; the message names the file.
    """
    start = b""
    if path.is_file():
        with path.open("rb") as file:
            start = file.read(len(_ZIP))
    if start == _ZIP:
        rows = [*_rows_of_workbook(path)]
    else:
        lines = _lines_of_utf_16(path) if start[:2] in _UTF_16 else read_lines(path)
        if ".csv" in (suffix.lower() for suffix in path.suffixes):
            rows = csv_rows(lines, f"{path}: ")
        else:
            rows = [Row(number, line.split("\t")) for number, line in enumerate(lines, start=1)]
    rows = [row for row in rows if any(map(str.strip, row.cells))]
    if not rows:
        return
    first = rows[0].cells
    try:
        names_columns = is_header(first)
    except InputError as error:
        raise InputError(f"{path}: {error}") from None
    if names_languages(first):
        _log.warning("%s: line 1 names the languages %s and %s, and is no term", path, *first[:2])
        names_columns = True
    yield from rows[1:] if names_columns else rows


def csv_rows(lines: Sequence[str], name: str = "") -> list[Row]:
    """Return the rows of CSV, with commas, semicolons (as Excel writes in many countries) or tabs.

    Raises:
        InputError: quotes that do not match; the message begins with the name.
    """
    tables: list[list[Row]] = []
    problems: list[str] = []
    for sign in _DELIMITERS:
        reader = csv.reader([f"{line}\n" for line in lines], delimiter=sign, strict=True)
        try:
            tables.append([Row(reader.line_num, [*map(_on_one_line, cells)]) for cells in reader])
        except csv.Error as error:  # perhaps another sign ends the cells with quotes
            problems.append(f"{name}line {reader.line_num:,}: {error}")
    best = max(tables, key=_num_usable, default=[])
    if problems and not _num_usable(best):
        raise InputError(problems[0])
    return best


def _on_one_line(cell: str) -> str:
    return cell.replace("\n", " ")


def _num_usable(rows: Sequence[Row]) -> int:
    return sum(2 <= len(row.cells) <= _MOST_COLUMNS for row in rows)


def is_header(cells: Sequence[str]) -> bool:
    """Return whether a first row calls its columns source and target.

    Raises:
        InputError: the target is named first.
    """
    first, second, *_ = [*(cell.strip().casefold() for cell in cells), "", ""]
    if first in _TARGET and second in _SOURCE:
        raise InputError("line 1: the target is before the source; exchange the columns")
    return first in _SOURCE and second in _TARGET


def names_languages(cells: Sequence[str]) -> bool:
    """Return whether a row begins with two different languages."""
    first, second, *_ = [*(cell.strip().casefold() for cell in cells), "", ""]
    return first != second and is_language(first) and is_language(second)


def is_language(cell: str) -> bool:
    """Return whether a cell has a language's code, perhaps with a region, or an English name."""
    return re.split("[-_]", cell.strip().casefold())[0] in _LANGUAGE_NAMES.split()


def _lines_of_utf_16(path: Path) -> list[str]:
    try:
        text = path.read_bytes().decode("utf-16")
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: byte {error.start:,} is not valid UTF-16; convert it to UTF-8") from None
    return re.split("\r?\n", text.removesuffix("\n"))


def _rows_of_workbook(path: Path) -> Iterator[Row]:
    """Yield the rows of the first sheet (ECMA-376, part 1, 18.2 to 18.4)."""
    try:
        with zipfile.ZipFile(path) as package:
            targets = {
                relation.get("Id"): relation.get("Target", "")
                for relation in _part(package, "xl/_rels/workbook.xml.rels")
            }
            [sheet, *_] = _part(package, "xl/workbook.xml").iterfind("{*}sheets/{*}sheet")
            relation = next(value for name, value in sheet.items() if name.endswith("}id"))
            target = targets[relation]
            name = target.lstrip("/") if target.startswith("/") else str(PurePosixPath("xl", target))
            strings: list[str] = []
            if "xl/sharedStrings.xml" in package.namelist():
                strings = [*map(_text, _part(package, "xl/sharedStrings.xml"))]
            rows = _part(package, name).iterfind("{*}sheetData/{*}row")
            yield from [
                Row(int(row.get("r", number)), _cells(row, strings))
                for number, row in enumerate(rows, start=1)
            ]
    except (*_DAMAGED, StopIteration, IndexError):
        raise InputError(
            f"{path}: damaged, or no workbook of Excel; save its sheet as CSV (UTF-8) and give that"
        ) from None


def _part(package: zipfile.ZipFile, name: str) -> ElementTree.Element:
    with package.open(name) as file:
        content = file.read(_MOST_BYTES + 1)
    if len(content) > _MOST_BYTES or b"<!DOCTYPE" in content:  # entities could grow without end
        raise ValueError
    return ElementTree.fromstring(content)


def _cells(row: ElementTree.Element, strings: Sequence[str]) -> list[str]:
    """Return the texts of a row; cells without a text may be missing in the file."""
    cells: dict[int, str] = {}
    for cell in row.iterfind("{*}c"):
        place = _COLUMN.match(cell.get("r", ""))
        column = _number_of(place[0]) if place else len(cells)
        value = cell.findtext("{*}v", "")
        inline = cell.find("{*}is")
        if inline is not None:
            value = _text(inline)
        elif cell.get("t") == "s":
            value = strings[int(value)]
        if value.strip():
            cells[column] = value
    return [cells.get(column, "") for column in range(min(_MOST_COLUMNS + 1, max(cells, default=-1) + 1))]


def _number_of(letters: str) -> int:
    number = 0
    for letter in letters:
        number = 26 * number + ord(letter) - ord("A") + 1
    return number - 1


def _text(element: ElementTree.Element) -> str:
    """Return the text of a string, without its phonetic hints; line ends in a cell are spaces."""
    texts = [*element.iterfind("{*}t"), *element.iterfind("{*}r/{*}t")]
    return " ".join("".join(text.text or "" for text in texts).split())
