"""Documents of every format with random structure, each word of which is known and occurs once."""

import csv
import io
import json
import random
from datetime import timedelta
from itertools import product
from pathlib import Path

import docx
import openpyxl
import polib
import pptx
import srt
import webvtt
from openpyxl.cell.rich_text import CellRichText, TextBlock
from openpyxl.cell.text import InlineFont
from openpyxl.comments import Comment
from translate.storage.tmx import tmxfile
from translate.storage.xliff import xlifffile

_LETTERS = "bcdfghjklmnpqrtvw"


class Words:
    """Sampled texts of words that no other text has."""

    def __init__(self, seed: int) -> None:
        self.sampled = random.Random(seed)
        self._letters = ("".join(each) for each in product(_LETTERS, repeat=4))
        self.all: list[str] = []

    def word(self) -> str:
        self.all.append(f"z{next(self._letters)}z")
        return self.all[-1]

    def text(self, longest: int = 9) -> str:
        """Return a sentence."""
        words = [self.word() for _ in range(self.sampled.randint(1, longest))]
        if len(words) > 3:
            words[1] += self.sampled.choice(("", ",", ":"))
        return " ".join([words[0].capitalize(), *words[1:]]) + self.sampled.choice((".", "?", "!", ""))

    def runs(self) -> list[tuple[str, bool]]:
        """Return the parts of a sentence, and whether each has a format of its own."""
        return [(f"{self.text(3)} ", self.sampled.random() < 0.4) for _ in range(self.sampled.randint(1, 5))]

    def some(self, most: int) -> range:
        return range(self.sampled.randint(1, most))


def docx_document(words: Words) -> bytes:
    document = docx.Document()
    document.sections[0].header.paragraphs[0].text = words.text()
    document.sections[0].footer.paragraphs[0].text = words.text()
    for _ in words.some(8):
        match words.sampled.randrange(4):
            case 0:
                document.add_heading(words.text(), words.sampled.randint(0, 4))
            case 1:
                table = document.add_table(2, 2)
                for row, column in product(range(2), range(2)):
                    table.cell(row, column).text = words.text(3)
            case 2:
                document.add_paragraph(words.text(), style="List Bullet")
            case _:
                paragraph = document.add_paragraph()
                for text, has_format in words.runs():
                    run = paragraph.add_run(text)
                    if has_format:
                        run.italic, run.bold = True, words.sampled.random() < 0.5
                    if words.sampled.random() < 0.1:
                        run.add_break()
                    if words.sampled.random() < 0.1:
                        document.add_comment(run, text=words.text(), author="Ann")
    return _saved(document)


def pptx_document(words: Words) -> bytes:
    presentation = pptx.Presentation()
    for _ in words.some(3):
        slide = presentation.slides.add_slide(presentation.slide_layouts[1])
        slide.shapes.title.text = words.text()
        frame = slide.placeholders[1].text_frame
        frame.text = words.text()
        for _ in words.some(3):
            paragraph = frame.add_paragraph()
            for text, has_format in words.runs():
                run = paragraph.add_run()
                run.text, run.font.bold = text, has_format or None
        if words.sampled.random() < 0.5:
            slide.notes_slide.notes_text_frame.text = words.text()
        if words.sampled.random() < 0.5:
            table = slide.shapes.add_table(1, 2, 0, 0, 100_000, 100_000).table
            table.cell(0, 0).text, table.cell(0, 1).text = words.text(3), words.text(3)
    return _saved(presentation)


def xlsx_document(words: Words) -> bytes:
    book = openpyxl.Workbook()
    sheet = book.active
    sheet["A1"], sheet["B1"] = "id", "text"
    for number, _ in enumerate(words.some(9), start=2):
        sheet.cell(number, 1).value = number * 1.5
        cell = sheet.cell(number, 2)
        cell.value = words.text()
        if words.sampled.random() < 0.3:
            font = InlineFont(b=True)
            cell.value = CellRichText(
                f"{words.text(2)} ", TextBlock(font, words.text(2)), f" {words.text(2)}"
            )
        if words.sampled.random() < 0.2:
            cell.comment = Comment(words.text(), "Ann")
    other = book.create_sheet()
    other["A1"], other["A2"], other["B3"] = words.text(), "=SUM(1, 2)", f"{words.text()}\n{words.text()}"
    return _saved(book)


def odt_document(words: Words) -> bytes:
    from odf import style, table, text
    from odf.opendocument import OpenDocumentText

    document = OpenDocumentText()
    bold = style.Style(name="Bold", family="text")
    bold.addElement(style.TextProperties(fontweight="bold"))
    document.automaticstyles.addElement(bold)
    for _ in words.some(8):
        match words.sampled.randrange(4):
            case 0:
                document.text.addElement(text.H(outlinelevel=1, text=words.text()))
            case 1:
                own, row = table.Table(name=f"t{words.sampled.random()}"), table.TableRow()
                own.addElement(table.TableColumn(numbercolumnsrepeated=2))
                for _ in range(2):
                    cell = table.TableCell()
                    cell.addElement(text.P(text=words.text(3)))
                    row.addElement(cell)
                own.addElement(row)
                document.text.addElement(own)
            case _:
                paragraph = text.P(text="")
                for part, has_format in words.runs():
                    if has_format:
                        paragraph.addElement(text.Span(stylename=bold, text=part))
                    else:
                        paragraph.addText(part)
                if words.sampled.random() < 0.3:
                    note, body = text.Note(noteclass="footnote"), text.NoteBody()
                    note.addElement(text.NoteCitation(text="1"))
                    body.addElement(text.P(text=words.text()))
                    note.addElement(body)
                    paragraph.addElement(note)
                document.text.addElement(paragraph)
    return _saved(document)


def ods_document(words: Words) -> bytes:
    from odf import table, text
    from odf.opendocument import OpenDocumentSpreadsheet

    document = OpenDocumentSpreadsheet()
    sheet = table.Table(name="one")
    for _ in words.some(9):
        row = table.TableRow()
        number = table.TableCell(valuetype="float", value="1.5")
        number.addElement(text.P(text="1.5"))
        row.addElement(number)
        for _ in words.some(3):
            cell = table.TableCell(valuetype="string")
            cell.addElement(text.P(text=words.text()))
            row.addElement(cell)
        sheet.addElement(row)
    document.spreadsheet.addElement(sheet)
    return _saved(document)


def odp_document(words: Words) -> bytes:
    from odf import draw, style, text
    from odf.opendocument import OpenDocumentPresentation

    document = OpenDocumentPresentation()
    layout = style.PageLayout(name="layout")
    document.automaticstyles.addElement(layout)
    master = style.MasterPage(name="master", pagelayoutname=layout)
    document.masterstyles.addElement(master)
    for _ in words.some(3):
        page = draw.Page(masterpagename=master)
        for _ in words.some(3):
            frame, box = draw.Frame(width="9cm", height="3cm"), draw.TextBox()
            for _ in words.some(3):
                box.addElement(text.P(text=words.text()))
            frame.addElement(box)
            page.addElement(frame)
        document.presentation.addElement(page)
    return _saved(document)


def text_document(words: Words) -> bytes:
    end = words.sampled.choice(("\n", "\r\n"))
    return end.join(words.text() + words.sampled.choice(("", "  ", "\t%s")) for _ in words.some(9)).encode()


def markdown_document(words: Words) -> bytes:
    blocks = []
    for _ in words.some(8):
        match words.sampled.randrange(6):
            case 0:
                blocks.append(f"{'#' * words.sampled.randint(1, 4)} {words.text()}")
            case 1:
                blocks.append("\n".join(f"- {words.text()}\n  {words.text()}" for _ in range(2)))
            case 2:
                blocks.append(f"> {words.text()}\n> {words.text()}")
            case 3:
                blocks.append("```\ncode as it is\n```")
            case 4:
                blocks.append(
                    f"| {words.word()} | {words.word()} |\n|---|:-:|\n| {words.text()} | {words.word()} |"
                )
            case _:
                parts = [f"**{text.strip()}**" if bold else text.strip() for text, bold in words.runs()]
                link = f"[{words.text(3)}](http://example.org)" if words.sampled.random() < 0.3 else ""
                blocks.append(f"{words.sampled.choice(('', '1. '))}{' '.join(parts)} {link}".rstrip())
    return ("\n\n".join(blocks) + words.sampled.choice(("", "\n"))).encode()


def html_document(words: Words) -> bytes:
    parts = [f"<!DOCTYPE html>\n<html><head><title>{words.text()}</title></head>\n<body class='x'>"]
    for _ in words.some(8):
        inner = "".join(f"<b>{text}</b>" if bold else text for text, bold in words.runs())
        name = words.sampled.choice(("p", "div", "li", "h2", "td"))
        parts.append(f"<{name} id=a{words.sampled.randint(0, 9)}>{inner} &amp; {words.text()}</{name}><br>")
    return ("\n".join(parts) + "<script>as('it is')</script></body></html>").encode()


def subtitles(words: Words) -> list[tuple[float, str]]:
    texts = [f"{words.text()}{words.sampled.choice(('', chr(10) + words.text()))}" for _ in words.some(9)]
    return [
        (1.5 * number, f"<i>{text}</i>" if number % 3 == 2 else text) for number, text in enumerate(texts)
    ]


def srt_document(words: Words) -> bytes:
    return srt.compose(
        [
            srt.Subtitle(number, timedelta(seconds=at), timedelta(seconds=at + 1), text)
            for number, (at, text) in enumerate(subtitles(words), start=1)
        ]
    ).encode()


def vtt_document(words: Words) -> bytes:
    file = webvtt.WebVTT()
    for at, text in subtitles(words):
        file.captions.append(webvtt.Caption(f"00:00:{at:06.3f}", f"00:00:{at + 1:06.3f}", text))
    return str(file.content).encode()


def po_document(words: Words) -> bytes:
    catalogue = polib.POFile()
    catalogue.metadata = {"Content-Type": "text/plain; charset=UTF-8"}
    for number in words.some(9):
        text = words.text() + words.sampled.choice(("", "\n" + words.text(), " %d", ' "quoted"'))
        if number % 3 == 2:
            forms = {0: "", 1: ""}
            catalogue.append(polib.POEntry(msgid=text, msgid_plural=words.text(), msgstr_plural=forms))
        else:
            catalogue.append(polib.POEntry(msgid=text, comment="a note"))
    return str(catalogue).encode()


def xliff_document(words: Words) -> bytes:
    file = xlifffile(sourcelanguage="en", targetlanguage="de")
    for _ in words.some(9):
        file.addsourceunit(words.text() + words.sampled.choice(("", " & <more>")))
    return bytes(file)


def tmx_document(words: Words) -> bytes:
    file = tmxfile()
    for _ in words.some(9):
        file.addtranslation(words.text() + words.sampled.choice(("", " & <more>")), "en", "Autre.", "fr")
    return bytes(file)


def json_document(words: Words) -> bytes:
    def value(depth: int) -> object:
        kind = words.sampled.randrange(5 if depth else 2)
        if kind > 2:
            return words.text() + words.sampled.choice(("", "\n", ' "é" \\', "😀"))
        if kind == 2:
            return words.sampled.choice((None, 1, -2.5e3, True))
        inner = [value(depth + 1) for _ in words.some(4)]
        return inner if kind else {f"key {number}": each for number, each in enumerate(inner)}

    indent, in_ascii = words.sampled.choice((None, 2)), words.sampled.random() < 0.5
    return json.dumps(value(0), indent=indent, ensure_ascii=in_ascii).encode()


def csv_document(words: Words) -> bytes:
    stream = io.StringIO()
    writer = csv.writer(stream, delimiter=words.sampled.choice(",;"), lineterminator="\r\n")
    writer.writerow(["id", "text"])
    writer.writerows(
        [number, words.text() + words.sampled.choice(("", "\n", ' "a", ; b'))] for number in words.some(9)
    )
    return stream.getvalue().encode()


def _saved(document: object) -> bytes:
    stream = io.BytesIO()
    save = getattr(document, "write", None) or document.save  # type: ignore[attr-defined]
    save(stream)
    return stream.getvalue()


MAKERS = {
    "docx": docx_document, "pptx": pptx_document, "xlsx": xlsx_document, "odt": odt_document,
    "ods": ods_document, "odp": odp_document, "txt": text_document, "md": markdown_document,
    "html": html_document, "srt": srt_document, "vtt": vtt_document, "po": po_document,
    "xliff": xliff_document, "tmx": tmx_document, "json": json_document, "csv": csv_document,
}  # fmt: skip
# What LibreOffice makes each format of, and the name of its filter where there are several.
LIBREOFFICE = {
    "docx": ("odt", "docx"), "odt": ("docx", "odt"), "pptx": ("odp", "pptx"), "odp": ("pptx", "odp"),
    "xlsx": ("ods", "xlsx"), "ods": ("xlsx", "ods"), "html": ("docx", "html"), "csv": ("xlsx", "csv"),
    "txt": ("docx", "txt:Text (encoded):UTF8"),
}  # fmt: skip


def write_documents(suffix: str, folder: Path, numbers: range) -> dict[Path, list[str]]:
    """Write documents of a format, one for each seed, and return the words of each."""
    folder.mkdir(parents=True, exist_ok=True)
    written = {}
    for seed in numbers:
        words = Words(seed)
        path = folder / f"{seed}.{suffix}"
        path.write_bytes(MAKERS[suffix](words))
        written[path] = words.all
    return written
