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


@EITHER
@pytest.mark.parametrize("name", ["text.gz", "text.txt"])
def test_gzip_is_recognised_by_its_content(tmp_path: Path, name: str, read: Reader) -> None:
    assert read(write(tmp_path / name, gzip.compress("ü\nb\n".encode()))) == ["ü", "b"]


@EITHER
def test_only_a_line_feed_ends_a_line(tmp_path: Path, read: Reader) -> None:
    strange = "a\u2028b\x85c\x0cd\x0be\x1cf\u2029g\rh"
    assert read(write(tmp_path / "x", f"{strange}\nsecond\n")) == [strange, "second"]


@EITHER
def test_carriage_returns_before_line_feeds_go_with_them(tmp_path: Path, read: Reader) -> None:
    assert read(write(tmp_path / "x", "a\r\nb\r\n\r\nc")) == ["a", "b", "", "c"]


def test_empty_lines_are_kept_and_the_final_line_feed_starts_no_line(tmp_path: Path) -> None:
    assert read_lines(write(tmp_path / "x", "a\n\n\nb\n\n")) == ["a", "", "", "b", ""]


@EITHER
def test_a_byte_order_mark_is_dropped(tmp_path: Path, read: Reader) -> None:
    assert read(write(tmp_path / "x", b"\xef\xbb\xbfa\n\xef\xbb\xbfb\n")) == ["a", "\ufeffb"]


@EITHER
@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "the file is empty"),
        (b"\xef\xbb\xbf", "the file is empty"),
        (b"ok\nab\xff\n", r"line 2, byte 2 \(byte 5 of the file\)"),
        (b"ok\n\xc3", r"line 2, byte 0 \(byte 3 of the file\)"),
        (b"\xef\xbb\xbfok\na\xff", r"line 2, byte 1 \(byte 7 of the file\): 0xff"),
        (b"a\nb\nx\0y\n", r"line 3, byte 1 \(byte 5 of the file\): NUL byte"),
        ("hé\n".encode("utf-16-le"), "line 1, byte 1 .*NUL byte"),
        (b"\x1f\x8b\x08nonsense", "gzip file is truncated or corrupt"),
        (gzip.compress(b"some text\n" * 500, mtime=0)[:-9], "gzip file is truncated or corrupt"),
        (gzip.compress(b"some text\n" * 500, mtime=0)[:-1] + b"\xaa", "gzip file is truncated or corrupt"),
    ],
)
def test_bad_content_is_named_with_its_place(
    tmp_path: Path, content: bytes, message: str, read: Reader
) -> None:
    path = write(tmp_path / "bad.txt", content)
    with pytest.raises(CorpusError, match=message) as caught:
        read(path)
    assert str(caught.value).startswith(f"{path}: ")
    assert "\n" not in str(caught.value)


@EITHER
@pytest.mark.parametrize("name", ["text.gz", "text.GZ"])
def test_a_plain_file_named_gz_is_refused(tmp_path: Path, read: Reader, name: str) -> None:
    with pytest.raises(CorpusError, match=rf"{name}: not a gzip file, although its name ends in \.gz"):
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
    with pytest.raises(CorpusError) as caught:
        read(*((long, short) if swap else (short, long)))
    assert str(caught.value) == (
        f"{short}: 1,234 lines but {long} has 1,236; "
        "source and target must be parallel (first unmatched line: 1,235)"
    )


def test_pairs_with_an_empty_side_are_left_out_and_counted(tmp_path: Path) -> None:
    src, tgt = write(tmp_path / "s", "a\n\nc\nd\n\n"), write(tmp_path / "t", "A\nB\n \t\nD\n\n")
    text = read_parallel(src, tgt)
    assert (text.src, text.tgt) == (["a", "d"], ["A", "D"])
    assert (text.num_empty, text.num_read) == (3, 5)


def test_a_side_of_empty_lines_is_refused(tmp_path: Path) -> None:
    full, blank = write(tmp_path / "full", "a\nb\n"), write(tmp_path / "blank", "\n \n")
    with pytest.raises(CorpusError, match="blank: every line is empty"):
        read_parallel(full, blank)
    with pytest.raises(CorpusError, match="blank: every line is empty"):
        read_parallel(blank, full)


def test_two_sides_that_never_meet_are_refused(tmp_path: Path) -> None:
    with pytest.raises(CorpusError, match="no line has both source and target text"):
        read_parallel(write(tmp_path / "s", "a\n\n"), write(tmp_path / "t", "\nB\n"))


def test_tsv_has_source_then_target(tmp_path: Path) -> None:
    text = read_pairs(write(tmp_path / "pairs.tsv", "a\tA\r\nb\tB\nc\t\n"))
    assert (text.src, text.tgt, text.num_empty) == (["a", "b"], ["A", "B"], 1)


@pytest.mark.parametrize("line", ["no tab", "a\tb\tc", ""])
def test_a_tsv_line_without_exactly_two_columns_is_named(tmp_path: Path, line: str) -> None:
    path = write(tmp_path / "pairs.tsv", f"a\tA\n{line}\nc\tC\n")
    for read in (read_pairs, lambda path: list(PairFiles((path,)).rows())):
        with pytest.raises(CorpusError, match=r"pairs\.tsv: line 2: \d tab-separated columns"):
            read(path)


@pytest.mark.parametrize(
    ("content", "keys"),
    [
        ("id\tde\ten\n1\tA\ta\n2\tB\tb\n", ("en", "de")),  # a table with names
        ("src\ttgt\r\na\tA\r\nb\tB\r\n", ("src", "tgt")),
        ("a\tA\tCC-BY\nb\tB\tCC-BY\tmore\n", ("1", "2")),  # as Tatoeba's pairs by manythings.org
        ("0.9\tA\ta\n0.8\tB\tb\n", ("3", "2")),
        ("a\tA\t1\t2\nb\tB\t3\t4\n", ("1", "2")),  # numbers are no names
        ("a\tA\nb\tB\n", ("en", "de")),  # keys of a .jsonl beside it
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
    with pytest.raises(CorpusError, match=r"pairs\.tsv: .*data\.src_key"):
        read_pairs(write(tmp_path / "pairs.tsv", f"{first}\nb\tB\tc\n"), src_key=keys[0], tgt_key=keys[1])


def test_a_tsv_without_the_numbered_column_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "pairs.tsv", "a\tA\t1\nb\tB\n")
    with pytest.raises(CorpusError, match=r"pairs\.tsv: line 2:"):
        read_pairs(path, src_key="1", tgt_key="3")


@pytest.mark.parametrize("packed", ["", ".gz", ".GZ"])
def test_jsonl_takes_the_named_keys(tmp_path: Path, packed: str) -> None:
    content = "".join(json.dumps({"en": f"a{i}", "de": f"ü{i}", "id": i}) + "\n" for i in range(3)).encode()
    path = write(tmp_path / f"p.jsonl{packed}", gzip.compress(content) if packed else content)
    text = read_pairs(path, src_key="en", tgt_key="de")
    assert (text.src, text.tgt) == (["a0", "a1", "a2"], ["ü0", "ü1", "ü2"])


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{", "line 2: not JSON"),
        ("[" * 100_000, "line 2: not JSON"),
        ('["a", "b"]', "line 2: not a JSON object"),
        ('{"src": "a", "target": "b"}', "line 2: no key 'tgt' .*'target'"),
        ('{"src": "a", "tgt": 3}', "line 2: the value of 'tgt' is not a string"),
        ('{"src": "a", "tgt": {"de": "b"}}', "line 2: the value of 'tgt' is not a string"),
        ('{"translation": {"src": "a", "en": "b"}}', "line 2: no key 'tgt' .*'en'"),
        (r'{"src": "a\u0000", "tgt": "b"}', "line 2: NUL character"),
        (r'{"src": "a\ud800", "tgt": "b"}', "line 2: half of a surrogate pair"),
    ],
)
def test_a_bad_json_line_is_named(tmp_path: Path, line: str, message: str) -> None:
    path = write(tmp_path / "p.jsonl", '{"src": "a", "tgt": "b"}\n' + line + "\n")
    with pytest.raises(CorpusError, match=message):
        read_pairs(path)


def test_a_sentence_in_json_stays_one_line(tmp_path: Path) -> None:
    text = read_pairs(write(tmp_path / "p.jsonl", r'{"src": "a\nb", "tgt": "c\ud83d\ude00"}'))
    assert (text.src, text.tgt) == (["a b"], ["c😀"])


def test_one_empty_column_throughout_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CorpusError, match=r"p\.tsv \(column 2\): every line is empty"):
        read_pairs(write(tmp_path / "p.tsv", "a\t\nb\t\n"))


def test_overlap_counts_held_out_sources_that_training_has_seen() -> None:
    train = ParallelText(["a", "b", "a"], ["1", "2", "3"])
    assert overlap(train, ParallelText(["a", "c", "b", "a"], ["9"] * 4)) == 3
    assert overlap(train, ParallelText(["d"], ["9"])) == 0


def test_shared_pairs_are_those_that_training_has_with_the_same_target() -> None:
    train = ParallelText(["a", "b", "a"], ["1", "2", "3"])
    assert shared_pairs(train, ParallelText(["a", "c", "b", "a"], ["3", "1", "1", "1"])) == [0, 3]
    assert shared_pairs(train, ParallelText(["d"], ["9"])) == []


def test_real_corpora_are_read_whole(real_data: Path) -> None:
    folder = real_data / "multi30k"
    train = read_parallel(folder / "train.en", folder / "train.de")
    test = read_parallel(folder / "test_2016_flickr.en", folder / "test_2016_flickr.de")
    assert (train.num_read, test.num_read) == (29_000, 1_000)
    assert overlap(train, test) < 10
    packed = real_data / "canada-laws-en-fr"
    assert len(read_parallel(packed / "valid.en.gz", packed / "valid.fr.gz")) == 3_000


def test_pairs_come_with_their_line_and_their_bytes(tmp_path: Path) -> None:
    src, tgt = (
        write(tmp_path / "a.en", b"\xef\xbb\xbfone\r\n\ntwo"),
        write(tmp_path / "a.de", "eins\nx\nzwei\n"),
    )
    assert list(PairFiles((src, tgt)).rows()) == [
        (1, "one", "eins", (b"\xef\xbb\xbfone\r\n", b"eins\n")),
        (2, "", "x", (b"\n", b"x\n")),
        (3, "two", "zwei", (b"two", b"zwei\n")),
    ]


def test_it_reads_what_the_readers_of_whole_files_read(tmp_path: Path) -> None:
    strange = "a\u2028b\x85c\x0cd\x0be\x1cf\u2029g\rh"
    src = write(tmp_path / "s", f"{strange}\nsecond\r\n\nlast")
    tgt = write(tmp_path / "t", "A\nB\nC\nD\n")
    whole = read_parallel(src, tgt)
    kept = [(row.src, row.tgt) for row in PairFiles((src, tgt)).rows() if row.src]
    assert kept == list(zip(whole.src, whole.tgt, strict=True))
    pairs = write(tmp_path / "p.jsonl", r'{"src": "a\nb", "tgt": "c"}' + "\n" + '{"src": "d", "tgt": "e"}\n')
    whole = read_pairs(pairs)
    assert [(row.src, row.tgt) for row in PairFiles((pairs,)).rows()] == list(
        zip(whole.src, whole.tgt, strict=True)
    )


def test_tsv_and_jsonl_have_one_raw_line(tmp_path: Path) -> None:
    tsv = write(tmp_path / "p.tsv.gz", gzip.compress(b"a\tA\n"))
    assert list(PairFiles((tsv,)).rows()) == [(1, "a", "A", (b"a\tA\n",))]
    line = json.dumps({"en": "a", "de": "A"}) + "\n"
    pairs = PairFiles((write(tmp_path / "p.jsonl", line),), "en", "de")
    assert list(pairs.rows()) == [(1, "a", "A", (line.encode(),))]


@pytest.mark.skipif(os.name == "nt", reason="has no named pipes")
def test_a_pipe_is_refused_and_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    good = write(tmp_path / "good", "x\n")
    with pytest.raises(CorpusError, match="pipe: is a pipe or device, and the text is read more than once"):
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
