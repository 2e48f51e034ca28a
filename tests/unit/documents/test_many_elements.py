"""Paragraphs with very many elements: fields, bookmarks and codes without an end, and in each other."""

import io
import sys
import zipfile
from pathlib import Path
from types import FrameType

import pytest
from document_files import identity, translated_bytes

from heedful.documents.document_file import read_document
from heedful.errors import InputError

W = 'xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main"'
MAIN = "application/vnd.openxmlformats-officedocument.wordprocessingml.document.main+xml"
OFFICE = "urn:oasis:names:tc:opendocument:xmlns:"
RUN = "<w:r><w:t>The house</w:t></w:r>"


def write_docx(path: Path, paragraph: str) -> None:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as package:
        listed = f'<Types><Override PartName="/word/document.xml" ContentType="{MAIN}"/></Types>'
        package.writestr("[Content_Types].xml", listed)
        text = f"<w:document {W}><w:body><w:p>{paragraph}</w:p></w:body></w:document>"
        package.writestr("word/document.xml", text)


def write_odt(path: Path, paragraph: str, styles: str = "") -> None:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as package:
        names = " ".join(f'xmlns:{each}="{OFFICE}{each}:1.0"' for each in ("office", "text", "style"))
        text = f"{styles}<text:p>{paragraph}</text:p></office:document-content>"
        text = f"<office:document-content {names}>{text}"
        package.writestr("content.xml", text)


def write_xliff(path: Path, source: str) -> None:
    text = '<xliff version="1.2" xmlns="urn:oasis:names:tc:xliff:document:1.2"><trans-unit id="1"><source>'
    path.write_text(f"{text}The house {source}</source></trans-unit></xliff>")


def numbered(element: str, count: int, *, backwards: bool = False) -> str:
    numbers = reversed(range(count)) if backwards else range(count)
    return "".join(element.format(each) for each in numbers)


BEGIN, END = '<w:bookmarkStart w:id="{}"/>', '<w:bookmarkEnd w:id="{}"/>'
ODF_BEGIN, ODF_END = '<text:bookmark-start text:name="{}"/>', '<text:bookmark-end text:name="{}"/>'
FIELD = '<w:r><w:fldChar w:fldCharType="{}"/></w:r>'


def paragraph(case: str, count: int) -> str:
    return {
        "docx fields without end": RUN + FIELD.format("begin") * count,
        "docx fields": FIELD.format("begin") * count + RUN + FIELD.format("end") * count,
        "docx results": (FIELD.format("begin") + FIELD.format("separate")) * count
        + RUN
        + FIELD.format("end") * count,
        "docx bookmarks without end": RUN + numbered(BEGIN, count),
        "docx bookmarks": numbered(BEGIN, count) + RUN + numbered(END, count, backwards=True),
        "odt bookmarks without end": "The house" + numbered(ODF_BEGIN, count),
        "odt bookmarks": numbered(ODF_BEGIN, count) + "The house" + numbered(ODF_END, count, backwards=True),
        "xlf codes without end": numbered('<bpt id="{}"/>', count),
        "xlf codes": numbered('<bpt id="{}"/>', count)
        + "b"
        + numbered('<ept id="{}"/>', count, backwards=True),
    }[case]


CASES = [
    "docx fields without end", "docx fields", "docx results", "docx bookmarks without end", "docx bookmarks",
    "odt bookmarks without end", "odt bookmarks", "xlf codes without end", "xlf codes",
]  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_the_work_for_a_paragraph_grows_with_the_number_of_its_elements(case: str, tmp_path: Path) -> None:
    suffix = case.split()[0]
    write = {"docx": write_docx, "odt": write_odt, "xlf": write_xliff}[suffix]
    path = tmp_path / f"a.{suffix}"
    num_lines = []
    for count in (250, 1_000):
        write(path, paragraph(case, count))
        num_lines.append(_lines_that_run(path))
    assert num_lines[1] < 5 * num_lines[0]  # 16 times if it grew with the square
    assert "house" in _text(translated_bytes(path, identity))


@pytest.mark.parametrize("case", ["odt styles", "odt characters", "html blanks", "xlf blanks", "xlf tag"])
def test_the_work_for_a_document_grows_with_its_repetitions(case: str, tmp_path: Path) -> None:
    path = tmp_path / f"a.{case.split()[0]}"
    count = 300_000  # by the square it would take minutes
    if case == "odt styles":
        write_odt(path, "The house", '<style:style style:name="a"/>' * (count // 10))
    elif case == "odt characters":
        write_odt(path, "The house" + "&amp;" * count)
    elif case == "html blanks":
        path.write_text("<p>The house" + " " * count + "\t" * count + "is small")
    else:
        write_xliff(path, " " * count * (case == "xlf blanks") + "is small")
        if case == "xlf tag":
            target = "</source><target" + " " * count + 'state="new"/>'
            path.write_text(path.read_text().replace("</source>", target))
    assert "house" in _text(translated_bytes(path, identity))


def _lines_that_run(path: Path) -> int:
    """Return how many lines of Python run while a document is read: loops that a clock would measure."""
    number = 0

    def trace(frame: FrameType, event: str, argument: object) -> object:
        nonlocal number
        number += event == "line"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        read_document(path, language="de")
    finally:
        sys.settrace(before)
    return number


def _text(data: bytes) -> str:
    if not data.startswith(b"PK"):
        return data.decode()
    with zipfile.ZipFile(io.BytesIO(data)) as package:
        return "".join(package.read(name).decode() for name in package.namelist())


class TooMuchError(Exception):
    """What a reader raises that has seen enough."""


@pytest.mark.parametrize("suffix", ["txt", "html", "docx", "json", "srt", "xlf", "htm"])
def test_reading_ends_where_its_watch_says_so(suffix: str, tmp_path: Path) -> None:
    path, count = tmp_path / f"a.{suffix}", 5_000
    cue = "1\n00:00:01,000 --> 00:00:02,000\na b\n\n"
    texts = {"txt": "a b\n" * count, "html": "<p>" + "<b>a</b>" * count, "srt": cue * count}
    texts["htm"] = "<p>" + "{a}\n" * count + "a b"  # placeholders count before the text is read as a whole
    if suffix == "docx":
        write_docx(path, RUN + "<w:r><w:tab/></w:r>" * count)
    elif suffix == "xlf":
        write_xliff(path, "<x/>" * count)
    else:
        path.write_text(texts.get(suffix, "[" + '"a b",' * count + "1]"))
    read = [0, 0]

    def watch(characters: int, marks: int) -> None:
        read[0] += characters
        read[1] += marks
        if read[0] > 1000 or read[1] > 1000:
            raise TooMuchError

    with pytest.raises(TooMuchError):
        read_document(path, watch=watch)
    assert read[0] <= 1004
    assert read[1] <= 2000


def test_the_list_of_the_parts_of_a_package_counts_before_it_is_in_memory(tmp_path: Path) -> None:
    path = tmp_path / "a.docx"
    write_docx(path, RUN)
    with zipfile.ZipFile(path) as package:
        parts = {name: package.read(name) for name in package.namelist()}
    listed = parts["[Content_Types].xml"]
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as package:
        package.writestr("[Content_Types].xml", listed.replace(b"</Types>", b"<D/>" * 5_000 + b"</Types>"))
        package.writestr("word/document.xml", parts["word/document.xml"])

    def watch(characters: int, marks: int) -> None:
        if marks:
            raise TooMuchError

    with pytest.raises(TooMuchError):
        read_document(path, watch=watch)
    with pytest.raises(InputError, match="bytes"):
        read_document(path, max_bytes=20_000)
