import gzip
import io
from pathlib import Path

import pytest

from heedful.cli import streams
from heedful.cli.streams import argument_text, bar, suggest_auto_precision
from heedful.data.streams import Lines, open_input, write_line
from heedful.errors import CorpusError, InputError


def read(content: bytes) -> tuple[list[str], Lines]:
    lines = Lines(io.BytesIO(content), "stdin")
    return list(lines), lines


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"", []),
        (b"a\n\nb\n", ["a", "", "b"]),
        (b"a\nb", ["a", "b"]),
        (b"a\r\nb\r\n", ["a", "b"]),
        ("a\u2028b\x0bc\x85d\n".encode(), ["a\u2028b\x0bc\x85d"]),
        (b"\xef\xbb\xbfa\n", ["a"]),
    ],
)
def test_only_a_newline_ends_a_line(content: bytes, expected: list[str]) -> None:
    found, lines = read(content)
    assert found == expected
    lines.raise_if_bad()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"a\nb\xff\nc\n", r"stdin: line 2, byte 1: 0xff is not valid UTF-8"),
        (b"a\nbc\0\n", r"stdin: line 2, byte 2: NUL byte"),
        (gzip.compress(b"a\n", mtime=0), r"stdin: is gzip; decompress it, as in zcat FILE \| heedful \.\.\."),
    ],
)
def test_lines_before_a_bad_one_are_given_first(content: bytes, message: str) -> None:
    found, lines = read(content)
    assert found == ["a"] * content.startswith(b"a")
    with pytest.raises(CorpusError, match=message):
        lines.raise_if_bad()


def test_compressed_input_is_read_and_a_missing_one_named(tmp_path: Path) -> None:
    (tmp_path / "a.gz").write_bytes(gzip.compress(b"a\nb\n"))
    with open_input(tmp_path / "a.gz") as (stream, name):
        assert list(Lines(stream, name)) == ["a", "b"]
    with (
        pytest.raises(CorpusError, match=r"nothing\.txt: cannot be read"),
        open_input(tmp_path / "nothing.txt"),
    ):
        pass


def test_truncated_compressed_input_is_named_after_the_lines_before(tmp_path: Path) -> None:
    (tmp_path / "a.gz").write_bytes(gzip.compress(b"a\nb\n" * 10_000)[:-20])
    with open_input(tmp_path / "a.gz") as (stream, name):
        lines = Lines(stream, name)
        assert next(iter(lines)) == "a"
        for _ in lines:
            pass
        with pytest.raises(CorpusError, match=r"a.gz: .*truncated or corrupt"):
            lines.raise_if_bad()


def test_a_line_break_inside_an_output_cannot_shift_the_lines() -> None:
    stream = io.BytesIO()
    write_line(stream, "a\nb")
    assert stream.getvalue() == b"a b\n"


def test_an_argument_that_is_no_text_is_refused() -> None:
    assert argument_text("Käse", "TEXT") == "Käse"
    with pytest.raises(InputError, match="TEXT: not UTF-8"):
        argument_text("\udcff", "TEXT")


@pytest.mark.parametrize(
    ("precision", "seconds", "is_said"),
    [("float32", 11.0, True), ("float32", 9.0, False), ("int8", 99.0, False)],
)
def test_a_long_translation_in_float32_is_told_of_what_may_be_faster(
    capsys: pytest.CaptureFixture[str], precision: str, seconds: float, is_said: bool
) -> None:
    suggest_auto_precision(precision, seconds)
    written = capsys.readouterr()
    assert not written.out
    assert ("--precision auto" in written.err) == is_said


@pytest.mark.parametrize(("between", "lines"), [(0.0, "40% checking\n90% checking\n"), (3600.0, "")])
def test_progress_off_a_terminal_is_a_line_now_and_then(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, between: float, lines: str
) -> None:
    monkeypatch.setattr(streams, "_BETWEEN_SHARES", between)
    with bar() as show:
        show("checking", 0.4)
        show("checking", 0.9)
    assert capsys.readouterr() == ("", lines)
