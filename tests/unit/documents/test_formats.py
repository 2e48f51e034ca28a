"""Formats of plugins: what a reader may be, and whose endings count."""

from pathlib import Path

import pytest

from heedful.documents import formats
from heedful.documents.document_file import read_document
from heedful.documents.formats import Reading, document_format, format_of, suffixes, supported
from heedful.documents.template import Template
from heedful.errors import ConfigError


@pytest.fixture(autouse=True)
def _own_table(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(formats, "_FORMAT_OF", dict(formats._FORMAT_OF))


def read_all(text: str, reading: Reading) -> Template:
    template = Template()
    return template.filled([template.plain(text, text, str)])


def test_the_format_registered_last_has_the_ending(tmp_path: Path) -> None:
    document_format("notes", ".Note", ".txt")(read_all)
    assert [format_of(name) for name in ("a.NOTE", "a.txt", "a.text")] == ["notes", "notes", "text"]
    assert ".note" in suffixes() and "notes" in supported()
    (tmp_path / "a.txt").write_text("One.\nTwo.\n")
    [unit] = read_document(tmp_path / "a.txt").units
    assert unit.characters == "One.\nTwo.\n"


@pytest.mark.parametrize("ending", ["note", ".tar.gz", "."])
def test_an_ending_has_one_dot(ending: str) -> None:
    with pytest.raises(ConfigError):
        document_format("notes", ending)(read_all)


def test_a_reader_takes_two_arguments_and_returns_a_template(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="notes"):
        document_format("notes", ".note")(lambda text: Template())  # type: ignore[misc, arg-type]
    document_format("notes", ".note")(lambda text, reading: text)  # type: ignore[arg-type, return-value]
    (tmp_path / "a.note").write_text("One.")
    with pytest.raises(ConfigError, match="notes"):
        read_document(tmp_path / "a.note")
