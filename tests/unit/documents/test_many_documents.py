"""Twenty documents of each format, half of them by LibreOffice: nothing changes, and no text is missed."""

import csv
import io
import re
import shutil
from pathlib import Path

import pytest
from document_files import fingerprint, identity, made_by_libreoffice, members, translated_bytes
from lxml import etree, html
from random_documents import LIBREOFFICE, MAKERS, write_documents

from heedful.documents.document_file import read_document

_PACKAGES = frozenset(("docx", "pptx", "xlsx", "odt", "ods", "odp"))
_NO_TEXT = re.compile(r"docProps/|meta\.xml|settings\.xml|styles\.xml|slideMaster|slideLayout|\.rels$")


@pytest.mark.slow
@pytest.mark.parametrize("suffix", MAKERS)
def test_documents_of_libraries_keep_everything_and_are_read_completely(suffix: str, tmp_path: Path) -> None:
    numbers = range(10) if suffix in LIBREOFFICE else range(20)
    for path, words in write_documents(suffix, tmp_path, numbers).items():
        check(path, words)


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("soffice") is None, reason="no LibreOffice")
@pytest.mark.parametrize("suffix", LIBREOFFICE)
def test_documents_of_libreoffice_keep_everything_and_are_read_completely(
    suffix: str, tmp_path: Path
) -> None:
    source, to = LIBREOFFICE[suffix]
    written = write_documents(source, tmp_path / "source", range(10, 20))
    made = made_by_libreoffice([*written], to, tmp_path / "made")
    for path, words in zip(made, written.values(), strict=True):
        check(path, words)


def check(path: Path, words: list[str]) -> None:
    """Check that an identity changes nothing, and that each word which stands in a file is in a unit."""
    data = path.read_bytes()
    after = translated_bytes(path, identity)
    if path.suffix[1:] in _PACKAGES:
        before, rest = members(data), members(after)
        assert list(before) == list(rest)
        for name in before:
            if before[name] != rest[name]:
                assert fingerprint(before[name]) == fingerprint(rest[name]), (path, name)
        text = b" ".join(part for name, part in before.items() if not _NO_TEXT.search(name)).decode(
            "utf-8", "replace"
        )
    elif path.suffix in (".po", ".xliff", ".tmx"):  # a target is added
        text = data.decode()
        twice = [each for each in words if each in text.casefold()]
        assert [each for each in twice if after.decode().casefold().count(each) != 2] == []
    else:
        text = data.decode()
        if path.suffix == ".html":  # spaces move between tags
            assert fingerprint(_as_xml(after)) == fingerprint(_as_xml(data)), path
            text = re.sub("<!--.*?-->", "", text, flags=re.DOTALL)
        else:
            assert after == data, path
        if path.suffix == ".csv":
            rows = csv.DictReader(io.StringIO(text), delimiter=";" if ";" in text.splitlines()[0] else ",")
            text = " ".join(row["text"] for row in rows)
    present = {each for each in words if each in text.casefold()}
    assert present or not words
    assert present <= words_of_units(path), (path, present - words_of_units(path))


def _as_xml(data: bytes) -> bytes:
    page = html.document_fromstring(data)
    for each in page.iter(etree.Element):
        each.attrib.pop("lang", None)  # which is the target's
    return bytes(etree.tostring(page))


def words_of_units(path: Path) -> set[str]:
    document = read_document(path, columns=("text",) if path.suffix == ".csv" else (), language="de")
    texts = [unit.source.text for unit in document.units]
    return set(re.findall(r"[a-z]+", " ".join(texts).casefold()))
