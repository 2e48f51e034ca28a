"""Word documents as other programs write them: names and types of parts, bound text, drop caps, chunks."""

import io
import re
import zipfile
from collections.abc import Callable, Container, Sequence
from pathlib import Path

import docx
import pytest
from document_files import Output, identity, members, translate_units, translated_bytes, upper
from docx.oxml import parse_xml
from docx.oxml.ns import qn

from heedful.documents.document_file import read_document
from heedful.errors import InputError

W = 'xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main"'
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
    with pytest.raises(InputError, match=r"a\.docx"):
        read_document(tmp_path / "a.docx")


def document_with(*elements: str) -> object:
    document = docx.Document()
    for each in elements:
        document.element.body.sectPr.addprevious(parse_xml(each.replace(">", f" {W}>", 1)))
    return document


def translated_document(document: object, folder: Path) -> dict[str, str]:
    document.save(str(folder / "a.docx"))  # type: ignore[attr-defined]
    parts = members(translated_bytes(folder / "a.docx", upper))
    return {name: data.decode() for name, data in parts.items() if name.endswith(".xml")}


CONTROL = (
    "<w:sdt><w:sdtPr>{}</w:sdtPr><w:sdtContent><w:p><w:r><w:t>The house is small.</w:t></w:r></w:p>"
    "</w:sdtContent></w:sdt>"
)
BOUND = """<w:dataBinding w:prefixMappings="xmlns:ns0='http://purl.org/dc/elements/1.1/'" w:xpath="{}" \
w:storeItemID="{{6C3C8BC8-F283-45AE-878A-BAB7291924A1}}"/>"""
TITLE = BOUND.format("/ns1:coreProperties[1]/ns0:title[1]")
FIELD = '<w:p><w:fldSimple w:instr=" TITLE "><w:r><w:t>The house is small.</w:t></w:r></w:fldSimple></w:p>'


@pytest.mark.parametrize("shown", [CONTROL.format(TITLE + "<w:text/>"), FIELD])
def test_a_property_that_the_text_shows_is_translated_with_it(shown: str, tmp_path: Path) -> None:
    document = document_with(shown)
    document.core_properties.title = "The house is small."  # type: ignore[attr-defined]
    document.core_properties.comments = "as it is"  # type: ignore[attr-defined]
    parts = translated_document(document, tmp_path)
    assert "THE HOUSE IS SMALL." in parts["word/document.xml"]
    assert ">THE HOUSE IS SMALL.</dc:title>" in parts["docProps/core.xml"]
    assert ">as it is<" in parts["docProps/core.xml"]


def test_a_property_that_no_text_shows_stays(tmp_path: Path) -> None:
    document = document_with("<w:p><w:r><w:t>A text.</w:t></w:r></w:p>")
    document.core_properties.title = "The house is small."  # type: ignore[attr-defined]
    assert "The house is small." in translated_document(document, tmp_path)["docProps/core.xml"]


def test_a_control_is_not_overwritten_by_what_it_is_bound_to(tmp_path: Path) -> None:
    other = BOUND.format("/ns0:root[1]/ns0:city[1]")
    parts = translated_document(document_with(CONTROL.format(other + "<w:text/>")), tmp_path)
    assert "dataBinding" not in parts["word/document.xml"]
    dated = translated_document(document_with(CONTROL.format(other + "<w:date/>")), tmp_path)
    assert "dataBinding" in dated["word/document.xml"]


def test_the_chosen_item_of_a_control_is_one_of_its_items(tmp_path: Path) -> None:
    items = '<w:dropDownList><w:listItem w:displayText="The house is small." w:value="a b"/></w:dropDownList>'
    text = translated_document(document_with(CONTROL.format(items)), tmp_path)["word/document.xml"]
    assert 'w:displayText="THE HOUSE IS SMALL." w:value="a b"' in text
    assert ">THE HOUSE IS SMALL.<" in text


def test_items_of_old_forms_and_tips_of_links_are_translated(tmp_path: Path) -> None:
    form = (
        '<w:p><w:hyperlink w:anchor="a" w:tooltip="A tip"><w:r><w:t>A link</w:t></w:r></w:hyperlink>'
        '<w:r><w:fldChar w:fldCharType="begin"><w:ffData><w:ddList><w:default w:val="0"/>'
        '<w:listEntry w:val="A dog"/></w:ddList></w:ffData></w:fldChar></w:r>'
        '<w:r><w:fldChar w:fldCharType="end"/></w:r></w:p>'
    )
    text = translated_document(document_with(form), tmp_path)["word/document.xml"]
    assert 'w:tooltip="A TIP"' in text
    assert '<w:default w:val="0"/><w:listEntry w:val="A DOG"/>' in text


DROP_CAP = (
    '<w:p><w:pPr><w:framePr w:dropCap="drop" w:lines="3"/></w:pPr><w:r><w:rPr><w:sz w:val="90"/></w:rPr>'
    "<w:t>T</w:t></w:r></w:p>"
)
BEHIND = (
    '<w:p><w:r><w:t xml:space="preserve">he old </w:t></w:r><w:r>'
    "<w:rPr><w:b/></w:rPr><w:t>woman</w:t></w:r></w:p>"
)


def test_a_drop_cap_and_the_text_behind_it_are_one_text(tmp_path: Path) -> None:
    document_with(DROP_CAP, BEHIND, "<w:p><w:r><w:t>The end.</w:t></w:r></w:p>").save(  # type: ignore[attr-defined]
        str(tmp_path / "a.docx")
    )
    seen: list[str] = []

    def german(texts: Sequence[str], aligned: Container[str]) -> list[Output]:
        seen.extend(texts)
        return [Output("Die alte Frau", [(0, 0), (1, 1), (2, 2)]) for _ in texts]

    written = docx.Document(io.BytesIO(translated_bytes(tmp_path / "a.docx", german)))
    assert seen[0] == "The old woman"
    assert [each.text for each in written.paragraphs[:2]] == ["D", "ie alte Frau"]
    assert [each.text for each in written.paragraphs[1].runs if each.bold] == ["Frau"]
    assert written.paragraphs[0]._p.pPr.find(qn("w:framePr")) is not None
    assert written.paragraphs[0].runs[0].font.size.pt == 45


def test_a_drop_cap_before_a_table_stays(tmp_path: Path) -> None:
    table = "<w:tbl><w:tr><w:tc><w:p><w:r><w:t>he old</w:t></w:r></w:p></w:tc></w:tr></w:tbl>"
    text = translated_document(document_with(DROP_CAP, table), tmp_path)["word/document.xml"]
    assert text.index(">T<") < text.index("<w:tbl") < text.index("HE OLD")


def test_a_soft_hyphen_stays_in_a_word_that_stays(tmp_path: Path) -> None:
    hyphen = "</w:t><w:softHyphen/><w:t>"
    paragraph = f"<w:p><w:r><w:t>The grand{hyphen}father and the grand{hyphen}mother read</w:t></w:r></w:p>"
    document_with(paragraph).save(str(tmp_path / "a.docx"))  # type: ignore[attr-defined]
    for translate in (identity, lambda texts, _: [Output(each) for each in texts]):  # with links, and without
        written = members(translated_bytes(tmp_path / "a.docx", translate))["word/document.xml"].decode()
        assert re.sub("<w:softHyphen/>", "-", written.partition("<w:body>")[2]).count("</w:t>-<w:t") == 2
        assert re.findall(r">([^<]*)</w:t>", written) == ["The grand", "father and the grand", "mother read"]


def test_the_base_of_a_phonetic_guide_is_a_part_of_the_text(tmp_path: Path) -> None:
    ruby = (
        "<w:p><w:r><w:t>\u79c1\u306f</w:t></w:r><w:r><w:ruby><w:rubyPr/><w:rt><w:r><w:t>\u3068</w:t></w:r></w:rt>"
        "<w:rubyBase><w:r><w:t>\u6771\u4eac</w:t></w:r></w:rubyBase></w:ruby></w:r>"
        "<w:r><w:t>\u306b\u4f4f\u3093\u3067\u3044\u307e\u3059\u3002</w:t></w:r></w:p>"
    )
    document_with(ruby).save(str(tmp_path / "a.docx"))  # type: ignore[attr-defined]
    [unit] = read_document(tmp_path / "a.docx").units
    assert unit.source.text == RUBY


RUBY = "\u79c1\u306f\u6771\u4eac\u306b\u4f4f\u3093\u3067\u3044\u307e\u3059\u3002"
HTML_RUBY = (
    "<p>\u79c1\u306f<ruby>\u6771\u4eac<rp>(</rp><rt>\u3068\u3046</rt><rp>)</rp></ruby>"
    "\u306b\u4f4f\u3093\u3067\u3044\u307e\u3059\u3002</p>"
)
SHORT = (
    "<p>\u79c1\u306f<ruby><rb>\u6771<rt>\u3068<rb>\u4eac<rt>\u3046</ruby>"
    "\u306b\u4f4f\u3093\u3067\u3044\u307e\u3059\u3002</p>"
)


@pytest.mark.parametrize(
    ("name", "text"), [("a.html", HTML_RUBY), ("a.html", SHORT), ("a.md", HTML_RUBY[3:-4])]
)
def test_the_base_of_ruby_is_a_part_of_the_text(name: str, text: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(text, encoding="utf-8")
    [unit] = read_document(tmp_path / name).units
    assert unit.source.text == RUBY
    assert RUBY in translated_bytes(tmp_path / name, upper).decode()


def test_the_base_of_ruby_in_an_opendocument_is_a_part_of_the_text(tmp_path: Path) -> None:
    name = "urn:oasis:names:tc:opendocument:xmlns:"
    content = (
        f'<office:document-content xmlns:office="{name}office:1.0" xmlns:text="{name}text:1.0">'
        "<text:p>\u79c1\u306f<text:ruby><text:ruby-base>\u6771\u4eac</text:ruby-base>"
        "<text:ruby-text>\u3068</text:ruby-text></text:ruby>"
        "\u306b\u4f4f\u3093\u3067\u3044\u307e\u3059\u3002</text:p></office:document-content>"
    )
    with zipfile.ZipFile(tmp_path / "a.odt", "w") as package:
        package.writestr("content.xml", content)
    [unit] = read_document(tmp_path / "a.odt").units
    assert unit.source.text == RUBY


@pytest.mark.parametrize("kind", ["text/html", "text/plain", "message/rfc822"])
def test_a_part_in_another_format_is_translated_or_refused(kind: str, tmp_path: Path) -> None:
    relation = (
        b'<Relationship Id="rIdA1" Type="http://schemas.openxmlformats.org/officeDocument/2006/relationships/aFChunk"'
        b' Target="/word/a.htm"/></Relationships>'
    )
    override = f'<Override PartName="/word/a.htm" ContentType="{kind}"/></Types>'.encode()

    def change(name: str, data: bytes) -> tuple[str, bytes]:
        if name == "word/_rels/document.xml.rels":
            data = data.replace(b"</Relationships>", relation)
        return name, data.replace(b"</Types>", override) if name == "[Content_Types].xml" else data

    path = tmp_path / "a.docx"
    repacked(document_with("<w:p><w:r><w:t>A text.</w:t></w:r></w:p>"), change, path)
    with zipfile.ZipFile(path, "a") as package:
        package.writestr("word/a.htm", "<html><body><p>The house is small.</p></body></html>")
    if kind == "message/rfc822":
        with pytest.raises(InputError, match=r"word/a\.htm"):
            read_document(path)
    else:
        assert b"THE HOUSE IS SMALL." in members(translated_bytes(path, upper))["word/a.htm"]


def test_runs_name_the_language_of_the_translation(tmp_path: Path) -> None:
    run = '<w:r><w:rPr><w:lang w:val="{}"/></w:rPr><w:t>The house {} small.</w:t></w:r>'
    parts = translated_document(document_with(f"<w:p>{run.format('en-GB', 'is')}</w:p>"), tmp_path)
    assert '<w:lang w:val="de"/>' in parts["word/document.xml"]
    assert '<w:lang w:val="de"' in parts["word/styles.xml"]
    parts = translated_document(document_with(f"<w:p>{run.format('de-AT', 'is')}</w:p>"), tmp_path)
    assert '<w:lang w:val="de-AT"/>' in parts["word/document.xml"]
    document_with(f"<w:p>{run.format('en-GB', 'is')}</w:p>").save(str(tmp_path / "a.docx"))  # type: ignore[attr-defined]
    document = read_document(tmp_path / "a.docx", language="deu_Latn")  # no tag that Word knows
    [written] = translate_units(document.units, upper)
    assert '<w:lang w:val="en-GB"/>' in written[0]
