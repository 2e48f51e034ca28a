"""Sheets: no text is longer than Excel allows, and a cell has one value."""

import io
import re
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path

import openpyxl
import pytest
from document_files import identity, members, translated_bytes, upper
from openpyxl.worksheet.datavalidation import DataValidation

from heedful.documents.projection import Output


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
