"""`heedful translate --document`: a file of an office in, its translation out, and nothing after an error."""

import errno
import os
from collections.abc import Sequence
from pathlib import Path

import docx
import pytest
from command_line import assert_one_clear_line, heedful
from document_files import docx_file

from heedful.decoding.translation import Translation
from heedful.decoding.translator import Translator


@pytest.fixture
def document(tmp_path: Path) -> Path:
    written = docx.Document()
    paragraph = written.add_paragraph("the cat ")
    paragraph.add_run("sleeps").bold = True
    paragraph.add_run(" .")
    written.add_paragraph("the dog sees the cat .")
    written.save(str(tmp_path / "a.docx"))
    return tmp_path / "a.docx"


def test_a_document_is_translated_with_its_formats(run: Path, document: Path, tmp_path: Path) -> None:
    outcome = heedful("translate", run, "--document", document, "-o", tmp_path / "out.docx")
    assert (outcome.code, outcome.out, outcome.err) == (0, "", "")
    first, second = docx.Document(str(tmp_path / "out.docx")).paragraphs
    assert (first.text, second.text) == ("die Katze schläft .", "der Hund sieht die Katze .")
    assert [each.text for each in first.runs if each.bold] == ["schläft"]
    assert sorted(each.name for each in tmp_path.iterdir()) == ["a.docx", "out.docx"]


def test_columns_of_a_table_are_translated(run: Path, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("id,text,note\n1,the cat sleeps .,the cat sleeps .\n")
    arguments = ["--document", tmp_path / "a.csv", "--column", "text", "-o", tmp_path / "b.csv"]
    assert heedful("translate", run, *arguments).code == 0
    assert (tmp_path / "b.csv").read_text() == "id,text,note\n1,die Katze schläft .,the cat sleeps .\n"


def test_nothing_is_written_where_a_document_is_damaged(run: Path, tmp_path: Path) -> None:
    source = docx_file()
    for name, data in {
        "short.docx": source[: len(source) // 2],
        "changed.docx": source.replace(b"word/document.xml", b"word/d0cument.xml"),
        "locked.docx": b"\xd0\xcf\x11\xe0" + bytes(600),
        "a.json": b'{"a": ',
        "a.srt": b"no times",
        "a.pdf": b"%PDF",
    }.items():
        path = tmp_path / name
        path.write_bytes(data)
        outcome = heedful("translate", run, "--document", path, "-o", tmp_path / f"out{path.suffix}")
        assert_one_clear_line(outcome, 1, f"error: {path}: ")
        assert not list(tmp_path.glob("out*"))
    (tmp_path / "out.docx").write_bytes(b"as before")
    assert heedful("translate", run, "--document", path, "-o", tmp_path / "out.pdf").code == 1
    short = heedful("translate", run, "--document", tmp_path / "short.docx", "-o", tmp_path / "out.docx")
    assert short.code == 1
    assert (tmp_path / "out.docx").read_bytes() == b"as before"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["-o", "OUT", "--json"], "--document and --json exclude each other"),
        (["-o", "OUT", "--input", "x"], "--document and --input exclude each other"),
        ([], "--document needs --output"),
        (["-o", "out.txt"], "must end in .docx"),
    ],
)
def test_options_that_do_not_go_with_documents_are_refused(
    options: list[str], message: str, run: Path, document: Path, tmp_path: Path
) -> None:
    words = [str(tmp_path / "out.docx") if each == "OUT" else each for each in options]
    outcome = heedful("translate", run, "--document", document, *words)
    assert outcome.code == 2
    assert message in outcome.err
    assert not (tmp_path / "out.docx").exists()


def test_the_output_may_go_through_a_pipe(run: Path, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("the cat sleeps .\n\nthe dog sleeps .\n")
    outcome = heedful("translate", run, "--document", tmp_path / "a.txt", "-o", "-")
    assert (outcome.code, outcome.out) == (0, "die Katze schläft .\n\nder Hund schläft .\n")


def test_translations_are_kept_where_the_document_cannot_be_written(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def write(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    source, output = tmp_path / "a.po", tmp_path / "b.po"
    source.write_text('msgid "the cat sleeps ."\nmsgstr ""\n', encoding="utf-8")
    with monkeypatch.context() as patch:
        patch.setattr("heedful.documents.document_file.DocumentFile.write", write)
        outcome = heedful("translate", run, "--document", source, "-o", output)
    assert outcome.code == 1
    assert "no space left on the disk" in outcome.err
    assert not output.exists()
    outcome = heedful("translate", run, "--document", source, "-o", output, "--resume")
    assert (outcome.code, outcome.err) == (0, "resuming after text 1\n")
    assert "die Katze schläft ." in output.read_text(encoding="utf-8")
    assert sorted(each.name for each in tmp_path.iterdir()) == ["a.po", "b.po"]


def test_a_file_of_the_name_of_the_translations_stays(run: Path, document: Path, tmp_path: Path) -> None:
    (tmp_path / "out.docx.translations").write_text("mine")
    outcome = heedful("translate", run, "--document", document, "-o", tmp_path / "out.docx")
    assert (outcome.code, outcome.err) == (0, "")
    assert (tmp_path / "out.docx.translations").read_text() == "mine"


def test_a_document_goes_on_where_a_run_was_interrupted(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sentences = ["the cat sleeps .", "the dog sleeps .", "the cat sees the dog ."]
    (tmp_path / "a.txt").write_text("".join(f"{sentences[n % 3]}\n" for n in range(1100)))
    arguments = ["--document", tmp_path / "a.txt", "-o"]
    assert heedful("translate", run, *arguments, tmp_path / "whole.txt").code == 0
    translations, calls = Translator.translations, 0

    def interrupted(self: Translator, texts: Sequence[str], **options: object) -> list[Translation]:
        nonlocal calls
        calls += 1
        if calls == 2:
            raise KeyboardInterrupt
        return translations(self, texts, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(Translator, "translations", interrupted)
    assert heedful("translate", run, *arguments, tmp_path / "b.txt").code != 0
    assert not (tmp_path / "b.txt").exists()
    outcome = heedful("translate", run, *arguments, tmp_path / "b.txt", "--resume")
    assert (outcome.code, outcome.err) == (0, "resuming after text 512\n")
    assert calls == 4
    assert (tmp_path / "b.txt").read_bytes() == (tmp_path / "whole.txt").read_bytes()
    assert sorted(each.name for each in tmp_path.iterdir()) == ["a.txt", "b.txt", "whole.txt"]
