"""`heedful translate --memory` and `--to-tmx`: lines and documents."""

import html
import json
import re
from collections.abc import Sequence
from pathlib import Path

import docx
import pytest
from command_line import assert_one_clear_line, heedful
from translate.storage.tmx import tmxfile
from translation_server import translation_server

from heedful.decoding.translation import Translation
from heedful.decoding.translator import Translator

LINES = "the cat sleeps .\n  THE cat\tsleeps . \n\nthe dog sees the cat .\n"


@pytest.fixture
def memory(tmp_path: Path) -> Path:
    units = {
        "THE cat sleeps .": "DIE KATZE <b> & Co",
        "the dog sees the mouse .": "der Hund sieht die Maus .",
    }
    file = tmxfile()
    for source, target in units.items():
        file.addtranslation(source, "en-GB", target, "de-DE")
    file.savefile(str(tmp_path / "memory.tmx"))
    return tmp_path / "memory.tmx"


def test_exact_matches_are_taken_and_counted(run: Path, memory: Path) -> None:
    without = heedful("translate", run, stdin=LINES.encode()).out.splitlines()
    outcome = heedful("translate", run, "--memory", memory, stdin=LINES.encode())
    first, _, empty, last = without
    assert outcome.out.splitlines() == [first, "DIE KATZE <b> & Co", empty, last]
    assert outcome.err == "memory: 1 exact, 2 none, of 2 units\n"


def test_json_has_the_match_of_each_line(run: Path, memory: Path) -> None:
    outcome = heedful("translate", run, "--memory", memory, "--json", stdin=LINES.encode())
    _, second, empty, last = map(json.loads, outcome.out.splitlines())
    assert (second["source"], second["text"]) == ("  THE cat\tsleeps . ", "DIE KATZE <b> & Co")
    assert second["memory"] == {"source": "THE cat sleeps .", "target": "DIE KATZE <b> & Co"}
    assert (second["hypotheses"], second["score"]) == ([], 0.0)
    assert empty["memory"] is None
    assert last["memory"] is None
    assert last["text"] == "der Hund sieht die Katze ."


def test_only_what_is_not_in_the_memory_is_searched(
    run: Path, memory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    searched: list[str] = []
    translations = Translator.translations

    def spy(self: Translator, texts: Sequence[str], **options: object) -> list[Translation]:
        searched.extend(filter(str.strip, texts))
        return translations(self, texts, **options)

    monkeypatch.setattr(Translator, "translations", spy)
    heedful("translate", run, "--memory", memory, stdin=LINES.encode())
    assert searched == ["the cat sleeps .", "the dog sees the cat ."]


def test_a_translation_is_the_memory_of_the_next(run: Path, tmp_path: Path) -> None:
    tmx, again = tmp_path / "new.tmx", tmp_path / "again.tmx"
    first = heedful("translate", run, "--to-tmx", tmx, stdin=LINES.encode())
    assert first.err == ""
    assert len(tmxfile.parsefile(str(tmx)).units) == 3
    second = heedful("translate", run, "--memory", tmx, "--to-tmx", again, stdin=LINES.encode())
    assert second.out == first.out
    assert second.err == "memory: 3 exact, 0 none, of 3 units\n"
    assert again.read_bytes() == tmx.read_bytes()


def test_a_document_takes_its_sentences_from_the_memory_with_their_formats(run: Path, tmp_path: Path) -> None:
    written = docx.Document()
    paragraph = written.add_paragraph("the cat ")
    paragraph.add_run("sleeps").bold = True
    paragraph.add_run(" .")
    written.add_paragraph("the dog sees the cat .")
    written.save(str(tmp_path / "a.docx"))
    memory, new, output = tmp_path / "memory.tmx", tmp_path / "new.tmx", tmp_path / "out.docx"
    file = tmxfile()
    file.addtranslation("the cat sleeps .", "en", "der Kater schläft .", "de")
    file.savefile(str(memory))
    arguments = ["--memory", memory, "--to-tmx", new, "-o", output]
    outcome = heedful("translate", run, "--document", tmp_path / "a.docx", *arguments)
    assert (outcome.code, outcome.err) == (0, "memory: 1 exact, 1 none, of 1 units\n")
    first, second = docx.Document(str(output)).paragraphs
    assert (first.text, second.text) == ("der Kater schläft .", "der Hund sieht die Katze .")
    assert "".join(each.text for each in first.runs if each.bold).strip()
    assert [each.target for each in tmxfile.parsefile(str(new)).units] == [first.text, second.text]


def test_a_killed_run_goes_on_only_with_the_same_memory(run: Path, memory: Path, tmp_path: Path) -> None:
    source, output = tmp_path / "in.txt", tmp_path / "out.txt"
    source.write_bytes(LINES.encode() * 300 + b"\xff\n")
    arguments = ["translate", run, "-i", source, "-o", output]
    assert heedful(*arguments, "--memory", memory).code == 1
    source.write_bytes(LINES.encode() * 300)
    assert_one_clear_line(heedful(*arguments, "--resume"), 1, "memory")
    assert heedful(*arguments, "--resume", "--memory", memory).code == 0
    whole = heedful("translate", run, "--memory", memory, stdin=LINES.encode()).out
    assert output.read_text(encoding="utf-8") == whole * 300


@pytest.mark.slow
def test_a_server_answers_from_its_memory(run: Path, memory: Path) -> None:
    with translation_server(f"en-de={run}", "--memory", memory) as server:
        fields = {"source": "en", "target": "de", "q": ["THE  cat sleeps .", "the cat sleeps ."]}
        assert server.post("/translate", fields).json["translatedText"] == [
            "DIE KATZE <b> & Co",
            "die Katze schläft .",
        ]
        page = {**fields, "q": "<p>THE cat <b>sleeps</b> .</p>", "format": "html", "alternatives": 2}
        answer = server.post("/translate", page).json["translatedText"]
        assert re.sub("</?[bp]>", "", html.unescape(answer)) in ("DIE KATZE <b> & Co", "DIE KATZE  & Co")


@pytest.mark.parametrize(
    ("code", "name", "arguments"),
    [
        (1, "bad.tmx", ["--memory", "bad.tmx"]),
        (1, "none.tmx", ["--memory", "none.tmx"]),
        (1, "OWN", ["--memory", "OWN", "--to-tmx", "OWN"]),
        (2, "--prefix", ["--memory", "OWN", "--prefix", "OWN"]),
        (2, "--to-tmx", ["--memory", "OWN", "--to-tmx", "out.txt"]),
        (2, "--to-tmx", ["--to-tmx", "x.tmx", "--resume"]),
    ],
)
def test_memories_that_cannot_be_used_are_refused(
    run: Path, memory: Path, code: int, name: str, arguments: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(memory.parent)
    memory.rename("OWN")
    Path("bad.tmx").write_text('<!DOCTYPE tmx [<!ENTITY a "b">]><tmx/>')
    outcome = heedful("translate", run, *arguments, "-o", "out.txt", stdin=LINES.encode())
    assert_one_clear_line(outcome, code, name)
    assert not Path("out.txt").exists()


@pytest.mark.parametrize("bad", ["\0bad\n", "the cat sleeps .\n\0bad\n"])
def test_a_new_memory_is_complete_or_absent(run: Path, memory: Path, tmp_path: Path, bad: str) -> None:
    output, beside = tmp_path / "out.txt", ["--to-tmx", tmp_path / "x.tmx"]
    before = sorted(tmp_path.iterdir())
    outcome = heedful("translate", run, "--memory", memory, *beside, "-o", output, stdin=bad.encode())
    line = bad.count("\n")
    assert_one_clear_line(outcome, 1, f"stdin: line {line}")
    left = ["out.txt.unfinished"] if line > 1 else []
    assert sorted(each.name for each in tmp_path.iterdir() if each not in before) == left
    assert outcome.err.count("what was done before is in") == len(left)
