"""Texts that are wrapped, tables as people write them, and the plurals and accelerators of gettext."""

import shutil
import subprocess
from pathlib import Path

import polib
import pytest
from document_files import identity, translated_bytes, upper

from heedful.documents.accelerators import with_accelerator, without_accelerator
from heedful.documents.document_file import read_document

RUSSIAN = (
    "nplurals=3; plural=(n%10==1 && n%100!=11 ? 0 : n%10>=2 && n%10<=4 && (n%100<10 || n%100>=20) ? 1 : 2);"
)


@pytest.mark.parametrize(
    ("table", "expected"),
    [
        (
            'id, text\n1, "The woman, she reads."\n2, "The house" \n',
            'id, text\n1, "THE WOMAN, SHE READS."\n2, "THE HOUSE" \n',
        ),
        ('id;text\n1;  "a ""b"""\n', 'id;text\n1;  "A ""B"""\n'),
        ("sep=;\nid;title;text\n1;as it is;The house\n", "sep=;\nid;title;text\n1;as it is;THE HOUSE\n"),
        ("SEP=|\r\nid|a,b|text\r\n1|c|d,e\r\n", "SEP=|\r\nid|a,b|text\r\n1|c|D,E\r\n"),
    ],
)
def test_tables_with_blanks_before_quotes_and_with_a_named_delimiter(
    table: str, expected: str, tmp_path: Path
) -> None:
    path = tmp_path / "a.csv"
    path.write_bytes(table.encode())
    assert translated_bytes(path, identity).decode() == table
    assert translated_bytes(path, upper).decode() == expected


def catalogue(path: Path, forms: str, *entries: polib.POEntry) -> None:
    file = polib.POFile()
    file.metadata = {"Content-Type": "text/plain; charset=UTF-8", "Plural-Forms": forms}
    file.extend(entries)
    file.save(str(path))


@pytest.mark.parametrize(
    ("forms", "expected"),
    [
        (RUSSIAN, {0: "%d HOUSES", 1: "%d HOUSES", 2: "%d HOUSES"}),
        ("nplurals=2; plural=(n != 1);", {0: "ONE HOUSE", 1: "%d HOUSES"}),
        ("nplurals=2; plural=(n > 1);", {0: "ONE HOUSE", 1: "%d HOUSES"}),
        ("nplurals=1; plural=0;", {0: "%d HOUSES"}),
        ("nplurals=4; plural=(n==1 ? 0 : n==2 ? 1 : 3);", {0: "ONE HOUSE", 1: "%d HOUSES", 3: "%d HOUSES"}),
    ],
)
def test_a_form_for_several_numbers_says_the_number(
    forms: str, expected: dict[int, str], tmp_path: Path
) -> None:
    path = tmp_path / "a.po"
    plural = dict.fromkeys(expected, "")
    entry = polib.POEntry(
        msgid="One house", msgid_plural="%d houses", msgstr_plural=plural, flags=["c-format"]
    )
    catalogue(path, forms, entry)
    path.write_bytes(translated_bytes(path, upper).replace(b"%D", b"%d"))
    assert polib.pofile(str(path))[0].msgstr_plural == expected


@pytest.mark.parametrize(
    ("message", "seen", "translation", "expected"),
    [
        ("_The house", "The house", "Das Haus", "Das Haus"),
        ("_The house", "The house", "Ein Tor", "Ein _Tor"),
        ("Save &As...", "Save As...", "Speichern als...", "Speichern &als..."),
        ("E_xit", "Exit", "Beenden", "_Beenden"),
        ("&File: %s", "File: %s", "\u30d5\u30a1\u30a4\u30eb", "\u30d5\u30a1\u30a4\u30eb(&F)"),
        ("file_name and R&D", "file_name and R&D", "X", "X"),
        ("A & B", "A & B", "X", "X"),
        ("_one _two", "_one _two", "X", "X"),
        ("Print %(file_name)s", "Print %(file_name)s", "X", "X"),
    ],
)
def test_the_mark_of_an_accelerator_is_for_programs(
    message: str, seen: str, translation: str, expected: str
) -> None:
    mark, text = without_accelerator(message)
    assert text == seen
    written = with_accelerator(translation, mark)
    assert written.replace("_Das", "Das") == expected


def test_catalogues_with_accelerators_pass_the_check_of_gettext(tmp_path: Path) -> None:
    path = tmp_path / "a.po"
    catalogue(
        path, "nplurals=2; plural=(n != 1);", polib.POEntry(msgid="_The house"), polib.POEntry(msgid="E_xit")
    )
    path.write_bytes(translated_bytes(path, upper))
    assert [each.msgstr for each in polib.pofile(str(path))] == ["_THE HOUSE", "E_XIT"]
    if shutil.which("msgfmt"):
        subprocess.run(
            ["msgfmt", "-c", "--check-accelerators=_", path, "-o", "/dev/null"], check=True, timeout=60
        )


WRAPPED = """\
The old woman reads a book in the garden, and the dog sleeps
under the tree. The house is small, but the garden is large,
and it is old.

  The dog sleeps in the garden while the old woman reads her
  large book.
* The house
* A list of things that are here and that are of some length,
* the end
"""


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_a_paragraph_that_is_wrapped_at_a_column_is_one_text(end: str, tmp_path: Path) -> None:
    text = WRAPPED.replace("\n", end)
    (tmp_path / "a.txt").write_bytes(text.encode())
    units = read_document(tmp_path / "a.txt").units
    assert [each.source.text for each in units][:2] == [
        "The old woman reads a book in the garden, and the dog sleeps under the tree. The house is small, but"
        " the garden is large, and it is old.",
        "The dog sleeps in the garden while the old woman reads her large book.",
    ]
    assert len(units) == 5
    assert translated_bytes(tmp_path / "a.txt", identity).decode() == text
    assert translated_bytes(tmp_path / "a.txt", upper).decode() == text.upper()


@pytest.mark.parametrize(
    "text",
    [
        "The old woman reads a book in the garden, and the dog sleeps here.\nthe dog sleeps.\n",
        "A list of things that are here and are of some length\n\nand another one\n",
        "a short line\nand one\n",
        "The old woman reads a book in the garden, and the dog sleeps\nThe dog sleeps.\n",
    ],
)
def test_lines_that_may_be_texts_of_their_own_stay_so(text: str, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text(text)
    assert len(read_document(tmp_path / "a.txt").units) == 2


def test_a_message_that_stays_the_same_has_a_translation(tmp_path: Path) -> None:
    (tmp_path / "a.po").write_text('msgid ""\nmsgstr ""\n\nmsgid "OK"\nmsgstr ""\n\nmsgid "5"\nmsgstr ""\n')
    (tmp_path / "b.po").write_bytes(translated_bytes(tmp_path / "a.po", identity))
    assert [(each.msgid, each.msgstr) for each in polib.pofile(str(tmp_path / "b.po"))] == [
        ("OK", "OK"),
        ("5", ""),
    ]
