import gzip
import json
from pathlib import Path

import pytest

from heedful.data.files import (
    ParallelText,
    check_parallel,
    overlap,
    read_lines,
    read_pairs,
    read_parallel,
    shared_pairs,
)
from heedful.errors import CorpusError


def write(path: Path, content: str | bytes) -> Path:
    path.write_bytes(content.encode("utf-8") if isinstance(content, str) else content)
    return path


def test_two_files_are_read_line_by_line(tmp_path: Path) -> None:
    text = read_parallel(write(tmp_path / "a.en", "one\ntwo\n"), write(tmp_path / "a.de", "eins\nzwei"))
    assert (text.src, text.tgt, text.num_empty, text.num_read, len(text)) == (
        ["one", "two"],
        ["eins", "zwei"],
        0,
        2,
        2,
    )


@pytest.mark.parametrize("name", ["text.gz", "text.txt"])
def test_gzip_is_recognised_by_its_content(tmp_path: Path, name: str) -> None:
    assert read_lines(write(tmp_path / name, gzip.compress("ü\nb\n".encode()))) == ["ü", "b"]


def test_only_a_line_feed_ends_a_line(tmp_path: Path) -> None:
    strange = "a\u2028b\x85c\x0cd\x0be\x1cf\u2029g\rh"
    assert read_lines(write(tmp_path / "x", f"{strange}\nsecond\n")) == [strange, "second"]


def test_carriage_returns_before_line_feeds_go_with_them(tmp_path: Path) -> None:
    assert read_lines(write(tmp_path / "x", "a\r\nb\r\n\r\nc")) == ["a", "b", "", "c"]


def test_empty_lines_are_kept_and_the_final_line_feed_starts_no_line(tmp_path: Path) -> None:
    assert read_lines(write(tmp_path / "x", "a\n\n\nb\n\n")) == ["a", "", "", "b", ""]


def test_a_byte_order_mark_is_dropped(tmp_path: Path) -> None:
    assert read_lines(write(tmp_path / "x", b"\xef\xbb\xbfa\n\xef\xbb\xbfb\n")) == ["a", "\ufeffb"]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "the file is empty"),
        (b"\xef\xbb\xbf", "the file is empty"),
        (b"ok\nab\xff\n", r"line 2, byte 2 \(byte 5 of the file\): 0xff is not valid UTF-8"),
        (b"ok\n\xc3", r"line 2, byte 0 \(byte 3 of the file\): 0xc3 is not valid UTF-8"),
        (b"\xef\xbb\xbfok\na\xff", r"line 2, byte 1 \(byte 7 of the file\): 0xff"),
        (b"a\nb\nx\0y\n", r"line 3, byte 1 \(byte 5 of the file\): NUL byte"),
        ("hé\n".encode("utf-16-le"), "line 1, byte 1 .*NUL byte"),
        (b"\x1f\x8b\x08nonsense", "gzip file is truncated or corrupt"),
        (gzip.compress(b"some text\n" * 500, mtime=0)[:-9], "gzip file is truncated or corrupt"),
        (gzip.compress(b"some text\n" * 500, mtime=0)[:-1] + b"\xaa", "gzip file is truncated or corrupt"),
    ],
)
def test_bad_content_is_named_with_its_place(tmp_path: Path, content: bytes, message: str) -> None:
    path = write(tmp_path / "bad.txt", content)
    with pytest.raises(CorpusError, match=message) as caught:
        read_lines(path)
    assert str(caught.value).startswith(f"{path}: ")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["text.gz", "text.GZ"])
def test_a_plain_file_named_gz_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(CorpusError, match=rf"{name}: not a gzip file, although its name ends in \.gz"):
        read_lines(write(tmp_path / name, "plain\n"))


def test_a_missing_file_and_a_directory_are_named(tmp_path: Path) -> None:
    with pytest.raises(CorpusError, match=r"nowhere\.de: no such file"):
        read_lines(tmp_path / "nowhere.de")
    with pytest.raises(CorpusError, match="is a directory"):
        read_lines(tmp_path)


@pytest.mark.parametrize("swap", [False, True])
def test_unequal_sides_name_both_and_the_first_unmatched_line(tmp_path: Path, swap: bool) -> None:
    short = write(tmp_path / "train.de", "x\n" * 1234)
    long = write(tmp_path / "train.en", "x\n" * 1236)
    with pytest.raises(CorpusError) as caught:
        read_parallel(*((long, short) if swap else (short, long)))
    assert str(caught.value) == (
        f"{short}: 1,234 lines but {long} has 1,236; "
        "source and target must be parallel (first unmatched line: 1,235)"
    )


def test_equal_sides_pass_the_check() -> None:
    check_parallel("a", ["x"], "b", ["y"])


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
    with pytest.raises(CorpusError, match=r"pairs\.tsv: line 2: \d tab-separated columns"):
        read_pairs(write(tmp_path / "pairs.tsv", f"a\tA\n{line}\nc\tC\n"))


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
        ("", "line 2: not JSON"),
        ("[" * 100_000, "line 2: not JSON"),
        ('["a", "b"]', "line 2: not a JSON object"),
        ('{"src": "a", "target": "b"}', "line 2: no key 'tgt' .*'target'"),
        ('{"src": "a", "tgt": 3}', "line 2: the value of 'tgt' is not a string"),
        ('{"src": "a", "tgt": null}', "line 2: the value of 'tgt' is not a string"),
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
