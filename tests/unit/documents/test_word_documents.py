"""Word documents as other programs write them: names and types of parts, bound text, drop caps, chunks."""

import io
import re
import zipfile
from collections.abc import Callable
from pathlib import Path

import docx
import pytest
from document_files import translated_bytes, upper

from heedful.documents.document_file import read_document
from heedful.errors import InputError

Change = Callable[[str, bytes], tuple[str, bytes]]
MAIN = b"application/vnd.openxmlformats-officedocument.wordprocessingml.document.main+xml"


def repacked(document: object, change: Change, path: Path) -> None:
    """Write a document with other names and contents of its parts."""
    stream = io.BytesIO()
    document.save(stream)  # type: ignore[attr-defined]
    with zipfile.ZipFile(stream) as old, zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as new:
        for info in old.infolist():
            new.writestr(*change(info.filename, old.read(info)))


def test_the_type_of_the_main_part_may_be_that_of_its_ending(tmp_path: Path) -> None:
    def default(name: str, data: bytes) -> tuple[str, bytes]:
        if name == "[Content_Types].xml":
            data = re.sub(rb'<Override PartName="/word/document.xml"[^>]*/>', b"", data)
            own = b'<Default Extension="xml" ContentType="' + MAIN + b'"/>'
            data = re.sub(rb'<Default Extension="xml"[^>]*/>', own, data)
        return name, data

    document = docx.Document()
    document.add_paragraph("The house is small.")
    repacked(document, default, tmp_path / "a.docx")
    written = docx.Document(io.BytesIO(translated_bytes(tmp_path / "a.docx", upper)))
    assert [each.text for each in written.paragraphs] == ["THE HOUSE IS SMALL."]


def test_names_with_backslashes_are_refused_by_name(tmp_path: Path) -> None:
    repacked(docx.Document(), lambda name, data: (name.replace("/", "\\"), data), tmp_path / "a.docx")
    with pytest.raises(InputError, match="backslash"):
        read_document(tmp_path / "a.docx")
