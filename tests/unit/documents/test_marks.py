"""Marks of programs in texts: those that a format cuts, those of each program, and HTML in strings."""

from pathlib import Path

import pytest
from document_files import Noted, as_document, runs_of, translated_bytes, upper


@pytest.mark.parametrize("kind", ["docx", "pptx", "xlsx", "odt"])
@pytest.mark.parametrize(
    ("cut", "whole"),
    [
        ([("Dear {", ""), ("name", "superscript"), ("}, the house", "")], "{name}"),
        ([("Dear {{ na", ""), ("me }}, the", "superscript"), (" house", "")], "{{ name }}"),
        ([("Dear ", ""), ("${na", "superscript"), ("me}", ""), (", the house", "")], "${name}"),
    ],
)
def test_a_placeholder_that_a_format_cuts_has_the_format_of_its_first_letter(
    kind: str, cut: list[tuple[str, str]], whole: str, tmp_path: Path
) -> None:
    (tmp_path / f"a.{kind}").write_bytes(as_document(kind, cut))
    runs = runs_of(kind, translated_bytes(tmp_path / f"a.{kind}", Noted(upper)))
    text = "".join(text for text, _ in runs)
    assert text.replace(" ", "") == f"DEAR {whole}, THE HOUSE".replace(" ", "")
    letter = next(position for text, position in cut if "na" in text)
    assert [position for text, position in runs if whole in text] == [letter]


@pytest.mark.parametrize(
    ("name", "source", "expected"),
    [
        ("a.html", "<p>Dear {{ <b>name</b> }}, hi.</p>", "<p>DEAR <b>{{ name }}</b>, HI.</p>"),
        ("a.html", "<p>See <i>%(na</i>me)s, hi.</p>", "<p>SEE <i>%(name)s</i>, HI.</p>"),
        ("a.md", "Dear ${**name**}, hi.\n", "DEAR **${name}**, HI.\n"),
    ],
)
def test_tags_in_a_placeholder_move_to_its_ends(
    name: str, source: str, expected: str, tmp_path: Path
) -> None:
    (tmp_path / name).write_text(source)
    assert translated_bytes(tmp_path / name, Noted(upper)).decode() == expected
