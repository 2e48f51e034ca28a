"""Stream parallel text from disk, in constant memory."""

import gzip
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence, Sized
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from io import BufferedReader
from itertools import chain, zip_longest
from pathlib import Path
from typing import BinaryIO, Literal, NamedTuple, cast

from heedful.data.json_pairs import listed_objects, parse_json
from heedful.errors import CorpusError

BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_GZIP_MAGIC = b"\x1f\x8b"
_EMPTY = "the file is empty; it must have at least one line"
_DAMAGED_GZIP = "the gzip file is truncated or corrupt; fetch or compress it again"
_CHUNK = 2**20
_MAX_RATIO = 200  # of text to its gzip; that of natural language is 3
_TRUSTED_SIZE = 2**28  # bytes
_MAX_LINE = 2**24  # bytes: a compressed file of zeros would fill the memory

Chunk = tuple[list[str], list[str]]  # sources and targets of some pairs, in order
IsFaulty = Callable[[str, str], bool]  # of source and target
Report = Callable[[float], None]  # called now and then with the fraction that is done, 0 to 1


@dataclass(frozen=True)
class ParallelText:
    """Sentence pairs: `src[i]` and `tgt[i]` are translations of each other, and neither is empty.

    Attributes:
        src: source sentences, in a list or in a file (`heedful.data.corpora.Sentences`).
        tgt: target sentences, of the same number.
        sources: the names of the files, for messages: two, or one that holds source and target.
        num_empty: pairs left out because source or target was empty.
        num_faulty: pairs left out by filters.
    """

    src: Sequence[str]
    tgt: Sequence[str]
    sources: tuple[str, ...] = ()
    num_empty: int = 0
    num_faulty: int = 0

    def __len__(self) -> int:
        return len(self.src)

    @property
    def num_read(self) -> int:
        """The number of pairs in the files, those left out included."""
        return len(self.src) + self.num_empty + self.num_faulty

    @property
    def name(self) -> str:
        """The names of the files, for messages."""
        return " and ".join(self.sources) or "the parallel text"


def read_parallel(src_path: str | Path, tgt_path: str | Path) -> ParallelText:
    """Read two files of one sentence a line, plain or gzipped; pairs with an empty text are left out.

    Raises:
        CorpusError: a file that is missing, empty, not UTF-8, or holds a NUL byte or only empty lines;
            unequal numbers of lines; no pair with text in source and target.
    """
    return _in_memory(PairFiles((Path(src_path), Path(tgt_path))))


def read_pairs(path: str | Path, *, src_key: str = "src", tgt_key: str = "tgt") -> ParallelText:
    """Read one file of pairs, plain or gzipped: `.tsv` (source, tab, target) or `.jsonl` (an object a line).

    Args:
        path: the file; `.jsonl` and `.json` (also `.jsonl.gz`) are read as JSON, every other name as TSV.
        src_key: the key of the source sentence in a JSON object, or in its object `translation`; or a path of
            keys, such as `translation.en`. A text of null is empty.
        tgt_key: the key of the target sentence.

    Raises:
        CorpusError: as `read_parallel`; a line without exactly two columns, without the keys, or not JSON.
    """
    return _in_memory(PairFiles((Path(path),), src_key, tgt_key))


def _in_memory(files: "PairFiles") -> ParallelText:
    pairs = FilledPairs(files.chunks(), files)
    src, tgt = [], []
    for chunk in pairs:
        src += chunk[0]
        tgt += chunk[1]
    return ParallelText(src, tgt, tuple(map(str, files.paths)), pairs.num_empty)


def read_lines(path: str | Path) -> list[str]:
    r"""Return the lines of a UTF-8 file, plain or gzipped, including empty ones.

    Only \n or \r\n ends a line: other Unicode line separators may be inside a sentence, and splitting there
    would misalign source and target. A byte order mark is dropped.

    Raises:
        CorpusError: a file that is missing, empty, truncated, not UTF-8, or holds a NUL byte or a line of
            over 16 MiB.
    """
    return [line for block in _line_blocks(Path(path)) for line in block]


def _line_blocks(path: Path, *, report: Report | None = None) -> Iterator[list[str]]:
    """Yield the lines of a file in lists of about a MiB; raises as `read_lines`, at the faulty block."""
    with _open_text(path) as (plain, packed), _reading(str(path)):
        size = path.stat().st_size if path.is_file() else 0
        limit = max(_TRUSTED_SIZE, _MAX_RATIO * size) if packed and size else 0
        offset, number, rest = 0, 1, b""
        with gzip.open(plain) if packed else plain as stream:
            while chunk := stream.read(_CHUNK):
                content, newline, rest = (rest + chunk).rpartition(b"\n")
                if len(rest) > _MAX_LINE:
                    raise CorpusError(_too_long(str(path), number + content.count(b"\n") + len(newline)))
                if limit and offset + len(content) > limit:
                    raise CorpusError(
                        f"{path}: decompresses to more than {_MAX_RATIO} times its size, which no text does; "
                        "give the plain file if this is intended"
                    )
                if newline:
                    lines = _split(content, str(path), number, offset)
                    yield lines
                    offset, number = offset + len(content) + 1, number + len(lines)
                if report and size:
                    report(min(1.0, plain.tell() / size))
        if rest.removeprefix(BYTE_ORDER_MARK) if offset == 0 else rest:
            yield _split(rest, str(path), number, offset)
        elif offset == 0:
            raise CorpusError(f"{path}: {_EMPTY}")


def _split(content: bytes, name: str, number: int, offset: int) -> list[str]:
    """Return lines as text, without their line breaks; the last one has none."""
    if offset == 0 and content.startswith(BYTE_ORDER_MARK):
        content, offset = content[len(BYTE_ORDER_MARK) :], len(BYTE_ORDER_MARK)
    text = decode(content, name, line=number, offset=offset)
    lines = text.split("\n")
    return [line.removesuffix("\r") for line in lines] if "\r" in text else lines


def _too_long(name: str, number: int) -> str:
    return f"{name}: line {number:,}: over {_MAX_LINE / 2**20:,.0f} MiB; give one sentence a line"


class FilledPairs:
    """Iterates over the pairs that have both texts; `num_empty` counts the others.

    If there are filters, pairs with a fault are left out too, and counted by `num_faulty`.

    Raises:
        CorpusError: all sources, all targets, or one of each pair are empty; at the end.
    """

    def __init__(
        self, chunks: Iterable[Chunk], files: "PairFiles", *, is_faulty: IsFaulty | None = None
    ) -> None:
        self.num_empty = self.num_faulty = 0
        self._is_faulty = is_faulty
        self._chunks = chunks
        self._files = files

    def __iter__(self) -> Iterator[Chunk]:
        has_src = has_tgt = has_pair = False
        for src, tgt in self._chunks:
            filled = [i for i in range(len(src)) if src[i].strip() and tgt[i].strip()]
            has_src = has_src or any(map(str.strip, src))
            has_tgt = has_tgt or any(map(str.strip, tgt))
            self.num_empty += len(src) - len(filled)
            has_pair = has_pair or bool(filled)
            if self._is_faulty:
                good = [i for i in filled if not self._is_faulty(src[i], tgt[i])]
                self.num_faulty += len(filled) - len(good)
                filled = good
            if len(filled) == len(src):
                yield src, tgt
            elif filled:
                yield [src[i] for i in filled], [tgt[i] for i in filled]
        for name, has_text in zip(self._files.labels, (has_src, has_tgt), strict=True):
            if not has_text:
                raise CorpusError(f"{name}: every line is empty; give a file with text")
        if not has_pair:
            raise CorpusError(
                f"{self._files.name}: no line has both source and target text; check that they are parallel"
            )


def check_parallel(src_name: str, src: Sized, tgt_name: str, tgt: Sized) -> None:
    """Check that source and target have as many lines.

    Raises:
        CorpusError: they do not; the message names the first unmatched line.
    """
    if len(src) == len(tgt):
        return
    (short_name, short), (long_name, long) = sorted(
        ((src_name, len(src)), (tgt_name, len(tgt))), key=lambda text: text[1]
    )
    raise CorpusError(
        f"{short_name}: {short:,} lines but {long_name} has {long:,}; "
        f"source and target must be parallel (first unmatched line: {short + 1:,})"
    )


def parallel_lines(
    src: Iterable[str], tgt: Iterable[str], *, src_name: str, tgt_name: str
) -> Iterator[tuple[str, str]]:
    """Yield the pairs of two streams of lines, as they are read.

    Raises:
        CorpusError: source or target ends before the other, or both are empty; earlier pairs came out.
    """
    number = 0
    for number, (source, target) in enumerate(zip_longest(src, tgt), start=1):
        if source is None or target is None:
            short, long = (src_name, tgt_name)[:: 1 if source is None else -1]
            raise CorpusError(
                f"{short}: {number - 1:,} lines but {long} has more; "
                f"source and target must be parallel (first unmatched line: {number:,})"
            )
        yield source, target
    if number == 0:
        raise CorpusError(f"{src_name} and {tgt_name}: no lines; give one sentence a line")


def overlap(train: ParallelText, held_out: ParallelText) -> int:
    """Return how many held-out pairs have a source sentence that is in the training text."""
    seen = set(held_out.src).intersection(train.src)
    return sum(sentence in seen for sentence in held_out.src)


def shared_pairs(train: ParallelText, held_out: ParallelText) -> list[int]:
    """Return the indices of held-out pairs whose source and target are a pair of the training text."""
    pairs = set(zip(held_out.src, held_out.tgt, strict=True))
    seen = pairs.intersection(zip(train.src, train.tgt, strict=True))
    return [i for i, pair in enumerate(zip(held_out.src, held_out.tgt, strict=True)) if pair in seen]


@contextmanager
def _open_text(path: Path) -> Iterator[tuple[BufferedReader, bool]]:
    """Open a file of text; gives the file, from its first byte, and whether it is gzip.

    Raises:
        CorpusError: it cannot be opened, or is named .gz and is not gzip; an empty one passes.
    """
    try:
        file = path.open("rb")
    except FileNotFoundError as error:
        problem = (
            "stdin is not read here; give a file" if str(path) == "-" else "no such file; check the path"
        )
        raise CorpusError(f"{path}: {problem}") from error
    except IsADirectoryError as error:
        raise CorpusError(f"{path}: is a directory; give a file") from error
    except OSError as error:
        raise CorpusError(f"{path}: cannot be read ({error.strerror}); check the path") from error
    with file:
        start = file.peek(len(_GZIP_MAGIC))
        packed = start.startswith(_GZIP_MAGIC)
        if start and path.suffix.lower() == ".gz" and not packed:
            raise CorpusError(
                f"{path}: not a gzip file, although its name ends in .gz; rename or compress it"
            )
        yield file, packed


@contextmanager
def _reading(name: str) -> Iterator[None]:
    """Say which file could not be read to its end."""
    try:
        yield
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise CorpusError(f"{name}: {_DAMAGED_GZIP}") from error
    except OSError as error:
        raise CorpusError(f"{name}: cannot be read ({error.strerror}); check the path") from error


def decode(content: bytes, name: str, *, line: int = 1, offset: int | None = 0) -> str:
    """Return lines as text; their line breaks stay.

    Args:
        content: one line or several.
        name: of the file, for messages.
        line: the number of the first line, from 1.
        offset: bytes of the file before the content; None: it is of a stream.

    Raises:
        CorpusError: a NUL byte, or bytes that are not UTF-8; it says where.
    """

    def where(at: int) -> str:
        """Describe a byte: the line, counted from 1, and bytes, counted from 0, in the line and the file."""
        in_line = at - (content.rfind(b"\n", 0, at) + 1)
        of_file = "" if offset is None else f" (byte {offset + at:,} of the file)"
        return f"{name}: line {line + content.count(newline, 0, at):,}, byte {in_line:,}{of_file}"

    newline, of_stream = b"\n", offset is None
    nul = content.find(0)
    if nul >= 0:
        is_no_text = "this is not plain text" if of_stream else "this is not a plain text file (UTF-16?)"
        raise CorpusError(f"{where(nul)}: NUL byte; {is_no_text}, convert it to UTF-8")
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        byte = f"0x{content[error.start]:02x}"
        raise CorpusError(
            f"{where(error.start)}: {byte} is not valid UTF-8; "
            f"convert {'it' if of_stream else 'the file'} to UTF-8"
        ) from error


def parse_tsv(name: str, number: int, line: str) -> tuple[str, str]:
    """Return source and target of a line of a TSV file.

    Raises:
        CorpusError: it does not have exactly two columns.
    """
    columns = line.split("\t")
    if len(columns) != 2:
        raise CorpusError(
            f"{name}: line {number:,}: {len(columns)} tab-separated columns; "
            "each line needs two, source and target"
        )
    return columns[0], columns[1]


_JSON_SUFFIXES = (".jsonl", ".json")
_PAIRS_SUFFIXES = (".tsv", *_JSON_SUFFIXES)
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

    A `.json` file has JSON lines, or a list of objects, which is held in memory. Blank lines of JSON are
    ignored.

    Attributes:
        paths: source and target, or the one file of pairs.
        src_key: the key of the source sentence in a JSON object: see `read_pairs`.
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
    def labels(self) -> tuple[str, str]:
        """The names of source and target, for messages."""
        if len(self.paths) == 2:
            return str(self.paths[0]), str(self.paths[1])
        kind, names = ("column", (1, 2)) if self.kind == "tsv" else ("key", (self.src_key, self.tgt_key))
        return f"{self.name} ({kind} {names[0]!r})", f"{self.name} ({kind} {names[1]!r})"

    @cached_property
    def kind(self) -> Literal["lines", "tsv", "jsonl", "table"]:
        """The format, by the names: two files of lines, or one of pairs, or a table (Parquet, `datasets`)."""
        if len(self.paths) == 2:
            return "lines"
        if self.paths[0].suffix == ".parquet" or self.paths[0].is_dir():
            return "table"
        return "jsonl" if plain_name(self.paths[0]).suffix in _JSON_SUFFIXES else "tsv"

    @property
    def suffixes(self) -> tuple[str, ...]:
        """The file-name suffixes of source and target, without `.gz`: `(".en", ".de")`; always different."""
        suffixes = tuple(plain_name(path).suffix for path in self.paths)
        ambiguous = len(suffixes) == 2 and ("" in suffixes or suffixes[0] == suffixes[1])
        return (".src", ".tgt") if ambiguous else suffixes

    def chunks(self, report: Report | None = None) -> Iterator[Chunk]:
        """Read all pairs in order, empty ones included, in lists of a few thousand.

        Args:
            report: called now and then with the fraction of the files that was read, 0 to 1.

        Raises:
            CorpusError: as `read_parallel` and `read_pairs`, when the faulty lines are reached.
        """
        if len(self.paths) == 2:
            yield from self._aligned(report)
            return
        number = 1
        listed = self._listed()
        for lines in _line_blocks(self.paths[0], report=report) if listed is None else [listed]:
            pairs = [
                self._parse(i, line) for i, line in enumerate(lines, start=number) if self._is_pair(line)
            ]
            number += len(lines)
            yield [pair[0] for pair in pairs], [pair[1] for pair in pairs]

    def _aligned(self, report: Report | None) -> Iterator[Chunk]:
        """Read two files of lines side by side."""
        blocks = _line_blocks(self.paths[0], report=report), _line_blocks(self.paths[1])
        number, src, tgt = 0, next(blocks[0], []), next(blocks[1], [])
        while src and tgt:
            rows = min(len(src), len(tgt))
            yield src[:rows], tgt[:rows]
            number, src, tgt = number + rows, src[rows:], tgt[rows:]
            src, tgt = src or next(blocks[0], []), tgt or next(blocks[1], [])
        rests = (
            number + len(read) + sum(map(len, more)) for read, more in zip((src, tgt), blocks, strict=True)
        )
        lines = tuple(map(range, rests))
        check_parallel(str(self.paths[0]), lines[0], str(self.paths[1]), lines[1])

    def rows(self, report: Report | None = None) -> Iterator[Row]:
        """Read all pairs in order, empty ones included.

        Args:
            report: called now and then with the fraction of the files that was read, 0 to 1.

        Raises:
            CorpusError: as `read_parallel` and `read_pairs`, when the faulty line is reached.
        """
        return self._rows_of_pairs(report) if len(self.paths) == 1 else self._rows_of_two(report)

    def _rows_of_two(self, report: Report | None) -> Iterator[Row]:
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

    def _listed(self) -> list[str] | None:
        """Return the objects of a JSON list, each as a line; None where lines are to be read.

        Raises:
            CorpusError: it is not JSON, or has no objects.
        """
        path = self.paths[0]
        if plain_name(path).suffix != ".json":
            return None
        blocks = _line_blocks(path)
        lines = next(blocks)
        if not "".join(lines).lstrip().startswith("["):
            return None
        return listed_objects(str(path), "\n".join(chain(lines, *blocks)))

    def _is_pair(self, line: str) -> bool:
        """Return whether a line of the one file has a pair: any of TSV, those of JSON that are not blank."""
        return self.kind == "tsv" or bool(line.strip())

    def _parse(self, number: int, line: str) -> tuple[str, str]:
        """Return source and target of a line of the one file."""
        name = str(self.paths[0])
        if self.kind == "jsonl":
            return parse_json(name, number, line, (self.src_key, self.tgt_key))
        return parse_tsv(name, number, line)

    def _rows_of_pairs(self, report: Report | None) -> Iterator[Row]:
        if self.kind == "table":
            raise CorpusError(
                f"{self.name}: is a table, not lines of text; write it as .tsv or .jsonl for this"
            )
        if (listed := self._listed()) is not None:
            for number, line in enumerate(listed, start=1):
                raw = f"{line}\n".encode("utf-8", "surrogatepass")
                yield Row(number, *self._parse(number, line), (raw,))
            return
        with _Lines.open(self.paths[0]) as lines:
            for number, (raw, line) in enumerate(lines, start=1):
                if self._is_pair(line):
                    yield Row(number, *self._parse(number, line), (raw,))
                if report and number % _ROWS_BETWEEN_REPORTS == 0:
                    report(lines.share)


def holds_pairs(path: Path) -> bool:
    """Return whether a file holds pairs, by its name: `.tsv`, `.jsonl` or `.json`, gzipped or not."""
    return plain_name(path).suffix in _PAIRS_SUFFIXES


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
        with _open_text(path) as (plain, packed):
            size = path.stat().st_size
            if plain.peek(len(BYTE_ORDER_MARK)) in (b"", BYTE_ORDER_MARK):
                raise CorpusError(f"{path}: {_EMPTY}")
            with gzip.open(plain) if packed else plain as stream:
                yield cls(str(path), cast(BinaryIO, stream), plain, size)

    @property
    def share(self) -> float:
        """The fraction of the file that was read, 0 to 1."""
        return min(1.0, self._plain.tell() / self._size)

    def __iter__(self) -> Iterator[tuple[bytes, str]]:
        offset = 0
        with _reading(self._name):
            for number, raw in enumerate(iter(lambda: self._stream.readline(_MAX_LINE + 1), b""), start=1):
                if len(raw) > _MAX_LINE:
                    raise CorpusError(_too_long(self._name, number))
                start = len(BYTE_ORDER_MARK) if number == 1 and raw.startswith(BYTE_ORDER_MARK) else 0
                text = decode(raw[start:], self._name, line=number, offset=offset + start)
                yield raw, text.removesuffix("\n").removesuffix("\r")
                offset += len(raw)


def plain_name(path: Path) -> Path:
    """Return a path without `.gz` or `.GZ`."""
    return path.with_suffix("") if path.suffix.lower() == ".gz" else path
