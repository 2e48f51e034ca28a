"""Sheets: no text is longer than Excel allows, and a cell has one value."""

import io
import re
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path

import openpyxl
import pptx
import pytest
import xlsxwriter
from document_files import Output, identity, members, translated_bytes, upper
from openpyxl.worksheet.datavalidation import DataValidation
from pptx.chart.data import CategoryChartData
from pptx.enum.chart import XL_CHART_TYPE


def repeated(text: str) -> Callable[..., Sequence[Output]]:
    return lambda texts, _: [Output(text) for _ in texts]


@pytest.mark.parametrize("char", ["a", "\U0001f600"])  # Excel counts the second as two
def test_what_would_be_too_long_for_excel_stays(char: str, tmp_path: Path) -> None:
    book = openpyxl.Workbook()
    sheet = book.active
    sheet["A1"] = "a cell"
    sheet.oddHeader.center.text, sheet.oddHeader.center.font = "the header", "Arial,Bold"
    validation = DataValidation(
        promptTitle="a title", prompt="a 'hint' & \"more\"", errorTitle="no", error="it"
    )
    validation.add("B1")
    sheet.add_data_validation(validation)
    book.save(str(tmp_path / "a.xlsx"))

    def written(length: int) -> list[str]:
        """Return all texts, where their translations are so long."""
        units = len(char.encode("utf-16-le")) // 2
        text = char * (length // units) + "A" * (length % units)
        data = translated_bytes(tmp_path / "a.xlsx", repeated(text))
        sheet = openpyxl.load_workbook(io.BytesIO(data)).active
        [each] = sheet.data_validations.dataValidation
        texts = [each.promptTitle, each.errorTitle, each.prompt, each.error, sheet.oddHeader.center.text]
        assert sheet["A1"].value == text  # which may be very long
        return ["" if each == text else each for each in texts]

    titles, messages, header = ["a title", "no"], ["a 'hint' & \"more\"", "it"], "the header"
    codes = len('&C&"Arial,Bold"')
    assert written(32) == ["", "", "", "", ""]
    assert written(33) == [*titles, "", "", ""]
    assert written(255 - codes) == [*titles, "", "", ""]
    assert written(256 - codes) == [*titles, "", "", header]
    assert written(255) == [*titles, "", "", header]
    assert written(256) == [*titles, *messages, header]


def test_a_translated_cell_of_a_sheet_has_no_other_value(tmp_path: Path) -> None:
    content = """\
<office:document-content xmlns:office="urn:oasis:names:tc:opendocument:xmlns:office:1.0" \
xmlns:table="urn:oasis:names:tc:opendocument:xmlns:table:1.0" \
xmlns:text="urn:oasis:names:tc:opendocument:xmlns:text:1.0"><table:table-row>
<table:table-cell office:value-type="string" office:string-value="a &gt; cell"><text:p>a cell</text:p>\
</table:table-cell>
<table:table-cell office:value-type="string" office:string-value="12"><text:p>12</text:p></table:table-cell>
<table:table-cell office:value-type="float" office:value="1"/>
</table:table-row></office:document-content>"""
    with zipfile.ZipFile(tmp_path / "a.ods", "w") as package:
        package.writestr("mimetype", "application/vnd.oasis.opendocument.spreadsheet")
        package.writestr("content.xml", content)
    expected = content.replace(' office:string-value="a &gt; cell"', "")
    for translate in (identity, upper):
        written = members(translated_bytes(tmp_path / "a.ods", translate))["content.xml"].decode()
        assert re.sub("A CELL", "a cell", written) == expected


def workbook(path: Path) -> None:
    with xlsxwriter.Workbook(str(path)) as book:
        sheet = book.add_worksheet("House")
        sheet.write("A1", "The house")
        sheet.write("A2", "The house is small.")
        sheet.write_formula("B2", "=A2", None, "The house is small.")
        sheet.write_formula("B3", "=1+1", None, 2)
        sheet.write("C2", "The house")
        sheet.data_validation("C2:C4", {"validate": "list", "source": ["The house", 'The ""dog""', "12"]})
        sheet.autofilter("A1:C4")
        sheet.filter_column("A", 'x == "The house is small."')
        sheet.write_comment("A1", "The old woman reads a book.")


def test_a_workbook_agrees_with_itself_after_a_translation(tmp_path: Path) -> None:
    workbook(tmp_path / "a.xlsx")
    data = translated_bytes(tmp_path / "a.xlsx", upper)
    sheet = openpyxl.load_workbook(io.BytesIO(data), data_only=True).active
    assert sheet["B2"].value is None  # programs compute it
    assert sheet["B3"].value == 2
    formulas = openpyxl.load_workbook(io.BytesIO(data))
    assert formulas.active["B2"].value == "=A2"
    assert formulas.calculation.fullCalcOnLoad
    [validation] = formulas.active.data_validations.dataValidation
    assert validation.formula1 == '"THE HOUSE,THE ""DOG"",12"'
    assert sheet["C2"].value == "THE HOUSE"
    [column] = formulas.active.auto_filter.filterColumn
    assert column.filters.filter == ["THE HOUSE IS SMALL."]
    assert sheet["A2"].value == "THE HOUSE IS SMALL."


def test_a_list_that_would_be_too_long_for_excel_stays(tmp_path: Path) -> None:
    workbook(tmp_path / "a.xlsx")
    data = translated_bytes(tmp_path / "a.xlsx", repeated("a" * 200))
    [validation] = openpyxl.load_workbook(io.BytesIO(data)).active.data_validations.dataValidation
    assert validation.formula1 == '"The house,The ""dog"",12"'


CALCULATION = b'<calcPr calcId="1"/>'


def test_results_are_computed_when_a_workbook_is_opened(tmp_path: Path) -> None:
    workbook(tmp_path / "b.xlsx")
    with zipfile.ZipFile(tmp_path / "b.xlsx") as old, zipfile.ZipFile(tmp_path / "a.xlsx", "w") as new:
        for info in old.infolist():
            new.writestr(info, re.sub(rb"<calcPr[^>]*>", CALCULATION, old.read(info)))
    written = members(translated_bytes(tmp_path / "a.xlsx", upper))["xl/workbook.xml"]
    assert b'<calcPr calcId="1" fullCalcOnLoad="1"/>' in written


THREADED = "http://schemas.microsoft.com/office/spreadsheetml/2018/threadedcomments"


def test_threaded_comments_and_names_of_pivot_fields(tmp_path: Path) -> None:
    workbook(tmp_path / "b.xlsx")
    kind = "application/vnd.ms-excel.threadedcomments+xml"
    part = "xl/threadedComments/threadedComment1.xml"
    with zipfile.ZipFile(tmp_path / "b.xlsx") as old, zipfile.ZipFile(tmp_path / "a.xlsx", "w") as new:
        for info in old.infolist():
            override = f'<Override PartName="/{part}" ContentType="{kind}"/></Types>'.encode()
            new.writestr(info, old.read(info).replace(b"</Types>", override))
        comment = '<threadedComment ref="A1"><text>A book.</text></threadedComment>'
        comment = f'<ThreadedComments xmlns="{THREADED}">{comment}</ThreadedComments>'
        new.writestr(part, comment)
        fields = '<pivotCacheDefinition><cacheField name="The house"/></pivotCacheDefinition>'
        new.writestr("xl/pivotCache/pivotCacheDefinition1.xml", fields)
    data = translated_bytes(tmp_path / "a.xlsx", upper)
    assert b"<text>A BOOK.</text>" in members(data)[part]
    assert openpyxl.load_workbook(tmp_path / "a.xlsx").active["A1"].value == "The house"
    written = members(data)["xl/sharedStrings.xml"].decode()
    assert re.findall("<t>(.*?)</t>", written) == ["The house", "THE HOUSE IS SMALL."]


def test_labels_of_charts_on_slides_are_translated(tmp_path: Path) -> None:
    shown = pptx.Presentation()
    slide = shown.slides.add_slide(shown.slide_layouts[5])
    data = CategoryChartData()
    data.categories = ["The house", "The dog"]
    data.add_series("A series", (1, 2))
    slide.shapes.add_chart(XL_CHART_TYPE.COLUMN_CLUSTERED, 0, 0, 100_000, 100_000, data)
    shown.save(str(tmp_path / "a.pptx"))
    written = pptx.Presentation(io.BytesIO(translated_bytes(tmp_path / "a.pptx", upper)))
    [chart] = [each.chart for each in written.slides[0].shapes if each.has_chart]
    assert list(chart.plots[0].categories) == ["THE HOUSE", "THE DOG"]
    assert [each.name for each in chart.plots[0].series] == ["A SERIES"]
    assert list(chart.plots[0].series[0].values) == [1, 2]


def test_the_formula_of_a_cell_may_name_its_value(tmp_path: Path) -> None:
    name = "urn:oasis:names:tc:opendocument:xmlns:"
    formula = """table:formula="of:=&quot;x&quot; &amp; office:string-value='y'" """
    content = (
        f'<office:document-content xmlns:office="{name}office:1.0" xmlns:table="{name}table:1.0"'
        f' xmlns:text="{name}text:1.0"><table:table-cell {formula}{{}}><text:p>{{}}</text:p>'
        "</table:table-cell></office:document-content>"
    )
    with zipfile.ZipFile(tmp_path / "a.ods", "w") as package:
        package.writestr("content.xml", content.format('office:string-value="The house"', "The house"))
    written = members(translated_bytes(tmp_path / "a.ods", upper))["content.xml"].decode()
    assert written == content.format("", "THE HOUSE").replace(" ><text:p>", "><text:p>")


def test_a_sheet_of_opendocument_agrees_with_itself(tmp_path: Path) -> None:
    name = "urn:oasis:names:tc:opendocument:xmlns:"
    cell = '<table:table-cell office:value-type="string"><text:p>{}</text:p></table:table-cell>'
    content = (
        f'<office:document-content xmlns:office="{name}office:1.0" xmlns:table="{name}table:1.0"'
        f' xmlns:text="{name}text:1.0"><table:content-validation table:name="a" table:condition="of:'
        'cell-content-is-in-list(&quot;The house&quot;;&quot;The &quot;&quot;dog&quot;&quot;&quot;)"/>'
        f"{cell.format('The house')}{cell.format('The field')}"
        '<table:filter-condition table:value="The house" table:operator="="/>'
        '<table:data-pilot-field table:source-field-name="The field"/></office:document-content>'
    )
    with zipfile.ZipFile(tmp_path / "a.ods", "w") as package:
        package.writestr("content.xml", content)
    written = members(translated_bytes(tmp_path / "a.ods", upper))["content.xml"].decode()
    expected = content.replace("The house", "THE HOUSE").replace("The &quot;&quot;dog", "THE &quot;&quot;DOG")
    assert written == expected
