"""What a program reads stays, what a person reads is translated, and a file says in which language it is."""

import io
import re
import zipfile
from collections.abc import Sequence
from itertools import chain
from pathlib import Path

import docx
import openpyxl
import polib
import pptx
import pytest
import webvtt
from document_files import members, translate_units, translated_bytes, upper
from docx.oxml import OxmlElement
from docx.oxml.ns import qn
from openpyxl.formatting.rule import CellIsRule, FormulaRule, Rule
from openpyxl.styles import Font
from openpyxl.styles.differential import DifferentialStyle

from heedful.documents.document_file import read_document
from heedful.errors import InputError


def into(path: Path, language: str, *, source: str | None = "en") -> bytes:
    """Return a document in capitals that says it is in a language."""
    document = read_document(path, language=language, source=source)
    stream = io.BytesIO()
    document.write(list(chain.from_iterable(translate_units(document.units, upper))), stream)
    return stream.getvalue()


def add_field(paragraphs: Sequence[object], code: str) -> None:
    """Add a field around the texts of paragraphs."""
    first, last = paragraphs[0], paragraphs[-1]
    for name, text in (("begin", ""), ("", code), ("separate", "")):
        run = OxmlElement("w:r")
        child = OxmlElement("w:fldChar" if name else "w:instrText")
        if name:
            child.set(qn("w:fldCharType"), name)
        child.text = text or None
        run.append(child)
        first._p.insert(len(first._p) - 1, run)  # type: ignore[attr-defined]
    run = OxmlElement("w:r")
    run.append(OxmlElement("w:fldChar"))
    run[0].set(qn("w:fldCharType"), "end")
    last._p.append(run)  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    "code", ['ADDIN ZOTERO_ITEM CSL_CITATION {"a": 1}', "ADDIN EN.CITE <EndNote>", "CITATION Bro04 \\l 1033"]
)
def test_citations_stay(code: str, tmp_path: Path) -> None:
    document = docx.Document()
    add_field([document.add_paragraph("(Brown and White 2004)")], code)
    document.add_paragraph("The house.")
    document.save(str(tmp_path / "a.docx"))
    written = docx.Document(io.BytesIO(translated_bytes(tmp_path / "a.docx", upper)))
    assert [paragraph.text for paragraph in written.paragraphs] == ["(Brown and White 2004)", "THE HOUSE."]


def test_a_bibliography_over_paragraphs_stays(tmp_path: Path) -> None:
    document = docx.Document()
    texts = ["Brown, A. The house.", "Grey, B. The cat.", "White, C. The dog."]
    add_field([document.add_paragraph(text) for text in texts], 'ADDIN ZOTERO_BIBL {"a": 1} CSL_BIBLIOGRAPHY')
    document.add_paragraph("The end.")
    document.save(str(tmp_path / "a.docx"))
    written = docx.Document(io.BytesIO(translated_bytes(tmp_path / "a.docx", upper)))
    assert [paragraph.text for paragraph in written.paragraphs] == [*texts, "THE END."]


@pytest.mark.parametrize("style", ["Source Code", "HTML Preformatted"])
def test_styles_of_code_keep_their_text(style: str, tmp_path: Path) -> None:
    document = docx.Document()
    document.styles.add_style(style, docx.enum.style.WD_STYLE_TYPE.PARAGRAPH)
    document.styles.add_style("Verbatim Char", docx.enum.style.WD_STYLE_TYPE.CHARACTER)
    document.add_paragraph("print(house)", style=style)
    paragraph = document.add_paragraph("Use ")
    paragraph.add_run("ls -l", style="Verbatim Char")
    paragraph.add_run(" here.")
    document.save(str(tmp_path / "a.docx"))
    written = docx.Document(io.BytesIO(translated_bytes(tmp_path / "a.docx", upper)))
    assert [paragraph.text for paragraph in written.paragraphs] == ["print(house)", "USE ls -l HERE."]


def open_document(body: str, styles: str = "") -> str:
    names = ["office", "text", "table", "style", "form", "fo:xsl-fo-compatible", "number:datastyle"]
    spaces = " ".join(
        f'xmlns:{name.split(":")[0]}="urn:oasis:names:tc:opendocument:xmlns:{name.split(":")[-1]}:1.0"'
        for name in names
    )
    return f"<office:document-content {spaces}>{styles}{body}</office:document-content>"


def in_open_document(body: str, styles: str, folder: Path, language: str = "de") -> str:
    with zipfile.ZipFile(folder / "a.odt", "w") as package:
        package.writestr("content.xml", open_document(body, styles))
    return members(into(folder / "a.odt", language))["content.xml"].decode()


@pytest.mark.parametrize(
    ("body", "styles", "expected"),
    [
        ("<text:p>It is<text:s/>small.</text:p>", "", "<text:p>IT IS<text:s/>SMALL.</text:p>"),
        (
            '<text:p>It  is<text:s text:c="2"/>so.</text:p>',
            "",
            '<text:p>IT IS<text:s text:c="2"/>SO.</text:p>',
        ),
        (
            '<text:p text:style-name="P1">ls -l</text:p>',
            '<style:style style:name="P1" style:parent-style-name="Preformatted_20_Text">'
            '<style:text-properties fo:color="#000"/></style:style>',
            '<text:p text:style-name="P1">ls -l</text:p>',
        ),
        (
            '<text:p>Use <text:span text:style-name="Source_20_Text">ls</text:span> here.</text:p>',
            '<style:style style:name="Source_20_Text"><style:text-properties fo:color="#000"/></style:style>',
            '<text:p>USE <text:span text:style-name="Source_20_Text">ls</text:span> HERE.</text:p>',
        ),
        (
            '<form:button form:label="a cat" form:name="b"/>',
            "",
            '<form:button form:label="A CAT" form:name="b"/>',
        ),
        ("<number:text> pieces</number:text>", "", "<number:text> PIECES</number:text>"),
        ("<number:text>USD</number:text>", "", "<number:text>USD</number:text>"),
        (
            "<style:map style:condition='cell-content()=\"a cat\"'/>",
            "",
            "<style:map style:condition='cell-content()=\"A CAT\"'/>",
        ),
    ],
)
def test_open_document(body: str, styles: str, expected: str, tmp_path: Path) -> None:
    assert in_open_document(body, styles, tmp_path) == open_document(expected, styles)


def test_words_beside_a_space_of_open_document_are_two(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "a.odt", "w") as package:
        package.writestr("content.xml", open_document("<text:p>It is<text:s/>small.</text:p>"))
    [unit] = read_document(tmp_path / "a.odt").units
    assert unit.source.text == "It is small."


def test_rules_and_formats_of_sheets_follow_their_texts(tmp_path: Path) -> None:
    book = openpyxl.Workbook()
    sheet = book.active
    sheet["A1"], sheet["A2"], sheet["B1"], sheet["B2"] = "a cat", 'a "dog"', 3, 4
    sheet["B1"].number_format, sheet["B2"].number_format = '0" pieces"', '"USD" 0'
    look = DifferentialStyle(font=Font(bold=True))
    found = 'NOT(ISERROR(SEARCH("a cat",A1)))'
    contains = Rule(type="containsText", operator="containsText", text="a cat", dxf=look, formula=[found])
    sheet.conditional_formatting.add("A1:A9", contains)
    sheet.conditional_formatting.add(
        "A1:A9", CellIsRule("equal", formula=['"a ""dog"""'], font=Font(bold=True))
    )
    sheet.conditional_formatting.add("A1:A9", FormulaRule(formula=['INDIRECT("a1")=1'], font=Font(bold=True)))
    book.save(str(tmp_path / "a.xlsx"))
    written = openpyxl.load_workbook(io.BytesIO(translated_bytes(tmp_path / "a.xlsx", upper))).active
    rules = [rule for range_ in written.conditional_formatting for rule in range_.rules]
    assert [rule.formula for rule in rules] == [
        [found.replace("a cat", "A CAT")],
        ['"A ""DOG"""'],
        ['INDIRECT("a1")=1'],
    ]
    assert [rules[0].text, written["A1"].value, written["A2"].value] == ["A CAT", "A CAT", 'A "DOG"']
    assert [written["B1"].number_format, written["B2"].number_format] == ['0" PIECES"', '"USD" 0']


def test_documents_run_from_right_to_left_if_their_language_does(tmp_path: Path) -> None:
    document = docx.Document()
    document.add_paragraph("The house.").add_run(" It is small.").bold = True
    document.add_table(1, 1).cell(0, 0).text = "a cell"
    document.save(str(tmp_path / "a.docx"))
    written = docx.Document(io.BytesIO(into(tmp_path / "a.docx", "ar")))
    properties = written.paragraphs[0]._p.pPr
    assert properties.find(qn("w:bidi")) is not None
    assert all(run._r.rPr.find(qn("w:rtl")) is not None for run in written.paragraphs[0].runs)
    assert written.tables[0]._tbl.tblPr.find(qn("w:bidiVisual")) is not None
    (tmp_path / "b.docx").write_bytes(into(tmp_path / "a.docx", "ar"))
    back = members(into(tmp_path / "b.docx", "en", source="ar"))["word/document.xml"]
    assert not re.search(rb"<w:(?:bidi|rtl|bidiVisual)\b", back)
    assert b"w:bidi/" not in members(into(tmp_path / "a.docx", "de"))["word/document.xml"]

    slides = pptx.Presentation()
    slides.slides.add_slide(slides.slide_layouts[1]).placeholders[1].text = "The house"
    slides.save(str(tmp_path / "a.pptx"))
    slide = pptx.Presentation(io.BytesIO(into(tmp_path / "a.pptx", "he"))).slides[0]
    assert slide.placeholders[1].text_frame.paragraphs[0]._p.pPr.get("rtl") == "1"

    book = openpyxl.Workbook()
    book.active["A1"] = "a cat"
    book.save(str(tmp_path / "a.xlsx"))
    assert openpyxl.load_workbook(io.BytesIO(into(tmp_path / "a.xlsx", "fa"))).active.sheet_view.rightToLeft

    style = (
        '<style:style><style:paragraph-properties fo:text-align="left"/>'
        '<style:text-properties fo:language="en" fo:country="US"/></style:style>'
    )
    assert 'fo:text-align="start" style:writing-mode="rl-tb"' in in_open_document("", style, tmp_path, "ar")
    assert 'fo:language="pt" fo:country="BR"' in in_open_document("", style, tmp_path, "pt-BR")


VTT = """WEBVTT
Kind: captions
Language: en

00:00.000 --> 00:05.000
{}
"""


@pytest.mark.parametrize(
    ("cue", "expected"),
    [
        ("thumbs/sprite.jpg#xywh=0,0,160,90", "thumbs/sprite.jpg#xywh=0,0,160,90"),
        ('{"title": "a cat"}', '{"title": "a cat"}'),
        ("[music]", "[MUSIC]"),
        ("a cat\\NThe dog", "A CAT\\NTHE DOG"),
        ("the cat sleeps\\Nin the house", "THE CAT SLEEPS\\NIN THE HOUSE"),
    ],
)
def test_cues_for_players_stay_and_the_head_names_the_language(
    cue: str, expected: str, tmp_path: Path
) -> None:
    (tmp_path / "a.vtt").write_text(VTT.format(cue))
    written = into(tmp_path / "a.vtt", "de").decode()
    assert written == VTT.format(expected).replace("Language: en", "Language: de")
    assert [caption.raw_text for caption in webvtt.from_string(written)] == [expected]


def test_a_line_end_within_a_sentence_is_a_blank_for_a_model(tmp_path: Path) -> None:
    (tmp_path / "a.vtt").write_text(VTT.format("the cat sleeps\\Nin the house"))
    [unit] = read_document(tmp_path / "a.vtt").units
    assert unit.source.text == "the cat sleeps in the house"


def test_a_catalogue_names_its_language_and_no_translators(tmp_path: Path) -> None:
    catalogue = polib.POFile()
    catalogue.metadata = {"Content-Type": "text/plain; charset=UTF-8", "Language": "en"}
    for message, context in (
        ("translator-credits", None),
        ("Your emails", "EMAIL OF TRANSLATORS"),
        ("a cat", None),
    ):
        catalogue.append(polib.POEntry(msgid=message, msgctxt=context))
    for language in ("en", ""):
        catalogue.metadata["Language"] = language
        catalogue.save(str(tmp_path / "a.po"))
        written = polib.pofile(into(tmp_path / "a.po", "pt-BR").decode())
        assert written.metadata["Language"] == "pt_BR"
        assert [entry.msgstr for entry in written] == ["", "", "A CAT"]
    catalogue.metadata["Language"] = "fr"
    catalogue.save(str(tmp_path / "a.po"))
    with pytest.raises(InputError):
        into(tmp_path / "a.po", "de")


@pytest.mark.parametrize(
    "kept",
    [
        "<p>it has \\(x^2 + y\\) and \\[a = b\\] and $$c = d$$</p>",
        "<p><span>1.<span style='font:7pt'>&nbsp;&nbsp; </span></span>it is</p>",
        "<p><span>·<span>&nbsp;&nbsp;&nbsp;&nbsp;\n</span></span>it is</p>",
        '<nav epub:type="page-list"><ol><li><a href="a">xii</a></li></ol></nav>',
    ],
)
def test_formulas_and_marks_of_items_stay_in_pages(kept: str, tmp_path: Path) -> None:
    (tmp_path / "a.html").write_text(kept)
    expected = re.sub(r"\b(it has|and|it is)\b", lambda words: words[0].upper(), kept)
    assert translated_bytes(tmp_path / "a.html", upper).decode() == expected


def test_a_unit_with_plurals_and_codes_is_left_to_people(tmp_path: Path) -> None:
    units = (
        '<trans-unit id="1"><source>{N, plural, =0 {none} other {<x id="I"/> dogs}}</source></trans-unit>'
        '<trans-unit id="2"><source>a cat</source></trans-unit>'
    )
    text = (
        '<xliff version="1.2" xmlns="urn:oasis:names:tc:xliff:document:1.2">'
        '<file source-language="en">{}</file></xliff>'
    )
    (tmp_path / "a.xlf").write_text(text.format(units))
    expected = units.replace("a cat</source>", "a cat</source><target>A CAT</target>")
    assert translated_bytes(tmp_path / "a.xlf", upper).decode() == text.format(expected)


def test_a_book_names_language_and_direction(tmp_path: Path) -> None:
    package = (
        '<package xmlns="http://www.idpf.org/2007/opf" xml:lang="en"><metadata'
        ' xmlns:dc="http://purl.org/dc/elements/1.1/"><dc:language>en</dc:language></metadata>'
        "<manifest/><spine/></package>"
    )
    with zipfile.ZipFile(tmp_path / "a.epub", "w") as book:
        container = '<container><rootfiles><rootfile full-path="a.opf"/></rootfiles></container>'
        book.writestr("META-INF/container.xml", container)
        book.writestr("a.opf", package)
    written = members(into(tmp_path / "a.epub", "he"))["a.opf"].decode()
    assert written == package.replace(">en<", ">he<").replace('"en"', '"he"').replace(
        "<spine/>", '<spine page-progression-direction="rtl"/>'
    )
