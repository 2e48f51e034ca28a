"""Shards of lines and of Parquet; what they share with other jobs that go on is test_resumable_jobs.py."""

import gzip
import io
import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from command_line import Outcome, assert_one_clear_line, heedful, text
from tiny_bundle import SOURCES, TARGETS

from heedful.storage.description import file_sha256

TRANSLATED = dict(zip(SOURCES, TARGETS, strict=True)) | {"": "", None: None}
TEXTS = [*SOURCES[:2], None, "", *SOURCES]


@pytest.fixture
def shards(tmp_path: Path) -> Path:
    """Two texts, one gzipped, and a Parquet file, in a folder with a hidden file."""
    folder = tmp_path / "in"
    folder.mkdir()
    (folder / "a.txt").write_bytes(text(SOURCES))
    (folder / "b.txt.gz").write_bytes(gzip.compress(text(SOURCES[::-1])))
    pq.write_table(pa.table({"id": range(len(TEXTS)), "text": TEXTS}), folder / "c.parquet")
    (folder / ".hidden").write_bytes(b"\xff")
    return folder


def translate(
    run: Path, shards: Path, *options: object, only: str | None = None, output: str = "out"
) -> Outcome:
    source = shards if only is None else shards / only
    return heedful("translate", run, "-i", source, "-o", shards.parent / output, *options)


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


def test_each_shard_is_translated_and_listed_with_its_checksums(run: Path, shards: Path) -> None:
    assert translate(run, shards) == Outcome(0, "", "shards translated: 3\n")
    out = shards.parent / "out"
    assert sorted(contents(out)) == ["a.txt", "b.txt.gz", "c.parquet", "manifest.json"]
    assert (out / "a.txt").read_bytes() == text(TARGETS)
    assert gzip.decompress((out / "b.txt.gz").read_bytes()) == text(TARGETS[::-1])
    expected = {
        "id": [*range(len(TEXTS))],
        "text": TEXTS,
        "translation": [TRANSLATED[each] for each in TEXTS],
    }
    assert pq.read_table(out / "c.parquet").to_pydict() == expected
    manifest = json.loads((out / "manifest.json").read_text(encoding="utf-8"))
    assert manifest["settings"]["precision"] == "float32"
    for name, lines in {"a.txt": 6, "b.txt.gz": 6, "c.parquet": len(TEXTS)}.items():
        record = manifest["parts"][name]
        assert record["lines"] == lines
        for which, folder in (("source", shards), ("output", out)):
            size = (folder / name).stat().st_size
            assert record[which] == {"bytes": size, "sha256": file_sha256(folder / name)}


def test_objects_of_a_shard_are_those_of_its_file(run: Path, shards: Path) -> None:
    for only, output in (("*.txt", "shards"), ("a.txt", "alone")):
        assert translate(run, shards, "--json", only=only, output=output).code == 0
    assert (shards.parent / "shards" / "a.txt").read_bytes() == (shards.parent / "alone").read_bytes()


def test_options_and_inputs_of_no_shards_are_refused(run: Path, shards: Path) -> None:
    assert_one_clear_line(translate(run, shards, only="*.zip"), 1, "in/*.zip")
    assert_one_clear_line(translate(run, shards, "--json"), 2, "--json")
    assert_one_clear_line(heedful("translate", run, "-i", shards), 2, "--output")
    assert not (shards.parent / "out").exists()


def test_another_column_is_refused(run: Path, shards: Path) -> None:
    assert translate(run, shards).code == 0
    (shards / "d.txt").write_bytes(text(SOURCES))
    assert_one_clear_line(translate(run, shards, "--resume", "--column", "id"), 1, "column=text")


def parquet(*names: str) -> bytes:
    stream = io.BytesIO()
    pq.write_table(pa.Table.from_arrays([pa.array(SOURCES)] * len(names), [*names]), stream)
    return stream.getvalue()


@pytest.mark.parametrize(
    ("content", "options", "named"),
    [
        (None, ["--column", "txt"], "'txt'"),
        (None, ["--column", "id"], "'id'"),
        (parquet("text", "text"), [], "'text'"),
        (b"PAR1", [], "in/c.parquet"),
        (parquet("text")[:-100] + b"PAR1", [], "in/c.parquet"),
    ],
    ids=["no such column", "numbers", "twice the column", "a beginning", "another end"],
)
def test_a_parquet_file_that_cannot_be_translated_is_named(
    run: Path, shards: Path, content: bytes | None, options: list[str], named: str
) -> None:
    if content is not None:
        (shards / "c.parquet").write_bytes(content)
    assert_one_clear_line(translate(run, shards, *options, only="*.parquet"), 1, "in/c.parquet", named)


@pytest.mark.parametrize(
    "kind", [pa.dictionary(pa.int32(), pa.string()), pa.large_string(), pa.string_view()]
)
def test_texts_of_parquet_may_be_of_another_type(run: Path, shards: Path, kind: pa.DataType) -> None:
    table = pa.table({"text": pa.array(TEXTS).cast(kind)})
    pq.write_table(table, shards / "c.parquet")
    assert translate(run, shards, only="*.parquet").code == 0
    written = pq.read_table(shards.parent / "out" / "c.parquet")
    assert written.column("text").to_pylist() == TEXTS
    assert written.schema.field("text") == table.schema.field("text")
    assert written.column("translation").to_pylist() == [TRANSLATED[each] for each in TEXTS]


def test_a_parquet_file_is_not_written_into_a_directory_of_its_name(run: Path, shards: Path) -> None:
    output = shards.parent / "out.parquet"
    outcome = heedful("translate", run, "-i", shards / "c.parquet", "-o", output)
    assert_one_clear_line(outcome, 2, "out.parquet")
    assert not output.exists()


def test_an_empty_path_is_no_directory(run: Path, shards: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(shards)
    for paths, option in ((("-i", "", "-o", "out"), "--input"), (("-i", "a.txt", "-o", ""), "--output")):
        assert_one_clear_line(heedful("translate", run, *paths), 2, option)
    assert not (shards / "out").exists()


def test_a_column_of_translations_is_not_overwritten(run: Path, shards: Path) -> None:
    assert translate(run, shards, "--scores", only="c.parquet").code == 0
    assert pq.read_schema(shards.parent / "out" / "c.parquet").names == ["id", "text", "translation", "score"]
    again = heedful("translate", run, "-i", shards.parent / "out", "-o", shards.parent / "2")
    assert_one_clear_line(again, 1, "out/c.parquet")
