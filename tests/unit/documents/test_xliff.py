"""XLIFF of translators' programs: segments, states, white space, codes between words, languages."""

from collections.abc import Container, Sequence
from pathlib import Path

import pytest
from document_files import Output, translated_bytes, upper
from lxml import etree

from heedful.documents.document_file import read_document
from heedful.errors import InputError

FILE = (
    '<xliff version="1.2" xmlns="urn:oasis:names:tc:xliff:document:1.2"><file source-language="en"'
    ' target-language="de"{}><body>\n{}\n</body></file></xliff>'
)
NAMES = {"x": "urn:oasis:names:tc:xliff:document:1.2"}


def targets(units: str, folder: Path, *, file: str = "") -> tuple[list[str], list[str]]:
    """Return the targets of a translated file, as they are written, and the texts that a model has read."""
    (folder / "a.xlf").write_text(FILE.format(file, units))
    seen: list[str] = []

    def noted(texts: Sequence[str], aligned: Container[str]) -> list[Output]:
        seen.extend(texts)
        return upper(texts, aligned)

    root = etree.fromstring(translated_bytes(folder / "a.xlf", noted))
    found = [
        etree.tostring(each, with_tail=False).decode().replace(f' xmlns="{NAMES["x"]}"', "")
        for each in root.iterfind(".//x:target", NAMES)
    ]
    return found, seen


def unit(inside: str, attributes: str = "") -> str:
    return f'<trans-unit id="1"{attributes}>{inside}</trans-unit>'


@pytest.mark.parametrize(
    ("source", "texts", "target"),
    [
        ("Save &amp;As", ["Save As"], "SAVE &amp;AS"),
        ("_Open it", ["Open it"], "_OPEN IT"),
        ("R&amp;D", ["R&D"], "R&amp;D"),
        (
            "&lt;ul&gt;&lt;li&gt;The dog&lt;/li&gt;&lt;li&gt;A &amp;amp; b&lt;/li&gt;&lt;/ul&gt;",
            ["The dog", "A &amp; b"],
            "&lt;ul&gt;&lt;li&gt;THE DOG&lt;/li&gt;&lt;li&gt;A &amp;amp; B&lt;/li&gt;&lt;/ul&gt;",
        ),
    ],
)
def test_a_source_without_codes_is_a_string_of_a_program(
    source: str, texts: list[str], target: str, tmp_path: Path
) -> None:
    found, seen = targets(unit(f"<source>{source}</source>"), tmp_path)
    assert found == [f"<target>{target}</target>"]
    assert seen[: len(texts)] == texts


SEGMENTS = (
    "<source>The house is small. The dog sleeps.</source><seg-source>"
    '<mrk mtype="seg" mid="1">The house is small.</mrk> <g id="1"><mrk mtype="seg" mid="2">The '
    '<g id="2">dog</g> sleeps.</mrk></g></seg-source>'
)


@pytest.mark.parametrize(
    "target", ["", '<target><mrk mtype="seg" mid="1"/> <mrk mtype="seg" mid="2"/></target>']
)
def test_a_target_has_the_segments_of_its_source(target: str, tmp_path: Path) -> None:
    expected = (
        '<target><mrk mtype="seg" mid="1">THE HOUSE IS SMALL.</mrk> <g id="1"><mrk mtype="seg" mid="2">THE '
        '<g id="2">DOG</g> SLEEPS.</mrk></g></target>'
    )
    assert targets(unit(SEGMENTS + target), tmp_path)[0] == [expected]


def test_an_empty_segment_is_filled_and_a_translation_stays(tmp_path: Path) -> None:
    target = '<target><mrk mtype="seg" mid="1">Das Haus.</mrk> <mrk mtype="seg" mid="2"/></target>'
    [found], seen = targets(unit(SEGMENTS + target), tmp_path)
    assert '<mrk mtype="seg" mid="1">Das Haus.</mrk>' in found
    assert "DOG" in found
    assert seen == ["The dog sleeps."]


@pytest.mark.parametrize("state", ["new", "needs-translation"])
def test_the_state_of_a_target_says_that_it_is_translated(state: str, tmp_path: Path) -> None:
    source = f'<source>The house.</source><target state="{state}">The house.</target>'
    assert targets(unit(source), tmp_path)[0] == ['<target state="translated">THE HOUSE.</target>']


def test_attributes_are_not_looked_for_in_values(tmp_path: Path) -> None:
    other = """id="a target-language='fr' state='new'" """
    source = f"""<source>The house.</source><target {other}state="new">The house.</target>"""
    (tmp_path / "a.xlf").write_text(FILE.format(f" {other}", unit(source)))
    written = translated_bytes(tmp_path / "a.xlf", upper).decode()
    assert f'<target {other}state="translated">THE HOUSE.</target>' in written


def test_the_state_of_a_segment_of_version_2_says_that_it_is_translated(tmp_path: Path) -> None:
    text = (
        '<xliff xmlns="urn:oasis:names:tc:xliff:document:2.0" version="2.0" srcLang="en" trgLang="de">'
        '<file id="f"><unit id="u"><segment state="initial"><source>The house.</source></segment></unit>'
        "</file></xliff>"
    )
    (tmp_path / "a.xlf").write_text(text)
    written = translated_bytes(tmp_path / "a.xlf", upper).decode()
    expected = text.replace("initial", "translated").replace(
        "</source>", "</source><target>THE HOUSE.</target>"
    )
    assert written == expected
    (tmp_path / "a.xlf").write_text(written)
    assert read_document(tmp_path / "a.xlf").units == []


PRETTY = "<source>\n      The old woman\n      reads a book.\n    </source>"


@pytest.mark.parametrize(
    ("file", "attributes", "texts"),
    [
        ("", "", ["The old woman reads a book."]),
        ("", ' xml:space="preserve"', ["The old woman", "reads a book."]),
        (' xml:space="preserve"', "", ["The old woman", "reads a book."]),
        (' xml:space="preserve"', ' xml:space="default"', ["The old woman reads a book."]),
    ],
)
def test_a_line_end_is_a_blank_unless_white_space_is_kept(
    file: str, attributes: str, texts: list[str], tmp_path: Path
) -> None:
    assert targets(unit(PRETTY, attributes), tmp_path, file=file)[1] == texts


CODE = '<x id="LINE_BREAK" ctype="lb" equiv-text="&lt;br/&gt;"/>'
HEADING = '<x id="CLOSE_HEADING"/><x id="START_PARAGRAPH"/>'


@pytest.mark.parametrize("code", [CODE, HEADING])
@pytest.mark.parametrize(
    ("before", "behind", "texts"),
    [
        ("The old woman", "reads a book.", ["The old woman reads a book."]),
        ("The house is small.", "The dog sleeps.", ["The house is small.", "The dog sleeps."]),
    ],
)
def test_words_at_both_sides_of_a_code_are_two_words(
    code: str, before: str, behind: str, texts: list[str], tmp_path: Path
) -> None:
    [found], seen = targets(unit(f"<source>{before}{code}{behind}</source>"), tmp_path)
    assert seen == texts
    assert found == f"<target>{before.upper()}{code}{behind.upper()}</target>"


@pytest.mark.parametrize(
    ("group", "own", "is_translated"),
    [("no", "yes", True), ("yes", "no", False), ("no", "no", False), ("yes", "yes", True)],
)
def test_the_innermost_translate_counts(group: str, own: str, is_translated: bool, tmp_path: Path) -> None:
    inner = unit("<source>The house.</source>", f' translate="{own}"')
    text = f'<group translate="{group}">{inner}</group>'
    assert targets(text, tmp_path)[0] == (["<target>THE HOUSE.</target>"] if is_translated else [])


def test_a_file_from_another_language_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.xlf").write_text(FILE.format("", unit("<source>The house.</source>")))
    assert read_document(tmp_path / "a.xlf", language="de", source="en-GB").units
    with pytest.raises(InputError, match=r"\ben\b"):
        read_document(tmp_path / "a.xlf", language="de", source="fr")


def test_a_catalogue_for_another_language_is_refused(tmp_path: Path) -> None:
    text = 'msgid ""\nmsgstr ""\n"Language: fr_CA\\n"\n\nmsgid "house"\nmsgstr ""\n'
    (tmp_path / "a.po").write_text(text)
    assert read_document(tmp_path / "a.po", language="fr").units
    with pytest.raises(InputError, match=r"\bfr\b"):
        read_document(tmp_path / "a.po", language="de")


@pytest.mark.parametrize(
    "source",
    [
        '<g id="1">Click <x id="2"/></g> now.',
        'The <g id="1">house <x id="2"/></g> is.',
        'The <g id="1">house<x id="2"/></g> is.',
    ],
)
def test_spaces_beside_a_code_at_the_end_of_an_element_stay(source: str, tmp_path: Path) -> None:
    [found], _ = targets(unit(f"<source>{source}</source>"), tmp_path)
    assert found.casefold() == f"<target>{source}</target>".casefold()


def test_a_file_is_read_in_the_encoding_that_it_names(tmp_path: Path) -> None:
    head = '<?xml version="1.0" encoding="ISO-8859-1"?>'
    head += '<xliff version="1.2" xmlns="urn:oasis:names:tc:xliff:document:1.2">'
    text = head + '<trans-unit id="ä"><source>Käse &#252;</source>{}</trans-unit></xliff>'
    (tmp_path / "a.xlf").write_bytes(text.format("").encode("latin-1"))
    [unit] = read_document(tmp_path / "a.xlf").units
    assert unit.source.text == "Käse ü"
    assert translated_bytes(tmp_path / "a.xlf", upper).decode("latin-1") == text.format(
        "<target>KÄSE Ü</target>"
    )
