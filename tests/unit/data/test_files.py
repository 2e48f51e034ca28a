import gzip
import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from heedful.data.files import (
    PairFiles,
    ParallelText,
    Row,
    holds_pairs,
    load_text,
    overlap,
    read_lines,
    read_parallel,
    shared_pairs,
)
from heedful.errors import CorpusError


def write(path: Path, content: str | bytes) -> Path:
    path.write_bytes(content.encode("utf-8") if isinstance(content, str) else content)
    return path


def read_pairs(path: Path, *, src_key: str = "src", tgt_key: str = "tgt") -> ParallelText:
    return load_text(PairFiles((path,), src_key, tgt_key))


def sources_of(path: Path) -> list[str]:
    """The lines of a file as the reader of pairs gives them, which holds one pair at a time."""
    return [row.src for row in PairFiles((path, path)).rows()]


def rows_of(src: Path, tgt: Path) -> list[Row]:
    return list(PairFiles((src, tgt)).rows())


Reader = Callable[[Path], list[str]]
EITHER = pytest.mark.parametrize("read", [read_lines, sources_of])


STRANGE = "a\u2028b\x85c\x0cd\x0be\x1cf\u2029g\rh"  # no line feed


@EITHER
@pytest.mark.parametrize(
    ("content", "lines"),
    [
        (gzip.compress("ü\nb\n".encode()), ["ü", "b"]),
        (f"{STRANGE}\nsecond\n".encode(), [STRANGE, "second"]),
        (b"a\r\nb\r\n\r\nc", ["a", "b", "", "c"]),
        (b"a\n\n\nb\n\n", ["a", "", "", "b", ""]),
        (b"\xef\xbb\xbfa\n\xef\xbb\xbfb\n", ["a", "\ufeffb"]),
    ],
    ids=["gzip", "line feeds alone", "of Windows", "empty lines", "a byte order mark"],
)
def test_a_file_has_these_lines(tmp_path: Path, content: bytes, lines: list[str], read: Reader) -> None:
    assert read(write(tmp_path / "text", content)) == lines


@EITHER
@pytest.mark.parametrize(
    ("content", "place"),
    [
        (b"", "empty"),
        (b"\xef\xbb\xbf", "empty"),
        (b"ok\nab\xff\n", r"line 2, byte 2 \(byte 5"),
        (b"ok\n\xc3", r"line 2, byte 0 \(byte 3"),
        (b"\xef\xbb\xbfok\na\xff", r"line 2, byte 1 \(byte 7"),
        (b"a\nb\nx\0y\n", r"line 3, byte 1 \(byte 5"),
        ("hé\n".encode("utf-16-le"), "line 1, byte 1 "),
        (b"\x1f\x8b\x08nonsense", "gzip"),
        (gzip.compress(b"some text\n" * 500, mtime=0)[:-9], "gzip"),
        (gzip.compress(b"some text\n" * 500, mtime=0)[:-1] + b"\xaa", "gzip"),
    ],
)
def test_bad_content_is_named_with_its_place(
    tmp_path: Path, content: bytes, place: str, read: Reader
) -> None:
    path = write(tmp_path / "bad.txt", content)
    with pytest.raises(CorpusError, match=place) as caught:
        read(path)
    assert str(caught.value).startswith(f"{path}: ")
    assert "\n" not in str(caught.value)


@EITHER
@pytest.mark.parametrize("name", ["text.gz", "text.GZ"])
def test_a_plain_file_named_gz_is_refused(tmp_path: Path, read: Reader, name: str) -> None:
    with pytest.raises(CorpusError, match=rf"{name}: .*gzip"):
        read(write(tmp_path / name, "plain\n"))


@EITHER
def test_a_missing_file_and_a_directory_are_named(tmp_path: Path, read: Reader) -> None:
    with pytest.raises(CorpusError, match=r"nowhere\.de: no such file"):
        read(tmp_path / "nowhere.de")
    with pytest.raises(CorpusError, match="is a directory"):
        read(tmp_path)


@pytest.mark.parametrize("read", [read_parallel, rows_of])
@pytest.mark.parametrize("swap", [False, True])
def test_unequal_sides_name_both_and_the_first_unmatched_line(
    tmp_path: Path, swap: bool, read: Callable[[Path, Path], object]
) -> None:
    short = write(tmp_path / "train.de", "x\n" * 1234)
    long = write(tmp_path / "train.en", "x\n" * 1236)
    with pytest.raises(CorpusError, match=r"train\.de: 1,234 lines .*train\.en has 1,236.* 1,235\)"):
        read(*((long, short) if swap else (short, long)))


def test_pairs_with_an_empty_side_are_left_out_and_counted(tmp_path: Path) -> None:
    src, tgt = write(tmp_path / "s", "a\n\nc\nd\n\n"), write(tmp_path / "t", "A\nB\n \t\nD\n\n")
    text = read_parallel(src, tgt)
    assert (text.src, text.tgt) == (["a", "d"], ["A", "D"])
    assert (text.num_empty, text.num_read) == (3, 5)


@pytest.mark.parametrize(
    ("src", "tgt", "named"),
    [("a\nb\n", "\n \n", "t: "), ("\n \n", "a\nb\n", "s: "), ("a\n\n", "\nB\n", "s and .*t: ")],
    ids=["no target", "no source", "no pair"],
)
def test_text_without_a_pair_is_refused(tmp_path: Path, src: str, tgt: str, named: str) -> None:
    with pytest.raises(CorpusError, match=named):
        read_parallel(write(tmp_path / "s", src), write(tmp_path / "t", tgt))
    lines = zip(src.splitlines(), tgt.splitlines(), strict=True)
    with pytest.raises(CorpusError, match=r"p\.tsv"):
        read_pairs(write(tmp_path / "p.tsv", "".join(f"{one}\t{other}\n" for one, other in lines)))


@pytest.mark.parametrize(
    ("line", "keys"),
    [("no tab", ("src", "tgt")), ("a\tb\tc", ("src", "tgt")), ("", ("src", "tgt")), ("b\tB", ("1", "3"))],
)
def test_a_tsv_line_of_other_columns_is_named(tmp_path: Path, line: str, keys: tuple[str, str]) -> None:
    first = "a\tA\t1" if keys[1] == "3" else "a\tA"
    files = PairFiles((write(tmp_path / "pairs.tsv", f"{first}\n{line}\n{first}\n"),), *keys)
    for read in (load_text, lambda files: list(files.rows())):
        with pytest.raises(CorpusError, match=r"pairs\.tsv: line 2:"):
            read(files)


@pytest.mark.parametrize(
    ("content", "keys"),
    [
        ("id\tde\ten\n1\tA\ta\n2\tB\tb\n", ("en", "de")),  # a table with names
        ("src\ttgt\r\na\tA\r\nb\tB\r\n", ("src", "tgt")),
        ("a\tA\tCC-BY\nb\tB\tCC-BY\tmore\n", ("1", "2")),  # as Tatoeba's pairs by manythings.org
        ("0.9\tA\ta\n0.8\tB\tb\n", ("3", "2")),
        ("a\tA\t1\t2\nb\tB\t3\t4\n", ("1", "2")),  # numbers are no names
        ("a\tA\nb\tB\n", ("en", "de")),  # keys of a .jsonl beside it
        ("a\tA\r\nb\tB\n", ("src", "tgt")),
    ],
)
def test_columns_of_a_tsv_are_chosen_by_number_or_name(
    tmp_path: Path, content: str, keys: tuple[str, str]
) -> None:
    files = PairFiles((write(tmp_path / "pairs.tsv", content),), *keys)
    text = load_text(files)
    assert (text.src, text.tgt) == (["a", "b"], ["A", "B"])
    rows = list(files.rows())
    assert [row.src for row in rows] == text.src
    assert files.header + b"".join(row.raw[0] for row in rows) == content.encode()


@pytest.mark.parametrize(
    ("first", "keys"),
    [
        ("de\ten", ("en", "ger")),
        ("id\tde\ten", ("source", "target")),
        ("a\tA", ("1", "0")),
        ("a\tA", ("2", "2")),
    ],
)
def test_columns_that_a_tsv_does_not_have_are_refused(
    tmp_path: Path, first: str, keys: tuple[str, str]
) -> None:
    path = write(tmp_path / "pairs.tsv", f"{first}\nb\tB\tc\n")
    with pytest.raises(CorpusError, match=r"pairs\.tsv: .*data\.src_key"):
        load_text(PairFiles((path,), *keys))


@pytest.mark.parametrize("packed", ["", ".gz", ".GZ"])
def test_jsonl_takes_the_named_keys(tmp_path: Path, packed: str) -> None:
    content = "".join(json.dumps({"en": f"a{i}", "de": f"ü{i}", "id": i}) + "\n" for i in range(3)).encode()
    path = write(tmp_path / f"p.jsonl{packed}", gzip.compress(content) if packed else content)
    text = read_pairs(path, src_key="en", tgt_key="de")
    assert (text.src, text.tgt) == (["a0", "a1", "a2"], ["ü0", "ü1", "ü2"])


@pytest.mark.parametrize(
    ("line", "named"),
    [
        ("{", "line 2"),
        ("[" * 100_000, "line 2"),
        ('["a", "b"]', "line 2"),
        ('{"src": "a", "target": "b"}', "line 2: .*'tgt' .*'target'"),
        ('{"src": "a", "tgt": 3}', "line 2: .*'tgt'"),
        ('{"src": "a", "tgt": {"de": "b"}}', "line 2: .*'tgt'"),
        ('{"translation": {"src": "a", "en": "b"}}', "line 2: .*'tgt' .*'en'"),
        (r'{"src": "a\u0000", "tgt": "b"}', "line 2"),
        (r'{"src": "a\ud800", "tgt": "b"}', "line 2"),
    ],
)
def test_a_bad_json_line_is_named(tmp_path: Path, line: str, named: str) -> None:
    path = write(tmp_path / "p.jsonl", '{"src": "a", "tgt": "b"}\n' + line + "\n")
    with pytest.raises(CorpusError, match=named):
        read_pairs(path)


def test_held_out_text_that_training_has_seen_is_found() -> None:
    train = ParallelText(["a", "b", "a"], ["1", "2", "3"])
    held_out, other = ParallelText(["a", "c", "b", "a"], ["3", "1", "1", "1"]), ParallelText(["d"], ["9"])
    assert (overlap(train, held_out), overlap(train, other)) == (3, 0)
    assert (shared_pairs(train, held_out), shared_pairs(train, other)) == ([0, 3], [])


def test_real_corpora_are_read_whole(real_data: Path) -> None:
    folder = real_data / "multi30k"
    train = read_parallel(folder / "train.en", folder / "train.de")
    test = read_parallel(folder / "test_2016_flickr.en", folder / "test_2016_flickr.de")
    assert (train.num_read, test.num_read) == (29_000, 1_000)
    assert overlap(train, test) < 10
    packed = real_data / "canada-laws-en-fr"
    assert len(read_parallel(packed / "valid.en.gz", packed / "valid.fr.gz")) == 3_000


def test_pairs_come_with_their_line_and_their_bytes(tmp_path: Path) -> None:
    src = write(tmp_path / "a.en", b"\xef\xbb\xbfone\r\n\ntwo")
    tgt = write(tmp_path / "a.de", "eins\nx\nzwei\n")
    assert list(PairFiles((src, tgt)).rows()) == [
        (1, "one", "eins", (b"\xef\xbb\xbfone\r\n", b"eins\n")),
        (2, "", "x", (b"\n", b"x\n")),
        (3, "two", "zwei", (b"two", b"zwei\n")),
    ]
    tsv = write(tmp_path / "p.tsv.gz", gzip.compress(b"a\tA\n"))
    assert list(PairFiles((tsv,)).rows()) == [(1, "a", "A", (b"a\tA\n",))]
    line = r'{"src": "a\nb", "tgt": "c\ud83d\ude00"}' + "\n"
    pairs = PairFiles((write(tmp_path / "p.jsonl", line),))
    assert list(pairs.rows()) == [(1, "a b", "c😀", (line.encode(),))]
    assert (load_text(pairs).src, load_text(pairs).tgt) == (["a b"], ["c😀"])


@pytest.mark.skipif(os.name == "nt", reason="has no named pipes")
def test_a_pipe_is_refused_and_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    good = write(tmp_path / "good", "x\n")
    with pytest.raises(CorpusError, match="pipe: "):
        list(PairFiles((good, tmp_path / "pipe")).rows())


def test_progress_is_told_and_ends_at_most_at_the_end(tmp_path: Path) -> None:
    text = write(tmp_path / "a", "some words\n" * 5000)
    told: list[float] = []
    assert sum(1 for _ in PairFiles((text, text)).rows(told.append)) == 5000
    assert told == sorted(told)
    assert 0.0 < told[0] <= told[-1] <= 1.0


@pytest.mark.parametrize(
    ("names", "suffixes"),
    [
        (("train.en", "train.de.gz"), (".en", ".de")),
        (("src.txt", "tgt.txt"), (".src", ".tgt")),
        (("english", "german"), (".src", ".tgt")),
        (("pairs.tsv.gz",), (".tsv",)),
        (("pairs.jsonl",), (".jsonl",)),
        (("pairs.json.gz",), (".json",)),
    ],
)
def test_suffixes_tell_the_sides_apart(names: tuple[str, ...], suffixes: tuple[str, ...]) -> None:
    assert PairFiles(tuple(map(Path, names))).suffixes == suffixes


def test_files_of_pairs_are_known_by_name() -> None:
    assert all(holds_pairs(Path(name)) for name in ("a.tsv", "a.jsonl", "a.json", "a.b.tsv.gz", "a.jsonl.gz"))
    assert not any(holds_pairs(Path(name)) for name in ("run", "a.gz", "a.en", "tsv"))
