import gzip
import json
import os
from pathlib import Path

import pytest

from heedful.data.files import PairFiles, holds_pairs, read_pairs, read_parallel
from heedful.errors import CorpusError


def write(path: Path, content: str | bytes) -> Path:
    path.write_bytes(content.encode("utf-8") if isinstance(content, str) else content)
    return path


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


@pytest.mark.parametrize("name", ["text.gz", "text.txt"])
def test_gzip_is_recognised_by_its_content(tmp_path: Path, name: str) -> None:
    packed = write(tmp_path / name, gzip.compress("ü\nb\n".encode()))
    plain = write(tmp_path / "plain", "x\ny\n")
    assert [(row.src, row.tgt) for row in PairFiles((packed, plain)).rows()] == [("ü", "x"), ("b", "y")]


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


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "the file is empty"),
        (b"\xef\xbb\xbf", "the file is empty"),
        (b"ok\nab\xff\n", r"line 2, byte 2 \(byte 5 of the file\): 0xff is not valid UTF-8"),
        (b"\xef\xbb\xbfok\na\xff", r"line 2, byte 1 \(byte 7 of the file\): 0xff"),
        (b"a\nb\nx\0y\n", r"line 3, byte 1 \(byte 5 of the file\): NUL byte"),
        (gzip.compress(b"some text\n" * 500, mtime=0)[:-9], "gzip file is truncated or corrupt"),
    ],
)
def test_bad_content_is_named_with_its_place(tmp_path: Path, content: bytes, message: str) -> None:
    bad, good = write(tmp_path / "bad", content), write(tmp_path / "good", "x\n" * 1000)
    with pytest.raises(CorpusError, match=message) as caught:
        list(PairFiles((bad, good)).rows())
    assert str(caught.value).startswith(f"{bad}: ")


@pytest.mark.parametrize("swap", [False, True])
def test_unequal_sides_name_both_and_the_first_unmatched_line(tmp_path: Path, swap: bool) -> None:
    short, long = write(tmp_path / "s.de", "x\n" * 1234), write(tmp_path / "l.en", "x\n" * 1236)
    with pytest.raises(CorpusError) as caught:
        list(PairFiles((long, short) if swap else (short, long)).rows())
    assert str(caught.value) == (
        f"{short}: 1,234 lines but {long} has 1,236; "
        "source and target must be parallel (first unmatched line: 1,235)"
    )


def test_missing_files_directories_and_bad_lines_are_named(tmp_path: Path) -> None:
    good = write(tmp_path / "good", "x\n")
    for other, message in ((tmp_path / "none", "no such file"), (tmp_path, "is a directory")):
        with pytest.raises(CorpusError, match=message):
            list(PairFiles((good, other)).rows())
    with pytest.raises(CorpusError, match=r"p\.tsv: line 2: 1 tab-separated columns"):
        list(PairFiles((write(tmp_path / "p.tsv", "a\tb\nc\n"),)).rows())


def test_a_plain_file_named_gz_is_refused(tmp_path: Path) -> None:
    plain = write(tmp_path / "a.gz", "plain\n")
    with pytest.raises(CorpusError, match=r"a\.gz: not a gzip file, although its name ends in \.gz"):
        list(PairFiles((plain, plain)).rows())


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
    ],
)
def test_suffixes_tell_the_sides_apart(names: tuple[str, ...], suffixes: tuple[str, ...]) -> None:
    assert PairFiles(tuple(map(Path, names))).suffixes == suffixes


def test_files_of_pairs_are_known_by_name() -> None:
    assert all(holds_pairs(Path(name)) for name in ("a.tsv", "a.jsonl", "a.b.tsv.gz", "a.jsonl.gz"))
    assert not any(holds_pairs(Path(name)) for name in ("run", "a.gz", "a.en", "tsv"))
