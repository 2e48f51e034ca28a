import gzip
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from heedful.data import corpora, files
from heedful.data.corpora import Sentences, hold_out, joined, open_text
from heedful.data.files import PairFiles, ParallelText, load_text, read_lines, read_parallel
from heedful.errors import CorpusError

NUMBER = 23


@pytest.fixture
def pair(tmp_path: Path) -> PairFiles:
    """Two files of lines, some of them empty."""
    paths = tmp_path / "a.en", tmp_path / "a.de"
    for path, letter in zip(paths, "xy", strict=True):
        lines = ["" if i % 9 == 4 else f"{letter} {i} ü" for i in range(NUMBER)]
        path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return PairFiles(paths)


@pytest.mark.representatives(1)
@pytest.mark.parametrize("rows", [1, 3, 7, 100])
def test_sentences_in_a_file_are_those_of_a_list(
    pair: PairFiles, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rows: int
) -> None:
    monkeypatch.setattr(corpora, "ROWS", rows)
    whole = read_parallel(*pair.paths)
    with open_text(pair, tmp_path / "cache") as text:
        assert isinstance(text.src, Sentences)
        assert [*text.src] == whole.src
        assert [*text.tgt] == whole.tgt
        assert (text.num_empty, text.num_read, text.sources) == (3, NUMBER, whole.sources)
        twice = joined([text, text]).src
        for sentences in (text.src, text.src.without_every(4), text.src.without_every(20), twice):
            expected = [*sentences]
            assert len(expected) == len(sentences)
            bounds = [None, *range(-len(expected) - 2, len(expected) + 3)]
            for start in bounds:
                for stop in bounds:
                    assert sentences[start:stop] == expected[start:stop]
            assert sentences[::3] == expected[::3]
            assert sentences[::-2] == expected[::-2]
            assert [sentences[i] for i in range(-len(expected), len(expected))] == expected * 2
            with pytest.raises(IndexError):
                sentences[len(expected)]
    assert [*(tmp_path / "cache").iterdir()] == []


@pytest.mark.parametrize("every", [2, 3, 4, 20])
def test_the_last_of_each_so_many_pairs_is_held_out(pair: PairFiles, tmp_path: Path, every: int) -> None:
    whole = [*zip(*(read_parallel(*pair.paths).src, read_parallel(*pair.paths).tgt), strict=True)]
    with open_text(pair, tmp_path) as text:
        rest, held_out = hold_out(text, every)
        assert [*zip(held_out.src, held_out.tgt, strict=True)] == whole[every - 1 :: every]
        left = [each for i, each in enumerate(whole) if i % every != every - 1]
        assert [*zip(rest.src, rest.tgt, strict=True)] == left
        assert rest.num_empty == held_out.num_empty == 3


@pytest.mark.parametrize("size", [1, 2, 3, 5, 64])
def test_lines_do_not_depend_on_what_is_read_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    monkeypatch.setattr(files, "_CHUNK", size)
    contents = ["a\n", "a", "\n", "\n\n", "ü\r\n\r\nlonger line\n\nlast", "\ufeffone\n\ufefftwo\n"]
    for content in contents:
        (tmp_path / "x").write_bytes(content.encode())
        lines = content.removeprefix("\ufeff").removesuffix("\n").split("\n")
        assert read_lines(tmp_path / "x") == [line.removesuffix("\r") for line in lines]
    (tmp_path / "x").write_bytes(b"ab\ncd\ne\xff\n")
    with pytest.raises(CorpusError, match=r"line 3, byte 1 \(byte 7 of the file\)"):
        read_lines(tmp_path / "x")


@pytest.mark.parametrize("size", [1, 2, 5, 64])
@pytest.mark.parametrize("counts", [(1, 4), (4, 1), (7, 9)])
def test_unequal_files_are_counted_to_their_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int, counts: tuple[int, int]
) -> None:
    monkeypatch.setattr(files, "_CHUNK", size)
    paths = tmp_path / "s", tmp_path / "t"
    for path, count in zip(paths, counts, strict=True):
        path.write_text("x\n" * count)
    with pytest.raises(
        CorpusError, match=rf"{min(counts)} lines but .* has {max(counts)}; .* {min(counts) + 1}\)"
    ):
        [*PairFiles(paths).chunks()]


def test_a_text_that_is_not_one_names_the_line_and_leaves_no_file(tmp_path: Path) -> None:
    paths = tmp_path / "s", tmp_path / "t"
    paths[0].write_bytes(b"x" * (2**24 + 1))
    paths[1].write_bytes(b"x\n")
    with pytest.raises(CorpusError, match="s: line 1"), open_text(PairFiles(paths), tmp_path / "cache"):
        pass
    assert [*(tmp_path / "cache").iterdir()] == []


def test_the_fraction_that_was_read_rises_to_one(pair: PairFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "_CHUNK", 16)
    fractions: list[float] = []
    assert sum(len(src) for src, _ in pair.chunks(fractions.append)) == NUMBER
    assert fractions == sorted(fractions)
    assert fractions[-1] == 1.0


def test_a_text_in_memory_is_that_of_the_files(pair: PairFiles) -> None:
    whole = read_parallel(*pair.paths)
    assert load_text(pair) == ParallelText(whole.src, whole.tgt, tuple(map(str, pair.paths)), 3)


EN, DE = ["one", "", "three\nlines", "four"], ["eins", "zwei", "drei", None]
TEXTS = (["one", "three lines"], ["eins", "drei"])


def columns() -> dict[str, Any]:
    return {"id": [1, 2, 3, 4], "en": EN, "de": DE}


def write_table(tmp_path: Path, form: str) -> Path:
    import datasets

    path = tmp_path / "pairs.parquet"
    if form == "parquet":
        pq.write_table(pa.table(columns()), path, row_group_size=2)
    elif form == "dictionary":
        table = pa.table({name: pa.array(values) for name, values in columns().items()})
        pq.write_table(table.set_column(1, "en", table["en"].dictionary_encode()), path)
    elif form == "directory of parquet":
        path = tmp_path / "shards"
        path.mkdir()
        for part in (0, 1):
            pq.write_table(pa.table(columns()).slice(2 * part, 2), path / f"part-{part}.parquet")
    elif form == "dataset":
        path = tmp_path / "dataset"
        datasets.Dataset.from_dict(columns()).save_to_disk(path, num_shards=2)
    else:  # as the translation data sets of the hub have it
        pairs = [{"en": en, "de": de} for en, de in zip(EN, DE, strict=True)]
        dataset = datasets.Dataset.from_dict({"translation": pairs})
        if "parquet" in form:
            dataset.to_parquet(path)
        else:
            path = tmp_path / "dataset"
            dataset.save_to_disk(path)
    return path


FORMS = ["parquet", "dictionary", "directory of parquet", "dataset", "translation", "translation in parquet"]


@pytest.mark.parametrize("form", FORMS)
def test_tables_are_read_by_columns(tmp_path: Path, form: str) -> None:
    text = load_text(PairFiles((write_table(tmp_path, form),), "en", "de"))
    assert (text.src, text.tgt, text.num_empty) == (*TEXTS, 2)


def test_a_directory_of_files_of_pairs_is_read_in_the_order_of_their_names(tmp_path: Path) -> None:
    pairs = [dict(zip(("en", "de"), pair, strict=True)) for pair in zip(EN, DE, strict=True)]
    (tmp_path / "2.json").write_text(json.dumps(pairs[2:]), encoding="utf-8")
    (tmp_path / "1.jsonl").write_text("\n".join(map(json.dumps, pairs[:2])), encoding="utf-8")
    (tmp_path / "3.tsv.gz").write_bytes(gzip.compress(b"five\tf\xc3\xbcnf\n"))
    (tmp_path / "LICENSE").write_text("what is no file of pairs is left out", encoding="utf-8")
    shares: list[float] = []
    chunks = PairFiles((tmp_path,), "en", "de").chunks(shares.append)
    assert sum(len(src) for src, _ in chunks) == len(EN) + 1
    assert shares == sorted(shares)
    assert shares[-1] == 1.0
    text = load_text(PairFiles((tmp_path,), "en", "de"))
    assert (text.src, text.tgt) == ([*TEXTS[0], "five"], [*TEXTS[1], "fünf"])


def assert_refused(path: Path, *named: str, src: str = "en") -> None:
    with pytest.raises(CorpusError) as caught:
        load_text(PairFiles((path,), src, "de"))
    assert str(caught.value).startswith(str(path))
    assert "\n" not in str(caught.value)
    assert all(name in str(caught.value) for name in named)


TEXT_COLUMN = pa.array(["a"])
THREE_COLUMNS = [TEXT_COLUMN] * 3
TABLES: dict[str, tuple[pa.Table, str]] = {
    "twice the same column": (pa.Table.from_arrays(THREE_COLUMNS, ["en", "de", "de"]), "'de'"),
    "twice the same language": (
        pa.table({"translation": pa.StructArray.from_arrays(THREE_COLUMNS, ["en", "en", "de"])}),
        "'en'",
    ),
    "a NUL": (pa.table({"en": ["a\0"], "de": ["b"]}), "row 1: "),
    "no rows": (pa.table({"en": pa.array([], pa.string()), "de": pa.array([], pa.string())}), "no rows"),
    "numbers": (pa.table({"en": [1], "de": ["b"]}), "int64"),
    "other columns": (pa.table({"id": [1], "fr": ["a"]}), "'en' (it has 'id', 'fr')"),
}


@pytest.mark.parametrize("fault", TABLES)
def test_a_table_that_cannot_be_used_is_named(tmp_path: Path, fault: str) -> None:
    table, named = TABLES[fault]
    pq.write_table(table, tmp_path / "pairs.parquet")
    assert_refused(tmp_path / "pairs.parquet", named)


def test_files_and_directories_that_are_no_table_are_named(tmp_path: Path) -> None:
    import datasets

    path = write_table(tmp_path, "parquet")
    path.write_bytes(path.read_bytes()[:-20])
    for damaged in (path, tmp_path, tmp_path / "none.parquet"):
        assert_refused(damaged)
    path.unlink()
    assert_refused(tmp_path, "Dataset.save_to_disk")
    dataset = datasets.Dataset.from_dict(columns())
    datasets.DatasetDict({"train": dataset, "test": dataset}).save_to_disk(tmp_path / "splits")
    assert_refused(tmp_path / "splits", "test, train")
    assert_refused(write_table(tmp_path, "dataset"), "'fr'", src="fr")
    (tmp_path / "dataset" / "state.json").write_text("[]")
    assert_refused(tmp_path / "dataset", "state.json")
