"""Documents: only their text changes, all of it does, and formats follow the words that they were on."""

import io
import json
import random
import re
import shutil
import zipfile
from collections.abc import Callable
from html import unescape
from pathlib import Path

import docx
import markdown_it
import openpyxl
import polib
import pptx
import pytest
import srt
import webvtt
from document_files import (
    TEXTS,
    backwards,
    converted_by_libreoffice,
    docx_file,
    fingerprint,
    identity,
    made_by_libreoffice,
    members,
    sample_documents,
    translate_units,
    translated_bytes,
    upper,
)
from lxml import etree
from translate.storage.tmx import tmxfile
from translate.storage.xliff import xlifffile

from heedful.documents.document_file import check_table, read_document
from heedful.documents.formats import TABLE, format_of, suffixes, supported
from heedful.documents.text_files import parse_columns
from heedful.errors import InputError

NAMES = [
    *TEXTS, "a.docx", "a.pptx", "a.xlsx", "b.xlsx", "a.odt", "a.po", "a.srt", "a.xliff", "a.tmx",
]  # fmt: skip
PACKAGES = [name for name in NAMES if name.endswith(("docx", "pptx", "xlsx", "odt"))]
SPLICED = ["a.txt", "a.md", "a.html", "a.vtt", "a.json", "a.csv", "a.srt"]  # a translation replaces its text


@pytest.fixture(scope="module")
def samples(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("samples")
    for name, make in sample_documents().items():
        (folder / name).write_bytes(make())
    return folder


@pytest.mark.parametrize("name", SPLICED)
def test_an_identity_leaves_a_text_byte_for_byte(name: str, samples: Path) -> None:
    assert translated_bytes(samples / name, identity) == (samples / name).read_bytes()


@pytest.mark.parametrize("name", PACKAGES)
def test_only_the_text_of_a_package_changes(name: str, samples: Path) -> None:
    before = members((samples / name).read_bytes())
    for translate in (identity, upper):
        after = members(translated_bytes(samples / name, translate))
        assert list(after) == list(before)
        changed = {each for each in before if before[each] != after[each]}
        assert all(each.endswith(".xml") for each in changed)
        for each in changed:
            assert fingerprint(after[each]) == fingerprint(before[each]), each
        assert changed or translate is identity


@pytest.mark.parametrize("name", PACKAGES)
def test_every_text_of_a_package_is_translated(name: str, samples: Path) -> None:
    written = translated_bytes(samples / name, upper)
    texts = [each for part in members(written).items() for each in _texts_of(*part)]
    assert len(texts) > 5
    # The result of a computed field, and the names of columns, which formulas refer to.
    texts = [re.sub("seven|item|price", "", each) for each in texts]
    assert [each for each in texts if re.search("[a-z]", each)] == []


@pytest.mark.parametrize("name", SPLICED)
def test_every_text_is_translated(name: str, samples: Path) -> None:
    written = translated_bytes(samples / name, upper).decode()
    assert written.casefold() == (samples / name).read_bytes().decode().casefold()
    assert " ".join(re.findall("[a-z_]{2,}", written)) == UNTRANSLATED[name]


UNTRANSLATED = {
    "a.txt": "name",
    "a.md": "title as it is code http example org img png http example org as it is as it is",
    "a.html": "html html head title title head body class as it is ul li li ul script as it is script"
    " body html",
    "a.vtt": "as it is intro align start nn amp",
    "a.json": "title null as_it_is name",
    "a.csv": "id text other as it is as it is",
    "a.srt": "",
}


def _texts_of(name: str, data: bytes) -> list[str]:
    """Return the texts that a reader of the document sees, by the names of elements in its schema."""
    if not re.search(
        r"document\.xml|header1|footer1|comment|slide\d+\.xml$|notesSlide\d|sheet|content\.xml|chart1|sharedS|drawing1.xml",
        name,
    ):
        return []
    if name.endswith((".vml", ".rels")) or "Layout" in name or "Master" in name:
        return []
    root = etree.fromstring(data)
    for each in root.iter("{*}creator"):
        each.text = None
    texts = [
        "".join(each.itertext())
        for each in root.iter("{*}t", "{*}p", "{*}h", "{*}title", "{*}desc", "{*}oddHeader")
        if etree.QName(each).localname != "p" or "opendocument" in each.tag
    ]
    texts += [each.get("descr", "") + each.get("prompt", "") for each in root.iter(etree.Element)]
    return texts


def test_formats_follow_the_words_that_they_were_on(tmp_path: Path) -> None:
    document = docx.Document()
    paragraph = document.add_paragraph("one two ")
    paragraph.add_run("th").bold = True
    paragraph.add_run("ree").bold = True
    paragraph.add_run(" four")
    document.save(str(tmp_path / "a.docx"))
    written = docx.Document(io.BytesIO(translated_bytes(tmp_path / "a.docx", backwards)))
    [runs] = [each.runs for each in written.paragraphs]
    assert [(each.text, each.bold) for each in runs] == [("four ", None), ("three", True), (" two one", None)]
    (tmp_path / "a.md").write_text("one [two](http://a) *three* four\n")
    assert translated_bytes(tmp_path / "a.md", backwards) == b"four *three* [two](http://a) one\n"


def test_a_word_document_opens_in_its_own_library(samples: Path) -> None:
    written = docx.Document(io.BytesIO(translated_bytes(samples / "a.docx", upper)))
    paragraphs = {each.text: each for each in written.paragraphs}
    first = paragraphs["THE CAT SLEEPS IN THE OLD HOUSE & GOES < ON.\tA COLUMN\nA LINE"]
    assert [each.text for each in first.runs] == [
        "THE CAT ",
        "SLEEPS",
        " IN THE OLD HOUSE & GOES < ON.\tA COLUMN\nA LINE",
    ]
    assert [each.bold for each in first.runs] == [None, True, None]
    assert all(each.italic for each in paragraphs["ALL OF IT IS ITALIC."].runs if each.text)
    assert [each.text for each in paragraphs["SEE THE MANUAL FOR MORE."].hyperlinks] == ["THE MANUAL"]
    assert "PAGE seven OF IT." in paragraphs
    assert "READ THE SITE NOW." in paragraphs
    assert written.tables[0].cell(1, 1).text == "LAST CELL"
    assert written.sections[0].header.paragraphs[0].text == "THE HEADER"
    assert [each.text for each in written.comments] == ["A REMARK HERE"]
    assert written.inline_shapes[0]._inline.docPr.get("descr") == "A RED SQUARE"
    body = etree.tostring(written.element.body).decode()
    assert re.search(r'bookmarkStart w:id="7".*?MARKED.*?bookmarkEnd w:id="7"', body)


def test_slides_and_sheets_open_in_their_own_libraries(samples: Path) -> None:
    [slide] = pptx.Presentation(io.BytesIO(translated_bytes(samples / "a.pptx", upper))).slides
    frame = slide.placeholders[1].text_frame
    assert [each.text for each in frame.paragraphs] == [
        "FIRST POINT",
        "SECOND BOLD POINT.\vANOTHER LINE",
        "A LINK",
    ]
    assert [each.font.bold for each in frame.paragraphs[1].runs][:3] == [None, True, None]
    assert frame.paragraphs[2].runs[0].hyperlink.address == "http://example.org"
    assert slide.notes_slide.notes_text_frame.text == "NOTES OF THE SPEAKER"
    sheet = openpyxl.load_workbook(io.BytesIO(translated_bytes(samples / "a.xlsx", upper))).active
    assert (sheet.title, sheet["A1"].value, sheet["A2"].value) == ("sheet one", "A TEXT", 42)
    assert sheet["A3"].value == '=CONCATENATE("as it"," is")'
    assert sheet["B1"].value == "TWO\nLINES & MORE"
    assert sheet["B1"].comment.text == "A REMARK"
    # Formulas refer to columns of tables by their names.
    assert [sheet["F1"].value, sheet["F2"].value] == ["item", "AN APPLE"]
    assert sheet.oddHeader.center.text == "THE HEADER, PAGE &P"
    sheet = openpyxl.load_workbook(io.BytesIO(translated_bytes(samples / "b.xlsx", upper))).active
    assert [sheet[f"A{row}"].value for row in (1, 3, 4, 5)] == [
        "A TEXT",
        "  WITH SPACES\nAND LINES ",
        3.5,
        "A TEXT",
    ]


def test_catalogues_subtitles_and_memories_are_read_by_their_libraries(samples: Path) -> None:
    catalogue = polib.pofile(translated_bytes(samples / "a.po", upper).decode())
    assert [each.msgstr for each in catalogue if not each.msgid_plural] == [
        "THE FILE %s IS OPEN.", 'A "QUOTED" WORD\nAND A LINE', "Fertig",
    ]  # fmt: skip
    assert catalogue.find("%d file").msgstr_plural == {0: "%d FILE", 1: "%d FILES"}
    cues = list(srt.parse(translated_bytes(samples / "a.srt", upper).decode()))
    assert [each.content for each in cues] == [
        "WHERE IS THE <i>OLD</i> HOUSE?", "IT IS A LONG SENTENCE\nTHAT GOES ON HERE.", "- YES.\n- NO.",
    ]  # fmt: skip
    captions = webvtt.from_buffer(io.StringIO(translated_bytes(samples / "a.vtt", upper).decode()))
    assert [each.text for each in captions] == ["WHERE IS &amp; WAS IT?", "TWO LINES\nOF TEXT"]
    units = xlifffile.parsestring(translated_bytes(samples / "a.xliff", upper)).units
    assert [each.target for each in units] == ["THE HOUSE IS SMALL.", "A & B ARE <here>.", "Fertig"]
    memory = tmxfile.parsestring(translated_bytes(samples / "a.tmx", upper))
    assert memory.units[0].getNodeText(memory.units[0].getlanguageNode(lang="de")) == "THE HOUSE IS SMALL."
    assert json.loads(translated_bytes(samples / "a.json", upper))["n"] == [1, 2.5, None, "AN ITEM"]


def test_markdown_has_the_same_structure(samples: Path) -> None:
    parser = markdown_it.MarkdownIt("commonmark").enable("table")
    before, after = (parser.render(each.decode().split("---\n", 2)[2]) for each in (
        (samples / "a.md").read_bytes(), translated_bytes(samples / "a.md", upper),
    ))  # fmt: skip
    tags = re.compile(r"</?\w+")
    assert tags.findall(after) == tags.findall(before)
    assert unescape(after).casefold() == unescape(before).casefold()


@pytest.mark.parametrize(
    ("text", "columns", "named"),
    [
        ("id,text\n1,a\n", [], "--column.* id, text"),
        ("id,text\n1,a\n", ["name"], "'name'"),
        ('id,text\n1,"a\n', ["text"], "line 2"),
        ("a,b,a\n1,2,3\n", ["b", "a"], "'a'.* 1, 3.*--column"),
    ],
)
def test_a_table_needs_its_columns(text: str, columns: list[str], named: str, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text(text)
    with pytest.raises(InputError, match=named):
        read_document(tmp_path / "a.csv", columns=columns)


@pytest.mark.parametrize(
    ("text", "columns", "cells"),
    [
        ("id;size, in cm;text\n1;4,5;a\n", ["3"], ["a"]),  # a comma in each line, and more semicolons
        ("id|text\n1|a, b; c\n", ["text"], ["a, b; c"]),
        ("text\none, two\n", ["1"], ["one, two"]),
        ("text,price\none,4\nTotal\n", ["1"], ["one", "Total"]),  # lines of different lengths
        ('id,"two\nlines"\n1,a\n', ["two\nlines"], ["a"]),
        (f"id;a, b;text\n1;2, 3;a\n2;3, 4;b{50_000 * '; '}\n", ["3"], ["a", "b"]),
        ("id , text\n1,a\n", ["text"], ["a"]),
        ("2,1\na,b\n", ["1"], ["b"]),  # a name goes before a number
        ("a,a\none,two\n", ["2"], ["two"]),
        ("", ["text"], []),
    ],
)
def test_the_cells_of_columns_are_units(
    text: str, columns: list[str], cells: list[str], tmp_path: Path
) -> None:
    (tmp_path / "a.csv").write_text(text)
    units = read_document(tmp_path / "a.csv", columns=columns).units
    found = [unit.source.text for unit in units]
    assert found == cells
    with (tmp_path / "a.csv").open("rb") as file:
        check_table("a.csv", file, columns=columns, option="--column")
        assert file.tell() == 0


def test_columns_are_separated_by_commas_or_repeated() -> None:
    assert parse_columns(["title, 3", '"size, ""wide""", a']) == ["title", "3", 'size, "wide"', "a"]
    assert parse_columns(["", " , "]) == []


def test_a_check_of_a_table_reads_its_beginning_and_says_its_columns(tmp_path: Path) -> None:
    many = ",".join(f"column {n}" for n in range(1, 101))
    for name, data, columns, named in (
        ("a.csv", many.encode(), [], "OPTION.*column 1, "),
        ("a.csv", many.encode(), [], "column 50 .*50"),
        ("a.csv", ",text\n".encode("utf-16"), ["none"], "'none'.*, text"),
        ("a.csv", b"\xff\xff", ["text"], "utf-8.* 0"),
        ("a.csv", b"id,text,", ["none"], "'none'.* id, text"),
        ("a.tsv", b'"text', ["text"], "line 1"),
        ("a.po", b"", ["text"], r"OPTION.*\.csv.*\.tsv"),
    ):
        with pytest.raises(InputError, match=named) as raised:
            check_table(name, io.BytesIO(data), columns=columns, option="OPTION")
        assert str(raised.value).startswith(f"{name}: ")
    large = io.BytesIO(b"id,text\n" + "1,\u00e4\n".encode() * 300_000)  # its end is not read
    check_table("a.csv", large, columns=["text"], option="OPTION")


def test_macros_stay_and_are_part_of_the_document(samples: Path, tmp_path: Path) -> None:
    project = random.Random(1).randbytes(5000)
    with zipfile.ZipFile(samples / "a.docx") as old, zipfile.ZipFile(tmp_path / "a.docm", "w") as new:
        for info in old.infolist():
            data = old.read(info).replace(
                b"application/vnd.openxmlformats-officedocument.wordprocessingml.document.main+xml",
                b"application/vnd.ms-word.document.macroEnabled.main+xml",
            )
            new.writestr(info, data)
        new.writestr("word/vbaProject.bin", project)
    written = members(translated_bytes(tmp_path / "a.docm", upper))
    assert written["word/vbaProject.bin"] == project
    assert b"SLEEPS" in written["word/document.xml"]


def _package(path: Path, change: Callable[[str, bytes], bytes], source: bytes) -> None:
    with zipfile.ZipFile(io.BytesIO(source)) as old, zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as new:
        for info in old.infolist():
            new.writestr(info.filename, change(info.filename, old.read(info)))


def test_bombs_and_passwords_are_one_line(tmp_path: Path) -> None:
    path, source = tmp_path / "a.docx", docx_file()

    def refused(named: str) -> None:
        with pytest.raises(InputError, match=named) as error:
            read_document(path)
        assert "\n" not in str(error.value)

    entities = b'<!DOCTYPE w [<!ENTITY a "aaaa"><!ENTITY b "&a;&a;">]>'
    _package(
        path,
        lambda name, data: data.replace(b"?>", b"?>" + entities, 1) if name == "word/document.xml" else data,
        source,
    )
    refused(r"word/document\.xml")
    _package(path, lambda name, data: b"<a>" * 100_000 if name == "word/document.xml" else data, source)
    refused(r"word/document\.xml.*200")
    _package(path, lambda name, data: bytes(2**26) if name == "docProps/app.xml" else data, source)
    refused("67,")
    path.write_bytes(b"\xd0\xcf\x11\xe0" + bytes(1000))
    refused("password")
    locked = bytearray(source)
    for match in re.finditer(b"PK\x01\x02", source):
        locked[match.start() + 8] |= 1
    path.write_bytes(locked)
    refused("password")
    path.write_bytes(b"no package")
    refused("docx")
    xliff = tmp_path / "a.xlf"
    xliff.write_text('<xliff version="1.0" xmlns="urn:oasis:names:tc:xliff:document:1.0"/>')
    with pytest.raises(InputError, match="XLIFF"):
        read_document(xliff)
    xliff.write_text('<!DOCTYPE x [<!ENTITY a "b">]>\n' + TEXTS["b.xlf"].split("\n", 1)[1])
    with pytest.raises(InputError, match="entity a"):
        read_document(xliff)


def test_every_format_is_named_where_one_is_not_read(tmp_path: Path) -> None:
    (tmp_path / "a.pdf").write_bytes(b"%PDF")
    with pytest.raises(InputError, match=r"Office.*HTML"):
        read_document(tmp_path / "a.pdf")
    assert {f".{name.split('.')[1]}" for name in NAMES} <= set(suffixes())


@pytest.mark.parametrize("suffix", suffixes())
def test_every_ending_has_a_reader(suffix: str, tmp_path: Path) -> None:
    """A file of zeros is no document of any format but text; none is unknown."""
    path = tmp_path / f"a{suffix.upper()}"
    path.write_bytes(b"\0" * 8)
    try:
        read_document(path, columns=["1"] if format_of(path.name) == TABLE else [], language="de")
    except InputError as error:
        assert supported() not in str(error)


def test_units_are_translated_in_chunks(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("".join(f"line {chr(97 + n % 26)}.\n" for n in range(1100)))
    chunks = list(translate_units(read_document(tmp_path / "a.txt").units, identity))
    assert [len(each) for each in chunks] == [512, 512, 76]


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("soffice") is None, reason="LibreOffice is not installed")
@pytest.mark.parametrize(
    ("name", "to"), [("a.docx", "odt"), ("a.pptx", "odp"), ("b.xlsx", "ods"), ("a.odt", "docx")]
)
def test_documents_of_libreoffice_are_translated_and_open_again(
    name: str, to: str, samples: Path, tmp_path: Path
) -> None:
    [written] = made_by_libreoffice([samples / name], to, tmp_path)
    data = translated_bytes(written, upper)
    before, after = members(written.read_bytes()), members(data)
    assert list(after) == list(before)
    for each in before:
        if before[each] != after[each]:
            assert fingerprint(after[each]) == fingerprint(before[each]), each
    again = tmp_path / f"again.{to}"
    again.write_bytes(data)
    back = name.split(".")[1]
    texts = [
        {
            part: re.sub(r"\s", "", "".join(_texts_of(part, data))).casefold()
            for part, data in members(path.read_bytes()).items()
        }
        for each in (written, again)
        for path in converted_by_libreoffice([each], back, tmp_path)
    ]
    assert texts[0] == texts[1]
    assert sum(map(len, texts[0].values())) > 50


def test_a_translation_memory_is_translated_from_its_own_language_alone(tmp_path: Path) -> None:
    def tmx(of_memory: str, *variants: tuple[str, str]) -> str:
        segments = "".join(f'<tuv xml:lang="{tag}"><seg>{text}</seg></tuv>' for tag, text in variants)
        return f'<tmx version="1.4"><header srclang="{of_memory}"/><body><tu>{segments}</tu></body></tmx>'

    french, english = ("fr", "un chat"), ("en", "a cat")
    for of_memory, variants, source in (
        ("en-US", [french, english], "A CAT"),
        ("EN", [french, ("en-GB", "a cat")], "A CAT"),
        ("en", [french], None),
        ("*all*", [french, english], "UN CHAT"),
    ):
        text = tmx(of_memory, *variants)
        (tmp_path / "a.tmx").write_text(text, encoding="utf-8")
        document = read_document(tmp_path / "a.tmx", language="de")
        written = io.BytesIO()
        document.write([each for chunk in translate_units(document.units, upper) for each in chunk], written)
        expected = tmx(of_memory, *variants, ("de", source)) if source else text
        assert written.getvalue().decode() == expected


def test_a_section_of_characters_is_written_as_text(tmp_path: Path) -> None:
    source = "<source><![CDATA[a <b>cat</b> & ö]]> or <!-- two -->two</source>"
    head = '<xliff version="1.2" xmlns="urn:oasis:names:tc:xliff:document:1.2"><trans-unit id="1">'
    (tmp_path / "a.xliff").write_text(f"{head}{source}</trans-unit></xliff>", encoding="utf-8")
    written = translated_bytes(tmp_path / "a.xliff", upper)
    target = etree.fromstring(written).find(".//{*}target")
    assert "".join(target.itertext()) == "A <b>CAT</b> & Ö OR TWO"
    assert source.encode() in written


@pytest.mark.parametrize(
    "start", ['version="2.0" trgLang="fr-CA"><file id="1"', 'version="1.2"><file target-language="fr"']
)
def test_a_file_for_another_language_is_refused(start: str, tmp_path: Path) -> None:
    version = start[9:12]
    text = f'<xliff xmlns="urn:oasis:names:tc:xliff:document:{version}" {start}></file></xliff>'
    (tmp_path / "a.xlf").write_text(text, encoding="utf-8")
    with pytest.raises(InputError, match=r"fr.* de"):
        read_document(tmp_path / "a.xlf", language="de")
    for language in ("fr", None):
        assert read_document(tmp_path / "a.xlf", language=language).units == []
