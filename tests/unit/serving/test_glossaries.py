"""Clients' glossaries: entries in DeepL's formats, and a file that survives a kill and other processes."""

import errno
import os
import signal
import subprocess
import sys
from pathlib import Path

import filelock
import pytest

from heedful.errors import InputError
from heedful.serving import access, glossaries
from heedful.serving.glossaries import Dictionary, GlossaryStore, StoredGlossary, parse_entries
from heedful.serving.refusals import InvalidError, NoSuchGlossaryError, UnavailableError
from heedful.text.languages import Pair

PAIR = ("en", "de")


def stored(name: str, owner: str = "", **entries: str) -> StoredGlossary:
    dictionaries = [Dictionary(source="en", target="de", entries=entries)]
    return StoredGlossary(id=name, owner=owner, name=name, created="", dictionaries=dictionaries)


def add(store: GlossaryStore, glossary: StoredGlossary) -> None:
    store.change(lambda glossaries: glossaries.update({glossary.id: glossary}))


@pytest.mark.parametrize("form", ["tsv", "csv"])
def test_entries_are_two_columns(form: str) -> None:
    separator = "\t" if form == "tsv" else ","
    text = f"dog{separator}Hund\n\n cat {separator} die Katze \r\na | b*{separator}c\n"
    expected = {"dog": "Hund", "cat": "die Katze", "a | b*": "c"}
    assert parse_entries(text, form, PAIR) == expected  # type: ignore[arg-type]


def test_csv_has_quotes_and_perhaps_the_languages() -> None:
    text = '"dog, old","der ""alte"" Hund"\r\ncat,Katze,EN,de-AT\n'
    assert parse_entries(text, "csv", PAIR) == {"dog, old": 'der "alte" Hund', "cat": "Katze"}


@pytest.mark.parametrize("head", ["", "source;target\n"])
def test_csv_has_semicolons_and_perhaps_a_head(head: str) -> None:
    assert parse_entries(f"{head}dog;Hund\ncat;Katze\n", "csv", PAIR) == {"dog": "Hund", "cat": "Katze"}


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("dog Hund", "line 1"),
        ("a,b\na,c", "line 2"),
        ("a,", "line 1"),
        ("a,b,c", "line 1"),
        ("a,b,en,fr", "line 1"),
        ("a,b\u2028c", "line 1"),
        ('a,"b', "entries"),
        ("\n\n", "entries"),
    ],
)
def test_bad_entries_are_refused_with_their_line(text: str, place: str) -> None:
    with pytest.raises(InvalidError, match=place):
        parse_entries(text, "csv", PAIR)


def test_a_client_sees_its_own_glossaries_only(tmp_path: Path) -> None:
    store = GlossaryStore(tmp_path / "glossaries.json")
    add(store, stored("1", "ann", dog="Hund"))
    add(store, stored("2", "bob", dog="Köter"))
    assert [each.id for each in store.of("ann")] == ["1"]
    assert [str(entry.targets[0]) for entry in store.terms("bob", ["2"], Pair("en", "de-AT")).entries] == [
        "Köter"
    ]
    with pytest.raises(NoSuchGlossaryError):
        store.get("ann", "2")
    with pytest.raises(NoSuchGlossaryError, match="from de to en"):
        store.terms("ann", ["1"], Pair("de", "en"))


def test_terms_are_read_anew_when_they_change_and_only_then(tmp_path: Path) -> None:
    store, pair = GlossaryStore(tmp_path / "g.json"), Pair("en", "de-AT")
    add(store, stored("a", dog="Hund"))
    terms = store.terms("", ["a"], pair)
    add(store, stored("b", dog="Köter"))
    assert store.terms("", ["a"], pair) is terms
    add(store, stored("a", dog="Dackel"))
    assert store.terms("", ["a"], pair).entries[0].targets[0].text == "Dackel"


def test_the_first_of_several_glossaries_wins(tmp_path: Path) -> None:
    store = GlossaryStore(tmp_path / "g.json")
    add(store, stored("a", dog="Hund", cat="Katze"))
    add(store, stored("b", cat="Kater", hat="Hut"))
    entries = store.terms("", ["a", "b"], Pair("en", "de")).entries
    found = {str(entry.source): str(entry.targets[0]) for entry in entries}
    assert found == {"dog": "Hund", "cat": "Katze", "hat": "Hut"}


def test_an_error_changes_nothing(tmp_path: Path) -> None:
    store = GlossaryStore(tmp_path / "glossaries.json")
    add(store, stored("1", dog="Hund"))

    def fail(glossaries: dict[str, StoredGlossary]) -> None:
        glossaries["1"].dictionaries.clear()
        raise InvalidError("no")

    with pytest.raises(InvalidError):
        store.change(fail)
    assert store.get("", "1") == stored("1", dog="Hund")


def test_what_one_process_writes_another_reads(tmp_path: Path) -> None:
    one, other = (GlossaryStore(tmp_path / "glossaries.json") for _ in range(2))
    add(one, stored("1", dog="Hund"))
    assert [str(each.source) for each in other.terms("", ["1"], Pair("en", "de")).entries] == ["dog"]
    add(other, stored("2", cat="Katze"))
    add(one, stored("1", hat="Hut"))
    assert [each.id for each in other.of("")] == ["1", "2"]
    assert [str(each.source) for each in other.terms("", ["1"], Pair("en", "de")).entries] == ["hat"]


@pytest.mark.parametrize(
    "content",
    [
        "{",
        "{}",
        "{}\n",
        '{"my": "settings"}',
        '{"format_version": 2, "glossaries": []}',
        '{"glossaries": [{"id": 1}]}',
    ],
)
def test_another_file_is_refused_in_one_line(tmp_path: Path, content: str) -> None:
    path = tmp_path / "glossaries.json"
    path.write_text(content, encoding="utf-8")
    with pytest.raises(InputError, match=r"glossaries\.json") as error:
        GlossaryStore(path)
    assert "\n" not in str(error.value)
    with pytest.raises(InputError, match="nowhere"):
        GlossaryStore(tmp_path / "nowhere" / "glossaries.json")


def test_a_file_that_cannot_be_written_is_no_crash(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = GlossaryStore(tmp_path / "glossaries.json")
    add(store, stored("1", dog="Hund"))

    def fail(_: int) -> None:
        raise OSError(errno.EIO, "no disk")

    monkeypatch.setattr("os.fsync", fail)
    with pytest.raises(UnavailableError):
        add(store, stored("2", cat="Katze"))
    assert [each.id for each in store.of("")] == ["1"]


def test_a_file_does_not_grow_with_each_change(tmp_path: Path) -> None:
    path = tmp_path / "glossaries.json"
    store = GlossaryStore(path)
    for number in range(400):
        add(store, stored("1", dog=str(number)))
    assert len(path.read_text().splitlines()) < 150
    assert GlossaryStore(path).get("", "1") == stored("1", dog="399")


def test_a_file_that_is_damaged_meanwhile_stays_and_is_no_crash(tmp_path: Path) -> None:
    path = tmp_path / "glossaries.json"
    store = GlossaryStore(path)
    add(store, stored("1", dog="Hund"))
    whole = path.read_bytes()
    for content in (b"{bad", b"[1, 2]", b'{"my": "settings"}'):
        path.write_bytes(content)
        with pytest.raises(UnavailableError):
            store.of("")
        with pytest.raises(UnavailableError):
            add(store, stored("2", cat="Katze"))
        assert path.read_bytes() == content
    path.write_bytes(whole)
    assert [each.id for each in store.of("")] == ["1"]


def test_prepared_terms_have_a_bound(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(glossaries, "_MOST_PREPARED", 5)
    store = GlossaryStore(tmp_path / "glossaries.json")
    for number in range(10):
        entries = {f"a{n}": "b" for n in range(1 + number % 7)}
        add(store, stored(str(number), **entries))
        assert len(store.terms("", [str(number)], Pair("en", "de")).entries) == len(entries)
        store.change(lambda known, name=str(number): known.pop(name))
    assert sum(len(entries) for entries, _ in store._terms.values()) <= 5


def test_a_lock_that_another_process_keeps_stops_changes_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(access, "_LOCK_SECONDS", 0.1)
    store = GlossaryStore(tmp_path / "glossaries.json")
    add(store, stored("1", dog="Hund"))
    with filelock.FileLock(tmp_path / "glossaries.json.lock"):
        with pytest.raises(UnavailableError):
            add(store, stored("2", cat="Katze"))
        assert [each.id for each in store.of("")] == ["1"]
    add(store, stored("2", cat="Katze"))


_WRITER = """
import sys
from pathlib import Path
from heedful.serving.glossaries import Dictionary, GlossaryStore, StoredGlossary

store = GlossaryStore(Path(sys.argv[1]))
start = int(sys.argv[2])
for number in range(start, start + 10_000):
    entries = {f"term {i}": "x" * 50 for i in range(200)}
    dictionary = Dictionary(source="en", target="de", entries=entries)
    one = StoredGlossary(id=str(number), owner="", name="", created="", dictionaries=[dictionary])
    store.change(lambda glossaries: glossaries.update({one.id: one}))
    print(number, flush=True)
"""


@pytest.mark.skipif(os.name == "nt", reason="there is no SIGKILL")
def test_a_kill_loses_nothing_that_was_answered(tmp_path: Path) -> None:
    path, answered = tmp_path / "glossaries.json", -1
    for kill in range(4):
        command = [sys.executable, "-c", _WRITER, str(path), str(answered + 1)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as writer:
            assert writer.stdout is not None
            for line in writer.stdout:
                answered = int(line)
                if answered >= 5 * kill + 3:
                    writer.send_signal(signal.SIGKILL)
                    break
            rest = writer.stdout.read().split()
        answered = int(rest[-1]) if rest else answered
        kept = GlossaryStore(path).of("")
        assert [int(each.id) for each in kept][: answered + 1] == list(range(answered + 1))
        assert len(kept) <= answered + 2  # the one that was not answered may be there
        assert all(len(each.dictionaries[0].entries) == 200 for each in kept)
        answered = len(kept) - 1
