"""Stream parallel text from disk, in constant memory."""

import gzip
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import BinaryIO, NamedTuple, cast

from heedful.data.corpus import check_is_gzip, check_parallel, parse_json, parse_tsv
from heedful.errors import CorpusError

_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_GZIP_MAGIC = b"\x1f\x8b"
_PAIRS_SUFFIXES = (".tsv", ".jsonl")
_MAX_LINE = 2**24  # bytes: a compressed file of zeros would fill the memory
_ROWS_BETWEEN_REPORTS = 1000


class Row(NamedTuple):
    """One pair as in the files.

    Attributes:
        number: of the line, from 1.
        src: the source sentence; it may be empty.
        tgt: the target sentence; it may be empty.
        raw: the line of each file in bytes, with its line break.
    """

    number: int
    src: str
    tgt: str
    raw: tuple[bytes, ...]


@dataclass(frozen=True)
class PairFiles:
    """Two files of one sentence a line, or one `.tsv` or `.jsonl` file of pairs; plain or gzipped.

    Attributes:
        paths: source and target, or the one file of pairs.
        src_key: the key of the source sentence in a JSON object.
        tgt_key: the key of the target sentence.
    """

    paths: tuple[Path, ...]
    src_key: str = "src"
    tgt_key: str = "tgt"

    @property
    def name(self) -> str:
        """The names of the files, for messages."""
        return " and ".join(map(str, self.paths))

    @property
    def suffixes(self) -> tuple[str, ...]:
        """The file-name suffixes of source and target, without `.gz`: `(".en", ".de")`; always different."""
        suffixes = tuple(_plain(path).suffix for path in self.paths)
        ambiguous = len(suffixes) == 2 and ("" in suffixes or suffixes[0] == suffixes[1])
        return (".src", ".tgt") if ambiguous else suffixes

    def rows(self, report: Callable[[float], None] | None = None) -> Iterator[Row]:
        """Read all pairs in order, empty ones included.

        Args:
            report: called now and then with the fraction of the files that was read, 0 to 1.

        Raises:
            CorpusError: as `read_parallel` and `read_pairs`, when the faulty line is reached.
        """
        return self._rows_of_pairs(report) if len(self.paths) == 1 else self._rows_of_two(report)

    def _rows_of_two(self, report: Callable[[float], None] | None) -> Iterator[Row]:
        src_name, tgt_name = map(str, self.paths)
        with _Lines.open(self.paths[0]) as src_lines, _Lines.open(self.paths[1]) as tgt_lines:
            number = 0
            for number, (src, tgt) in enumerate(zip_longest(src_lines, tgt_lines), start=1):
                if src is None or tgt is None:
                    lines = [number - 1 + (src is not None), number - 1 + (tgt is not None)]
                    lines[0] += sum(1 for _ in src_lines)
                    lines[1] += sum(1 for _ in tgt_lines)
                    check_parallel(src_name, range(lines[0]), tgt_name, range(lines[1]))
                    return
                yield Row(number, src[1], tgt[1], (src[0], tgt[0]))
                if report and number % _ROWS_BETWEEN_REPORTS == 0:
                    report(src_lines.share)

    def _rows_of_pairs(self, report: Callable[[float], None] | None) -> Iterator[Row]:
        name, keys = str(self.paths[0]), (self.src_key, self.tgt_key)
        is_json = _plain(self.paths[0]).suffix == ".jsonl"
        with _Lines.open(self.paths[0]) as lines:
            for number, (raw, line) in enumerate(lines, start=1):
                src, tgt = parse_json(name, number, line, keys) if is_json else parse_tsv(name, number, line)
                yield Row(number, src, tgt, (raw,))
                if report and number % _ROWS_BETWEEN_REPORTS == 0:
                    report(lines.share)


def holds_pairs(path: Path) -> bool:
    """Return whether a file holds pairs, by its name: `.tsv` or `.jsonl`, gzipped or not."""
    return _plain(path).suffix in _PAIRS_SUFFIXES


class _Lines:
    """The lines of one file: the bytes, and the text without line break and byte order mark."""

    def __init__(self, name: str, stream: BinaryIO, plain: BinaryIO, size: int) -> None:
        self._name, self._stream, self._plain, self._size = name, stream, plain, size

    @classmethod
    @contextmanager
    def open(cls, path: Path) -> Iterator["_Lines"]:
        if path.exists() and not (path.is_file() or path.is_dir()):  # opening a FIFO waits for its writer
            raise CorpusError(
                f"{path}: is a pipe or device, and the text is read more than once; write it to a file first"
            )
        try:
            plain = path.open("rb")
        except FileNotFoundError as error:
            raise CorpusError(f"{path}: no such file; check the path") from error
        except IsADirectoryError as error:
            raise CorpusError(f"{path}: is a directory; give a file") from error
        except OSError as error:
            raise CorpusError(f"{path}: cannot be read ({error.strerror}); check the path") from error
        with plain:
            start = plain.peek(len(_BYTE_ORDER_MARK))[: len(_BYTE_ORDER_MARK)]
            size = path.stat().st_size
            if start in (b"", _BYTE_ORDER_MARK) and size <= len(_BYTE_ORDER_MARK):
                raise CorpusError(f"{path}: the file is empty; give a file with one sentence a line")
            packed = path.suffix == ".gz" or start.startswith(_GZIP_MAGIC)
            if packed:
                check_is_gzip(path, start)
            with gzip.open(plain) if packed else plain as stream:
                yield cls(str(path), cast(BinaryIO, stream), plain, size)

    @property
    def share(self) -> float:
        """The fraction of the file that was read, 0 to 1."""
        return min(1.0, self._plain.tell() / self._size)

    def __iter__(self) -> Iterator[tuple[bytes, str]]:
        offset = 0
        try:
            for number, raw in enumerate(iter(lambda: self._stream.readline(_MAX_LINE + 1), b""), start=1):
                if len(raw) > _MAX_LINE:
                    size = f"{_MAX_LINE / 2**20:,.0f} MiB"
                    raise CorpusError(f"{self._name}: line {number:,}: over {size}; give one sentence a line")
                start = len(_BYTE_ORDER_MARK) if number == 1 and raw.startswith(_BYTE_ORDER_MARK) else 0
                yield raw, self._decode(raw[start:], number, offset + start)
                offset += len(raw)
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            raise CorpusError(
                f"{self._name}: the gzip file is truncated or corrupt; fetch or compress it again"
            ) from error

    def _decode(self, raw: bytes, number: int, offset: int) -> str:
        where = f"{self._name}: line {number:,}, byte"
        if b"\0" in raw:
            at = raw.index(0)
            raise CorpusError(
                f"{where} {at:,} (byte {offset + at:,} of the file): NUL byte; this is not a plain text file "
                "(UTF-16?), convert it to UTF-8"
            )
        try:
            text = raw.decode("utf-8")
        except UnicodeDecodeError as error:
            raise CorpusError(
                f"{where} {error.start:,} (byte {offset + error.start:,} of the file): "
                f"0x{raw[error.start]:02x} is not valid UTF-8; convert the file to UTF-8"
            ) from error
        return text.removesuffix("\n").removesuffix("\r")


def _plain(path: Path) -> Path:
    return path.with_suffix("") if path.suffix == ".gz" else path
