"""Documents as other programs write them, and what must not change in them."""

import io
import re
import subprocess
import zipfile
from collections import Counter
from collections.abc import Callable, Container, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

import docx
import openpyxl
import polib
import pptx
import pytest
import srt
import xlsxwriter
from docx.oxml import OxmlElement
from docx.oxml.ns import qn
from lxml import etree
from openpyxl.cell.rich_text import CellRichText, TextBlock
from openpyxl.cell.text import InlineFont
from openpyxl.comments import Comment
from openpyxl.worksheet.table import Table
from translate.storage.tmx import tmxfile
from translate.storage.xliff import xlifffile

from heedful.decoding.alignment import Alignment
from heedful.decoding.translation import Translation
from heedful.documents.document_file import read_document
from heedful.documents.template import Unit
from heedful.spans import pipeline
from heedful.spans.words import Links, words


@dataclass(frozen=True)
class Output:
    """A translation of a sentence by a test, and the links of its words."""

    text: str
    links: Links | None = None


def translate_units(
    units: Sequence[Unit], translate: Callable[[Sequence[str], Container[str]], Sequence[Output]]
) -> Iterator[list[str]]:
    """Yield what is written for units, if their sentences are translated by a function.

    It takes the sentences, and those among them that need links.
    """

    def search(requests: Sequence[pipeline.Request]) -> list[Translation]:
        texts = [request.text for request in requests]
        outputs = translate(texts, {request.text for request in requests if request.aligned})
        alignments = [None if each.links is None else Alignment(tuple(each.links)) for each in outputs]
        return [
            Translation.given(text, output.text, alignment=alignment)
            for text, output, alignment in zip(texts, outputs, alignments, strict=True)
        ]

    return pipeline.translate_units(units, search)


def upper(texts: Sequence[str], aligned: Container[str]) -> list[Output]:
    """Translate into capitals, word by word."""
    return [_output(text, text.upper()) for text in texts]


def identity(texts: Sequence[str], aligned: Container[str]) -> list[Output]:
    return [_output(text, text) for text in texts]


def backwards(texts: Sequence[str], aligned: Container[str]) -> list[Output]:
    """Put the words in reverse order, with links that say so."""
    outputs = []
    for text in texts:
        parts = text.split()
        num = len(words(text))
        is_plain = num == len(parts)
        outputs.append(
            Output(" ".join(reversed(parts)), [(i, num - 1 - i) for i in range(num)] if is_plain else None)
        )
    return outputs


class Noted:
    """A translator that notes its sentences."""

    def __init__(self, translate: Callable[..., Sequence[Output]]) -> None:
        self.texts: list[str] = []
        self._translate = translate

    def __call__(self, texts: Sequence[str], aligned: Container[str]) -> Sequence[Output]:
        self.texts.extend(texts)
        return self._translate(texts, aligned)


def _output(source: str, target: str) -> Output:
    num = min(len(words(source)), len(words(target)))
    return Output(target, [(index, index) for index in range(num)])


def translated_bytes(
    path: Path, translate: Callable[..., Sequence[Output]], *, columns: Sequence[str] = ("text",)
) -> bytes:
    document = read_document(path, columns=columns if path.suffix in (".csv", ".tsv") else (), language="de")
    stream = io.BytesIO()
    document.write(list(chain.from_iterable(translate_units(document.units, translate))), stream)
    return stream.getvalue()


def docx_file() -> bytes:
    document = docx.Document()
    document.add_heading("A title", 0)
    paragraph = document.add_paragraph("The cat ")
    paragraph.add_run("sleeps").bold = True
    paragraph.add_run(" in the ol")
    paragraph.add_run("d house")  # a word in two runs
    paragraph.add_run(" & goes < on.\tA column\nA line")
    italic = document.add_paragraph().add_run("All of it is italic.")
    italic.italic = True
    _link(document.add_paragraph("See "), "the manual", " for more.")
    _field(document.add_paragraph("Page "), "PAGE", "seven", " of it.")
    _field(document.add_paragraph("Read "), 'HYPERLINK "http://example.org"', "the site", " now.")
    document.add_paragraph("First item", style="List Bullet")
    table = document.add_table(2, 2)
    table.cell(0, 0).text = "first cell"
    table.cell(1, 1).text = "last cell"
    document.sections[0].header.paragraphs[0].text = "The header"
    document.sections[0].footer.paragraphs[0].text = "The footer"
    _bookmark(document.add_paragraph("A "), "marked", " word.")
    picture = io.BytesIO(_PNG)
    document.add_picture(picture)
    shape = document.inline_shapes[0]._inline.docPr
    shape.set("descr", "A red square")
    document.add_comment(italic, text="A remark here", author="Ann")
    return _saved(document.save)


def _link(paragraph: object, text: str, behind: str) -> None:
    link = OxmlElement("w:hyperlink")
    link.set(qn("w:anchor"), "there")
    run = paragraph.add_run(text)  # type: ignore[attr-defined]
    run.underline = True
    link.append(run._r)
    paragraph._p.append(link)  # type: ignore[attr-defined]
    paragraph.add_run(behind)  # type: ignore[attr-defined]


def _field(paragraph: object, code: str, result: str, behind: str) -> None:
    for kind in ("begin", "instr", "separate", "result", "end"):
        run = paragraph.add_run(result if kind == "result" else None)  # type: ignore[attr-defined]
        if kind == "instr":
            element = OxmlElement("w:instrText")
            element.text = code
            run._r.append(element)
        elif kind != "result":
            element = OxmlElement("w:fldChar")
            element.set(qn("w:fldCharType"), kind)
            run._r.append(element)
    paragraph.add_run(behind)  # type: ignore[attr-defined]


def _bookmark(paragraph: object, text: str, behind: str) -> None:
    for kind in ("bookmarkStart", "text", "bookmarkEnd"):
        if kind == "text":
            paragraph.add_run(text)  # type: ignore[attr-defined]
            continue
        element = OxmlElement(f"w:{kind}")
        element.set(qn("w:id"), "7")
        if kind == "bookmarkStart":
            element.set(qn("w:name"), "mark")
        paragraph._p.append(element)  # type: ignore[attr-defined]
    paragraph.add_run(behind)  # type: ignore[attr-defined]


Runs = Sequence[tuple[str, str]]  # texts, and whether each is a "subscript", a "superscript" or neither: ""
_BASELINES = {"subscript": "-25000", "superscript": "30000"}


def as_document(kind: str, runs: Runs) -> bytes:
    """Return a document of a kind (docx, pptx, xlsx, odt) with one paragraph of runs."""
    return _MAKERS[kind](runs)


def _docx_of(runs: Runs) -> bytes:
    document = docx.Document()
    paragraph = document.add_paragraph()
    for text, position in runs:
        run = paragraph.add_run(text)
        if position:
            setattr(run.font, position, True)
    return _saved(document.save)


def _pptx_of(runs: Runs) -> bytes:
    presentation = pptx.Presentation()
    slide = presentation.slides.add_slide(presentation.slide_layouts[1])
    paragraph = slide.placeholders[1].text_frame.paragraphs[0]
    for text, position in runs:
        run = paragraph.add_run()
        run.text = text
        if position:
            run.font._rPr.set("baseline", _BASELINES[position])
    return _saved(presentation.save)


def _xlsx_of(runs: Runs) -> bytes:
    book = openpyxl.Workbook()
    blocks = [TextBlock(InlineFont(vertAlign=kind), text) if kind else text for text, kind in runs]
    book.active["A1"] = CellRichText(*blocks)
    return _saved(book.save)


def _odt_of(runs: Runs) -> bytes:
    from odf import style, text
    from odf.opendocument import OpenDocumentText

    document = OpenDocumentText()
    for name, position in (("subscript", "sub 58%"), ("superscript", "super 58%")):
        own = style.Style(name=name, family="text")
        own.addElement(style.TextProperties(textposition=position))
        document.automaticstyles.addElement(own)
    paragraph = text.P()
    for run, position in runs:
        paragraph.addElement(text.Span(stylename=position, text=run) if position else text.Span(text=run))
    document.text.addElement(paragraph)
    return _saved(document.write)


_MAKERS = {"docx": _docx_of, "pptx": _pptx_of, "xlsx": _xlsx_of, "odt": _odt_of}


def runs_of(kind: str, data: bytes) -> list[tuple[str, str]]:
    """Return the runs of a document that `as_document` has made."""
    if kind == "docx":
        [paragraph] = docx.Document(io.BytesIO(data)).paragraphs
        fonts = [(run.text, run.font) for run in paragraph.runs]
        return [
            (text, "subscript" * bool(f.subscript) + "superscript" * bool(f.superscript)) for text, f in fonts
        ]
    if kind == "pptx":
        slide = pptx.Presentation(io.BytesIO(data)).slides[0]
        positions = {baseline: position for position, baseline in _BASELINES.items()}
        runs = slide.placeholders[1].text_frame.paragraphs[0].runs
        return [(run.text, positions.get(run.font._rPr.get("baseline"), "")) for run in runs]
    if kind == "xlsx":
        blocks = openpyxl.load_workbook(io.BytesIO(data), rich_text=True).active["A1"].value
        return [(b.text, b.font.vertAlign) if isinstance(b, TextBlock) else (b, "") for b in blocks]
    root = etree.fromstring(members(data)["content.xml"])
    spans = root.iter("{urn:oasis:names:tc:opendocument:xmlns:text:1.0}span")
    return [("".join(span.itertext()), next(iter(span.attrib.values()), "")) for span in spans]


def pptx_file() -> bytes:
    presentation = pptx.Presentation()
    slide = presentation.slides.add_slide(presentation.slide_layouts[1])
    slide.shapes.title.text = "The title"
    frame = slide.placeholders[1].text_frame
    frame.text = "First point"
    paragraph = frame.add_paragraph()
    for text, is_bold in (("Second ", None), ("bold", True), (" point.", None)):
        run = paragraph.add_run()
        run.text, run.font.bold = text, is_bold
    paragraph.add_line_break()
    paragraph.add_run().text = "another line"
    link = frame.add_paragraph().add_run()
    link.text, link.hyperlink.address = "a link", "http://example.org"
    slide.notes_slide.notes_text_frame.text = "Notes of the speaker"
    table = slide.shapes.add_table(1, 2, 0, 0, 100_000, 100_000).table
    table.cell(0, 0).text = "a cell"
    picture = slide.shapes.add_picture(io.BytesIO(_PNG), 0, 0)
    picture._element.nvPicPr.cNvPr.set("descr", "A red square")
    return _saved(presentation.save)


def xlsx_file() -> bytes:
    book = openpyxl.Workbook()
    sheet = book.active
    sheet.title = "sheet one"
    sheet["A1"], sheet["A2"], sheet["A3"] = "A text", 42, '=CONCATENATE("as it"," is")'
    sheet["B1"] = "two\nlines & more"
    sheet["B1"].comment = Comment("A remark", "Ann")
    sheet["C1"] = CellRichText("plain ", TextBlock(InlineFont(b=True), "bold"), " end")
    sheet["F1"], sheet["G1"] = "item", "price"
    sheet["F2"], sheet["G2"] = "an apple", 1
    sheet.add_table(Table(displayName="Prices", ref="F1:G2"))
    sheet["H1"] = "=SUM(Prices[price])"
    sheet.oddHeader.center.text = "The header, page &P"
    return _saved(book.save)


def shared_strings_file() -> bytes:
    """Return a workbook with a table of strings beside its sheets, as programs for offices write it."""
    stream = io.BytesIO()
    with xlsxwriter.Workbook(stream, {"in_memory": True}) as book:
        sheet = book.add_worksheet()
        bold = book.add_format({"bold": True})
        sheet.write("A1", "A text")
        sheet.write_rich_string("A2", "plain ", bold, "bold", " end")
        sheet.write("A3", "  with spaces\nand lines ")
        sheet.write("A4", 3.5)
        sheet.write("A5", "A text")
        sheet.write_formula("A6", '="as" & " it is"')
        sheet.data_validation("B1", {"validate": "any", "input_title": "a title", "input_message": "a hint"})
        sheet.insert_textbox("C1", "A box of text")
        chart = book.add_chart({"type": "line"})
        chart.set_title({"name": "The title of a chart"})
        chart.add_series({"values": "=Sheet1!$A$4:$A$4"})
        sheet.insert_chart("E1", chart, {"description": "A line"})
    return stream.getvalue()


def po_file() -> bytes:
    catalogue = polib.POFile()
    catalogue.metadata = {"Content-Type": "text/plain; charset=UTF-8", "Language": "de"}
    catalogue.append(
        polib.POEntry(msgid="The file %s is open.", comment="a comment", occurrences=[("a.c", "3")])
    )
    catalogue.append(polib.POEntry(msgid='A "quoted" word\nand a line', msgctxt="menu"))
    plural = polib.POEntry(msgid="%d file", msgid_plural="%d files", msgstr_plural={0: "", 1: ""})
    catalogue.append(plural)
    catalogue.append(polib.POEntry(msgid="done", msgstr="Fertig"))
    return str(catalogue).encode()


def srt_file() -> bytes:
    from datetime import timedelta

    texts = ["Where is the <i>old</i> house?", "It is a long sentence\nthat goes on here.", "- Yes.\n- No."]
    cues = [
        srt.Subtitle(number, timedelta(seconds=number), timedelta(seconds=number + 1), text)
        for number, text in enumerate(texts, start=1)
    ]
    return srt.compose(cues).encode()


def xliff_file() -> bytes:
    file = xlifffile(sourcelanguage="en", targetlanguage="de")
    for text in ("The house is small.", "A & B are <here>."):
        file.addsourceunit(text)
    done = file.addsourceunit("done")
    done.target = "Fertig"
    return bytes(file)


def tmx_file() -> bytes:
    file = tmxfile()
    file.addtranslation("The house is small.", "en", "La maison est petite.", "fr")
    return bytes(file)


TEXTS = {
    "a.txt": "A line.\r\n\r\nAnother one. And more!\n  indented %s {name}\n",
    "a.md": """---
title: as it is
---
# A *title* with `code`

> A quote that goes on
> in the [next](http://example.org "tip") line.

- item with **bold** text
1. a number

| a head | other |
|--------|-------|
| cell | **cell** |

![a picture](img.png) and <b>some</b> HTML\x20\x20
with a hard break <http://example.org>.

    as it is

```
as it is
```
""",
    "a.html": """<!DOCTYPE html>
<html>
<head><title>The title</title></head>
<body class="as-it-is">
  <p>A text with <b>bold</b> words.</p>
  <ul>
    <li>One item</li>
  </ul>
  <script>as("it is")</script>
</body>
</html>
""",
    "a.vtt": """WEBVTT

NOTE as it is

intro
00:01.000 --> 00:02.000 align:start
<v Ann>Where is &amp; was <i>it</i>?</v>

00:02.000 --> 00:03.000
two lines
of text
""",
    "a.json": r"""{"title": "A \"title\"", "n": [1, 2.50, null, "an item"],
 "as_it_is": {"x": "{name} is here"}}
""",
    "a.csv": 'id;text;other\r\n1;"a ""quoted"" text; here";as it is\r\n2;plain text;as it is\r\n',
    "b.xlf": """<?xml version="1.0"?>
<xliff xmlns="urn:oasis:names:tc:xliff:document:2.0" version="2.0" srcLang="en" trgLang="de">
  <file id="f1">
    <unit id="u1">
      <segment>
        <source>Press <pc id="1">the <ph id="2"/> key</pc> now.</source>
      </segment>
    </unit>
    <unit id="u2" translate="no"><segment><source>as it is</source></segment></unit>
  </file>
</xliff>
""",
}


def sample_documents() -> dict[str, Callable[[], bytes]]:
    """Return what makes a document of each format, by its name."""
    return {
        **{name: text.encode for name, text in TEXTS.items()},
        "a.docx": docx_file, "a.pptx": pptx_file, "a.xlsx": xlsx_file, "a.odt": odt_file,
        "b.xlsx": shared_strings_file, "a.po": po_file, "a.srt": srt_file, "a.xliff": xliff_file,
        "a.tmx": tmx_file,
    }  # fmt: skip


def odt_file() -> bytes:
    """Return a text document with what odfpy can write."""
    from odf import dc, draw, office, style, svg, text
    from odf.opendocument import OpenDocumentText

    document = OpenDocumentText()
    bold = style.Style(name="Bold", family="text")
    bold.addElement(style.TextProperties(fontweight="bold"))
    document.automaticstyles.addElement(bold)
    document.text.addElement(text.H(outlinelevel=1, text="The title"))
    paragraph = text.P(text="A cat ")
    paragraph.addElement(text.Span(stylename=bold, text="sleeps"))
    paragraph.addText(" here.")
    note = text.Note(noteclass="footnote")
    note.addElement(text.NoteCitation(text="1"))
    body = text.NoteBody()
    body.addElement(text.P(text="A note below."))
    note.addElement(body)
    paragraph.addElement(note)
    paragraph.addElement(text.LineBreak())
    paragraph.addText("Another line.")
    document.text.addElement(paragraph)
    linked = text.P(text="See ")
    linked.addElement(text.A(href="http://example.org", text="the site"))
    remark = office.Annotation()
    remark.addElement(dc.Creator(text="ANN"))
    remark.addElement(text.P(text="A remark."))
    linked.addElement(remark)
    document.text.addElement(linked)
    frame = draw.Frame(width="1cm", height="1cm")
    frame.addElement(svg.Title(text="A picture"))
    holder = text.P()
    holder.addElement(frame)
    document.text.addElement(holder)
    return _saved(document.write)


def _saved(save: Callable[[io.BytesIO], object]) -> bytes:
    stream = io.BytesIO()
    save(stream)
    return stream.getvalue()


_PNG = bytes.fromhex(
    "89504e470d0a1a0a0000000d4948445200000001000000010802000000907753de0000000c4944415408d763f8cfc000000301"
    "0100c9fe92ef0000000049454e44ae426082"
)
_LANGUAGE = re.compile(r'<w:lang [^<>]*></w:lang>| lang="[^"]*"')  # of the spelling, which is the target's
_RUNS = {"r", "t", "rPr", "span"}  # of which there may be more or fewer


def fingerprint(xml: bytes) -> tuple[list[tuple[str, str]], Counter[str]]:
    """Return characters with their formats, and all other elements, without case: what must not change.

    There may be more or fewer runs, and so more or fewer of the properties in them.
    """
    root = etree.fromstring(xml)
    chars: list[tuple[str, str]] = []
    others: Counter[str] = Counter()
    for element in root.iter(etree.Element):
        local = etree.QName(element).localname
        unseen = ("}space", "lang") if local == "endParaRPr" else ("}space",)  # its language is the target's
        shown = {key: value for key, value in element.attrib.items() if not key.endswith(unseen)}
        around = element.getparent()
        if local not in _RUNS and (around is None or etree.QName(around).localname != "rPr"):
            others[f"{element.tag} {sorted(shown.items())}".casefold()] += 1
        pieces = [(element, element.text)]
        if element.getparent() is not None:
            pieces.append((element.getparent(), element.tail))
        for around, text in pieces:
            form = _format(around)
            chars += [(char, form) for char in (text or "").casefold() if not char.isspace()]
    return chars, others


def _format(element: etree._Element) -> str:
    names = []
    for each in (element, *element.iterancestors()):
        local = etree.QName(each).localname
        properties = each.find("{*}rPr") if local == "r" else None
        if properties is not None and (len(properties) or properties.attrib):
            names.append(
                _LANGUAGE.sub("", etree.tostring(properties, method="c14n", exclusive=True).decode())
            )
        elif local not in ("r", "t", "rPr"):
            names.append(f"{each.tag}{sorted(each.attrib.items())}")
    return "/".join(names).casefold()


def members(data: bytes) -> dict[str, bytes]:
    with zipfile.ZipFile(io.BytesIO(data)) as package:
        return {info.filename: package.read(info) for info in package.infolist()}


def converted_by_libreoffice(paths: Sequence[Path], to: str, folder: Path) -> list[Path]:
    """Return documents that LibreOffice has opened and written in another format."""
    command = ["soffice", "--headless", f"-env:UserInstallation={(folder / 'profile').as_uri()}"]
    subprocess.run(
        [*command, "--convert-to", to, "--outdir", folder, *paths],
        check=True,
        capture_output=True,
        timeout=280,
    )
    return [folder / f"{path.stem}.{to.split(':')[0]}" for path in paths]


def made_by_libreoffice(paths: Sequence[Path], to: str, folder: Path) -> list[Path]:
    """Return documents of other programs in a format of LibreOffice; skips where it cannot read them.

    It has a part for each kind of document (Writer, Calc, Impress), and not every machine has all.
    """
    written = converted_by_libreoffice(paths, to, folder)
    if not any(each.exists() for each in written):
        pytest.skip(f"LibreOffice cannot convert {paths[0].suffix} into {to}")
    return written
