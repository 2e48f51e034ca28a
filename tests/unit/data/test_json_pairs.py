"""Pairs in JSON, in the forms that other tools write, are those of Parquet with the same rows."""

import gzip
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from heedful.data.files import PairFiles, ParallelText, load_text
from heedful.errors import CorpusError

Rows = list[dict[str, Any]]
ROWS: Rows = [
    {"translation": {"en": "the cat", "de": "die Katze"}, "id": "1"},
    {"translation": {"en": None, "de": "ohne Quelle"}, "id": "2"},
    {"translation": {"en": "a\ndog", "de": "ein Hund"}, "id": "3"},
    {"translation": None, "id": "4"},
    {"translation": {"en": "half \U0001d11e", "de": " "}, "id": None},
]
NESTED: Rows = [{"pair": {"text": {"en": "a", "de": "A"}}}, {"pair": {"text": None}}, {"pair": None}]
FLAT: Rows = [{"translation.en": "a", "translation.de": "A"}, {"translation.en": None, "translation.de": "B"}]
CASES = [
    (ROWS, ("en", "de")),
    (ROWS, ("translation.de", "translation.en")),
    (ROWS, ("id", "de")),
    (NESTED, ("pair.text.en", "pair.text.de")),
    (FLAT, ("translation.en", "translation.de")),
]


def lines(rows: Rows, *, end: str = "") -> bytes:
    return ("".join(json.dumps(row) + "\n" for row in rows) + end).encode()


FORMS = {
    "p.jsonl": lines,
    "p.jsonl.gz": lambda rows: gzip.compress(lines(rows)),
    "p.json.GZ": lambda rows: gzip.compress(json.dumps(rows).encode()),
    "lines.json": lines,
    "blank-end.jsonl": lambda rows: lines(rows, end="\n  \r\n"),
    "no-end.jsonl": lambda rows: b"\xef\xbb\xbf" + lines(rows).rstrip(b"\n"),
    "blanks.jsonl": lambda rows: lines(rows).replace(b"\n", b"\r\n\r\n"),
    "list.json": lambda rows: json.dumps(rows, ensure_ascii=False, indent=2).encode(),
}


def read(path: Path, keys: tuple[str, str]) -> ParallelText:
    return load_text(PairFiles((path,), *keys))


@pytest.mark.parametrize("name", FORMS)
@pytest.mark.parametrize(("rows", "keys"), CASES)
def test_they_are_those_of_parquet(tmp_path: Path, rows: Rows, keys: tuple[str, str], name: str) -> None:
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "p.parquet")
    expected = read(tmp_path / "p.parquet", keys)
    path = tmp_path / name
    path.write_bytes(FORMS[name](rows))
    found = read(path, keys)
    assert len(found) > 0
    assert (found.src, found.tgt, found.num_empty) == (expected.src, expected.tgt, expected.num_empty)
    # inspect reads row by row
    kept = [
        (row.src, row.tgt) for row in PairFiles((path,), *keys).rows() if row.src.strip() and row.tgt.strip()
    ]
    assert kept == list(zip(expected.src, expected.tgt, strict=True))


def test_a_row_keeps_the_number_of_its_line(tmp_path: Path) -> None:
    path = tmp_path / "p.jsonl"
    path.write_bytes(b'{"src": "a", "tgt": "b"}\n\n{"src": "c", "tgt": null}\n')
    assert [(row.number, row.src, row.tgt) for row in PairFiles((path,)).rows()] == [
        (1, "a", "b"),
        (3, "c", ""),
    ]


def test_what_a_list_gives_is_read_again(tmp_path: Path) -> None:
    (tmp_path / "list.json").write_text(json.dumps(ROWS), encoding="utf-8")
    rows = list(PairFiles((tmp_path / "list.json",), "en", "de").rows())
    (tmp_path / "again.json").write_bytes(b"".join(row.raw[0] for row in rows))
    again = list(PairFiles((tmp_path / "again.json",), "en", "de").rows())
    assert [(row.src, row.tgt) for row in again] == [(row.src, row.tgt) for row in rows]


@pytest.mark.parametrize("content", ["[", "[]", "[1]", '[{"src": "a"}]', '{"a": [', "\n \n"])
def test_what_is_no_list_of_pairs_is_refused(tmp_path: Path, content: str) -> None:
    (tmp_path / "p.json").write_text(content, encoding="utf-8")
    with pytest.raises(CorpusError, match=r"p\.json"):
        read(tmp_path / "p.json", ("src", "tgt"))


def test_the_keys_in_a_translation_are_named_where_another_was_asked_for(tmp_path: Path) -> None:
    (tmp_path / "p.jsonl").write_bytes(lines(ROWS))
    pq.write_table(pa.Table.from_pylist(ROWS), tmp_path / "p.parquet")
    for name in ("p.jsonl", "p.parquet"):
        with pytest.raises(CorpusError, match=r"'fr'.*'en'"):
            read(tmp_path / name, ("fr", "de"))
