"""Stream parallel text from disk, in constant memory."""

import gzip
import json
import math
import re
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence, Sized
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property, partial
from importlib import import_module
from io import BufferedReader, BytesIO
from itertools import chain, islice, zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Literal, NamedTuple, TypeVar, cast

from heedful.data.json_pairs import listed_objects, pair_in, pair_of
from heedful.data.markup import refuse_markup
from heedful.errors import CorpusError, InputError, refuse_if
from heedful.settings.parsing import shown

if TYPE_CHECKING:
    from heedful.data.tmx import Unit

BYTE_ORDER_MARK = b"\xef\xbb\xbf"
GZIP = b"\x1f\x8b"  # the first bytes of its files
DAMAGES = (EOFError, zlib.error, gzip.BadGzipFile)  # raised for a damaged gzip file
DAMAGED = "the gzip file is truncated or corrupt; fetch or compress it again"
_EMPTY = "the file is empty; it must have at least one line"
_CHUNK = 2**20
_MAX_RATIO = 200  # of text to its gzip; natural language has 3
_TRUSTED_SIZE = 2**28  # bytes
_MAX_LINE = 2**24  # bytes: a compressed file of zeros would fill the memory
_JSON_SUFFIXES = (".jsonl", ".json")
# Files of units, each a text and its translation: the module and the function that read them.
_UNIT_READERS = {
    ".tmx": ("tmx", "units_of_tmx"),
    **dict.fromkeys((".xlf", ".xliff"), ("xliff", "units_of_xliff")),
    ".po": ("catalogues", "units_of_po"),
    ".memory": ("memory_files", "units_of_memory"),
}
_PAIRS_SUFFIXES = (".tsv", *_UNIT_READERS, *_JSON_SUFFIXES)
_STRAY_SPACE = re.compile("[ \t\r\n]+")  # white space of XML
_LANGUAGES_NEEDED = (
    "has several languages: {}; name two of them with --src-key and --tgt-key (data.src_key, data.tgt_key)"
)

Chunk = tuple[list[str], list[str]]  # sources and targets of some pairs, in order
IsFaulty = Callable[[str, str], bool]  # of source and target
WantedLanguages = tuple[str | None, str | None]  # tags of BCP 47; None: not known
Report = Callable[[float], None]  # called now and then with the fraction that is done, 0 to 1


@dataclass(frozen=True)
class ParallelText:
    """Sentence pairs: `src[i]` and `tgt[i]` are translations of each other, and neither is empty.

    The sentences are in a list or in a file (`heedful.data.corpora.Sentences`). `sources` are the names of
    the files, for messages; `num_empty` pairs were left out because one text was empty, `num_faulty` by
    filters.
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
        return " and ".join(dict.fromkeys(self.sources)) or "the parallel text"


def read_parallel(
    src_path: str | Path, tgt_path: str | Path, *, languages: "WantedLanguages" = (None, None)
) -> ParallelText:
    """Read two files of one sentence a line, plain or gzipped; pairs with an empty text are left out.

    A TMX file that is both is read for its units in these `languages`.
    """
    return load_text(PairFiles((Path(src_path), Path(tgt_path)), languages=languages))


def load_text(files: "PairFiles") -> ParallelText:
    """Read a text of any source into memory; CorpusError if it is not usable."""
    pairs = FilledPairs(files)
    src, tgt = map(chain.from_iterable, zip(*pairs, strict=True))
    return ParallelText([*src], [*tgt], tuple(map(str, files.paths)), pairs.num_empty)


def read_lines(path: str | Path) -> list[str]:
    r"""Return the lines of a UTF-8 file, plain or gzipped, including empty ones.

    Only \n or \r\n ends a line: other Unicode line separators may be inside a sentence, and splitting there
    would misalign source and target. A byte order mark is dropped.

    Raises:
        CorpusError: a file that is missing, empty, truncated, not UTF-8, or holds a NUL byte or a line of
            over 16 MiB.
    """
    return [line for lines, _ in _line_blocks(Path(path)) for line in lines]


_Lines = tuple[list[str], bytes]  # lines without their line breaks, and the bytes that they are in the file


def _line_blocks(path: Path, *, report: Report | None = None) -> Iterator[_Lines]:
    """Yield the lines of a file in lists of about a MiB; raises as `read_lines`, at the faulty block."""
    with _opened(path) as (plain, stream):
        size = path.stat().st_size if path.is_file() else 0
        limit = max(_TRUSTED_SIZE, _MAX_RATIO * size) if stream is not plain and size else math.inf
        offset, number, rest = 0, 1, b""
        while chunk := stream.read(_CHUNK):
            if not offset:
                refuse_markup(str(path), rest + chunk)
            content, newline, rest = (rest + chunk).rpartition(b"\n")
            long = number + content.count(b"\n") + len(newline)
            refuse_if(
                (
                    len(rest) > _MAX_LINE,
                    f"{path}: line {long:,}: over {_MAX_LINE / 2**20:,.0f} MiB; give one sentence a line",
                ),
                (
                    offset + len(content) > limit,
                    f"{path}: decompresses to more than {_MAX_RATIO} times its size; give the plain file",
                ),
                error=CorpusError,
            )
            if newline:
                lines = _split(content, str(path), number, offset)
                yield lines, content + newline
                offset, number = offset + len(content) + 1, number + len(lines)
            if report and size:
                report(min(1.0, plain.tell() / size))
        if rest.removeprefix(BYTE_ORDER_MARK) if offset == 0 else rest:
            yield _split(rest, str(path), number, offset), rest
        elif offset == 0:
            raise CorpusError(f"{path}: {_EMPTY}")


def _lines(blocks: Iterable[_Lines]) -> Iterator[list[tuple[str, bytes]]]:
    """Yield each line of some blocks with its bytes in the file."""
    return ([*zip(lines, BytesIO(content), strict=True)] for lines, content in blocks)


def _split(content: bytes, name: str, number: int, offset: int) -> list[str]:
    """Return lines as text, without their line breaks; the last one has none."""
    if offset == 0 and content.startswith(BYTE_ORDER_MARK):
        content, offset = content[len(BYTE_ORDER_MARK) :], len(BYTE_ORDER_MARK)
    text = decode(content, name, line=number, offset=offset)
    lines = text.split("\n")
    return [line.removesuffix("\r") for line in lines] if "\r" in text else lines


class FilledPairs:
    """Iterates over chunks of the pairs that have both texts; `num_empty` counts the others.

    If there are filters, pairs with a fault are left out too, and counted by `num_faulty`. A CorpusError at
    the end says that all sources, all targets, or one of each pair are empty.
    """

    def __init__(
        self, files: "PairFiles", *, is_faulty: IsFaulty | None = None, report: Report | None = None
    ) -> None:
        self.num_empty = self.num_faulty = 0
        self._files, self._is_faulty, self._report = files, is_faulty, report

    def __iter__(self) -> Iterator[Chunk]:
        has_src = has_tgt = has_pair = False
        for src, tgt in self._files.chunks(self._report):
            src_filled = {i for i, text in enumerate(src) if text.strip()}
            tgt_filled = {i for i, text in enumerate(tgt) if text.strip()}
            filled = sorted(src_filled & tgt_filled)
            has_src |= bool(src_filled)
            has_tgt |= bool(tgt_filled)
            has_pair |= bool(filled)
            self.num_empty += len(src) - len(filled)
            if self._is_faulty:
                good = [i for i in filled if not self._is_faulty(src[i], tgt[i])]
                self.num_faulty += len(filled) - len(good)
                filled = good
            if len(filled) == len(src):
                yield src, tgt
            elif filled:
                yield [src[i] for i in filled], [tgt[i] for i in filled]
        if not has_pair:
            problem = "no line has both source and target text; check that they are parallel"
            name = self._files.name
            if not (has_src and has_tgt):
                name, problem = self._files.labels[has_src], "every line is empty; give a file with text"
            raise CorpusError(f"{name}: {problem}")


def check_parallel(src_name: str, src: Sized, tgt_name: str, tgt: Sized) -> None:
    """Raise a CorpusError that names the first unmatched line, if the numbers of lines differ."""
    (short, short_name), (long, long_name) = sorted([(len(src), src_name), (len(tgt), tgt_name)])
    if short < long:
        raise _not_parallel(short_name, short, long_name, f"{long:,}")


def _not_parallel(short_name: str, lines: int, long_name: str, others: str) -> CorpusError:
    return CorpusError(
        f"{short_name}: {lines:,} lines but {long_name} has {others}; "
        f"source and target must be parallel (first unmatched line: {lines + 1:,})"
    )


def parallel_lines(
    src: Iterable[str], tgt: Iterable[str], *, src_name: str, tgt_name: str
) -> Iterator[tuple[str, str]]:
    """Yield the pairs of two streams of lines; CorpusError after them if one has more, or both are empty."""
    number = 0
    for number, (source, target) in enumerate(zip_longest(src, tgt), start=1):
        if source is None or target is None:
            short, long = (src_name, tgt_name) if source is None else (tgt_name, src_name)
            raise _not_parallel(short, number - 1, long, "more")
        yield source, target
    if number == 0:
        raise CorpusError(f"{src_name} and {tgt_name}: no lines; give one sentence a line")


def overlap(train: ParallelText, held_out: ParallelText) -> int:
    """Return how many held-out pairs have a source sentence that is in the training text."""
    seen = set(held_out.src).intersection(train.src)
    return sum(sentence in seen for sentence in held_out.src)


def shared_pairs(train: ParallelText, held_out: ParallelText) -> list[int]:
    """Return the indices of held-out pairs that are in the training text too, with source and target."""
    pairs = [*zip(held_out.src, held_out.tgt, strict=True)]
    seen = {*pairs}.intersection(zip(train.src, train.tgt, strict=True))
    return [i for i, pair in enumerate(pairs) if pair in seen]


@contextmanager
def decompressed(plain: BufferedReader, name: str) -> Iterator[BinaryIO]:
    """Yield the text of a file, gzipped or not; CorpusError if it is only named .gz."""
    start = plain.peek(len(GZIP))[: len(GZIP)]
    if start and start != GZIP and name.lower().endswith(".gz"):
        raise CorpusError(f"{name}: not a gzip file, although its name ends in .gz; rename or compress it")
    with gzip.open(plain) if start == GZIP else plain as text:
        yield cast(BinaryIO, text)


_PROBLEMS: dict[type[OSError], str] = {
    FileNotFoundError: "no such file; check the path",
    IsADirectoryError: "is a directory; give a file",
}


@contextmanager
def _opened(path: Path) -> Iterator[tuple[BufferedReader, BinaryIO]]:
    """Give a file and its text, which differ if the file is gzipped; CorpusError if it cannot be read."""
    try:
        with path.open("rb") as plain, decompressed(plain, str(path)) as text:
            yield plain, text
    except DAMAGES as error:
        raise CorpusError(f"{path}: {DAMAGED}") from error
    except OSError as error:
        problem = _PROBLEMS.get(type(error), f"cannot be read ({error.strerror}); check the path")
        if str(path) == "-":
            problem = "stdin is not read here; give a file"
        raise CorpusError(f"{path}: {problem}") from error


def decode(content: bytes, name: str, *, line: int = 1, offset: int | None = 0) -> str:
    """Return lines as text; their line breaks stay.

    A NUL byte, or bytes that are not UTF-8, are a CorpusError that says where. `line` is the number of the
    first line, `offset` the number of bytes in the file before the content; None: it is a stream.
    """

    def where(at: int) -> str:
        """Describe a byte: the line, counted from 1, and bytes, counted from 0, in the line and the file."""
        in_line = at - (content.rfind(b"\n", 0, at) + 1)
        of_file = "" if offset is None else f" (byte {offset + at:,} of the file)"
        return f"{name}: line {line + content.count(newline, 0, at):,}, byte {in_line:,}{of_file}"

    newline, what = b"\n", "the text" if offset is None else "the file"
    try:
        if (at := content.find(0)) < 0:
            return content.decode("utf-8")
        problem = "NUL byte; this is not plain text (UTF-16?)"
    except UnicodeDecodeError as error:
        at = error.start
        problem = f"0x{content[at]:02x} is not valid UTF-8"
    raise CorpusError(f"{where(at)}: {problem}; convert {what} to UTF-8")


def parse_tsv(name: str, number: int, line: str, columns: tuple[int, int] | None) -> tuple[str, str]:
    """Return source and target of a line of TSV; `columns` are their indices, None: it must have just two."""
    cells = line.split("\t")
    src, tgt = columns or (0, 1)
    if (len(cells) == 2) if columns is None else (max(src, tgt) < len(cells)):
        return cells[src], cells[tgt]
    remedy = "set data.src_key and data.tgt_key to the numbers of two columns, from 1, that all lines have"
    if len(cells) == 1:
        remedy = "each line needs two, unless the file is .jsonl, .json or .parquet"
    raise CorpusError(f"{name}: line {number:,}: {len(cells)} tab-separated columns; {remedy}")


class Row(NamedTuple):
    """A pair as in the files: the number of its line, from 1, and the bytes of each file's line in `raw`."""

    number: int
    src: str
    tgt: str
    raw: tuple[bytes, ...]


def _report_part(report: Report, number: int, parts: int, fraction: float) -> None:
    report((number + fraction) / parts)


_Each = TypeVar("_Each")


@dataclass(frozen=True)
class PairFiles:
    """Two files of one sentence a line, or one source of pairs.

    That is a `.tsv`, `.jsonl` or `.json` file or a file of units (`.tmx`, `.xlf`, `.xliff`, `.po`,
    `.memory`), plain or gzipped, a Parquet file, a directory of them, or a directory of
    `Dataset.save_to_disk`. A file of units may also be both source and target. A `.json` file has JSON lines,
    or a list of objects, which is held in memory. Blank lines of JSON are ignored.

    Attributes:
        paths: source and target, or the one source of pairs.
        src_key: the key of the source sentence in a JSON object, or in its object `translation`; or a path of
            keys, such as `translation.en`. A text of null is empty. In a `.tsv`, the number of its column,
            from 1, or the name of its column, if the first line has the names. In a file of units, its
            language.
        tgt_key: the key of the target sentence.
        languages: the languages of source and target in a file of units, if the keys do not say them.
    """

    paths: tuple[Path, ...]
    src_key: str = "src"
    tgt_key: str = "tgt"
    languages: WantedLanguages = (None, None)

    @property
    def name(self) -> str:
        """The names of the files, for messages."""
        return " and ".join(dict.fromkeys(map(str, self.paths)))

    @property
    def labels(self) -> tuple[str, str]:
        """The names of source and target, for messages."""
        if self.kind == "lines":
            return str(self.paths[0]), str(self.paths[1])
        kind, keys = "key", (self.src_key, self.tgt_key)
        if self.kind == "units":
            return f"{self.name} (its sources)", f"{self.name} (its targets)"
        if self.kind == "tsv":
            kind, keys = "column", ("1", "2") if keys == ("src", "tgt") else keys
        return f"{self.name} ({kind} {keys[0]})", f"{self.name} ({kind} {keys[1]})"

    @cached_property
    def kind(self) -> Literal["lines", "tsv", "jsonl", "units", "table"]:
        """The format by the names: two files of lines, a file of pairs, or a table (Parquet, a directory)."""
        if holds_units(*self.paths):
            return "units"
        if len(self.paths) == 2:
            return "lines"
        if self.paths[0].suffix == ".parquet" or self.paths[0].is_dir():
            return "table"
        return "jsonl" if plain_name(self.paths[0]).suffix in _JSON_SUFFIXES else "tsv"

    @property
    def suffixes(self) -> tuple[str, ...]:
        """The file-name suffixes of source and target, without `.gz`: `(".en", ".de")`; always different."""
        if self.kind == "units":
            return (".tsv",)  # as `rows` has it
        suffixes = tuple(plain_name(path).suffix for path in self.paths)
        ambiguous = len(suffixes) == 2 and ("" in suffixes or suffixes[0] == suffixes[1])
        return (".src", ".tgt") if ambiguous else suffixes

    @property
    def header(self) -> bytes:
        """The first line of a `.tsv`, if it has the names of the columns; otherwise nothing."""
        if self.kind != "tsv" or not self.paths[0].is_file():
            return b""
        lines, raw = next(_line_blocks(self.paths[0]))
        return BytesIO(raw).readline() if self._columns(lines[0])[1] else b""

    def _columns(self, first: str) -> tuple[tuple[int, int] | None, bool]:
        """Return the columns of source and target in a `.tsv`, and whether its first line names them.

        None: it must have just two.
        """
        names, keys = first.split("\t"), {self.src_key, self.tgt_key}
        are_numbers = all(map(str.isdecimal, keys))
        if are_numbers and "0" not in keys and len(keys) == 2:
            return (int(self.src_key) - 1, int(self.tgt_key) - 1), False
        if keys <= {*names}:
            return (names.index(self.src_key), names.index(self.tgt_key)), True
        if are_numbers or len(names) > 2 or not keys.isdisjoint(names):
            raise CorpusError(
                f"{self.paths[0]}: no columns {self.src_key!r} and {self.tgt_key!r}; set data.src_key and "
                f"data.tgt_key (--src-key, --tgt-key) to two numbers from 1, or to names of the first line: "
                f"{shown(', '.join(names))}"
            )
        return None, False

    def chunks(self, report: Report | None = None) -> Iterator[Chunk]:
        """Read all pairs in order, empty ones included, in lists of a few thousand.

        A faulty part raises when it is reached. `report` is called with the fraction that was read.
        """
        if self.kind == "lines":
            blocks = _line_blocks(self.paths[0], report=report), _line_blocks(self.paths[1])
            yield from self._aligned(*((lines for lines, _ in each) for each in blocks))
        elif self.kind == "units":
            for units in self._units(report):
                yield [unit.source for unit in units], [unit.target for unit in units]
        elif self.kind == "table":
            from heedful.data.tables import inner_files, table_chunks

            inner = inner_files(self.paths[0], holds_pairs)
            for number, file in enumerate(inner):
                part = partial(_report_part, report, number, len(inner)) if report else None
                yield from replace(self, paths=(file,)).chunks(part)
            if not inner:
                yield from table_chunks(self.paths[0], (self.src_key, self.tgt_key), report)
        else:
            for _, pairs, _ in self._parsed(report):
                yield [src for _, src, _ in pairs], [tgt for _, _, tgt in pairs]

    def rows(self, report: Report | None = None) -> Iterator[Row]:
        """Read all pairs of text files in order, as `chunks` does; CorpusError also for a table or a pipe.

        Units are numbered by their lines, and their bytes are a line of TSV.
        """
        for path in self.paths:
            is_usual = path.is_file() or path.is_dir()  # opening a FIFO waits for its writer
            remedy = "is a pipe or device, and the text is read more than once; write it to a file first"
            refuse_if(
                (
                    self.kind == "table",
                    f"{path}: is a table, not lines of text; write it as .tsv or .jsonl for this",
                ),
                (path.exists() and not is_usual, f"{path}: {remedy}"),
                error=CorpusError,
            )
        if self.kind == "units":
            for line, src, tgt, _ in chain.from_iterable(self._units(report)):
                yield Row(line, src, tgt, (f"{src}\t{tgt}\n".encode(),))
            return
        if self.kind != "lines":
            for first, parsed, content in self._parsed(report):
                raw = BytesIO(content).readlines()
                yield from (Row(i, src, tgt, (raw[i - first],)) for i, src, tgt in parsed)
            return
        blocks = _line_blocks(self.paths[0], report=report), _line_blocks(self.paths[1])
        pairs = chain.from_iterable(zip(*each, strict=True) for each in self._aligned(*map(_lines, blocks)))
        for number, ((src, src_raw), (tgt, tgt_raw)) in enumerate(pairs, start=1):
            yield Row(number, src, tgt, (src_raw, tgt_raw))

    def _aligned(self, *blocks: Iterator[list[_Each]]) -> Iterator[tuple[list[_Each], list[_Each]]]:
        """Read two files of lines side by side."""
        src_blocks, tgt_blocks = blocks
        number, src, tgt = 0, next(src_blocks, []), next(tgt_blocks, [])
        while src and tgt:
            rows = min(len(src), len(tgt))
            yield src[:rows], tgt[:rows]
            number, src, tgt = number + rows, src[rows:], tgt[rows:]
            src, tgt = src or next(src_blocks, []), tgt or next(tgt_blocks, [])
        num_src = number + len(src) + sum(map(len, src_blocks))
        num_tgt = number + len(tgt) + sum(map(len, tgt_blocks))
        check_parallel(str(self.paths[0]), range(num_src), str(self.paths[1]), range(num_tgt))

    def _units(self, report: Report | None) -> Iterator[list["Unit"]]:
        """Read the units of a TMX, XLIFF or `.po` file, each text on one line."""
        from heedful.data.tmx import Unit

        path, keys = self.paths[0], (self.src_key, self.tgt_key)
        given = [key if key != usual else None for key, usual in zip(keys, ("src", "tgt"), strict=True)]
        src, tgt = (key or language for key, language in zip(given, self.languages, strict=True))
        module, function = _UNIT_READERS[plain_name(path).suffix.lower()]
        read_units = getattr(import_module(f"heedful.data.{module}"), function)
        with _opened(path) as (plain, stream):
            size = path.stat().st_size
            try:
                for units in read_units(stream, src=src, tgt=tgt, remedy=_LANGUAGES_NEEDED):
                    yield [Unit(line, _on_one_line(src), _on_one_line(tgt)) for line, src, tgt, _ in units]
                    if report and size:
                        report(min(1.0, plain.tell() / size))
            except InputError as error:
                raise CorpusError(f"{path}: {error}") from None

    def _listed(self, text: str) -> tuple[int, list[tuple[int, str, str]], bytes]:
        """Return what `_parsed` yields of a list in JSON, as if each pair had a line."""
        listed, keys = listed_objects(self.name, text), (self.src_key, self.tgt_key)
        pairs = [(i, *pair_of(self.name, i, record, keys)) for i, record in enumerate(listed, start=1)]
        content = "".join(f"{json.dumps(record, ensure_ascii=False)}\n" for record in listed)
        return 1, pairs, content.encode("utf-8", "surrogatepass")

    def _parsed(self, report: Report | None) -> Iterator[tuple[int, list[tuple[int, str, str]], bytes]]:
        """Read one file of TSV or JSON in blocks: the number of the first line, numbered pairs, and bytes."""
        [path], keys, name = self.paths, (self.src_key, self.tgt_key), self.name
        blocks, number = _line_blocks(path, report=report), 1
        if plain_name(path).suffix == ".json":
            first = next(blocks)
            blocks = chain([first], blocks)
            if "".join(first[0]).lstrip().startswith("["):
                yield self._listed("\n".join(chain.from_iterable(lines for lines, _ in blocks)))
                return
        columns: tuple[int, int] | None = None
        for lines, raw in blocks:
            numbered: Iterator[tuple[int, str]] = enumerate(lines, start=number)
            if self.kind == "tsv":
                if number == 1:
                    columns, has_names = self._columns(lines[0])
                    numbered = islice(numbered, int(has_names), None)
                pairs = [(i, *parse_tsv(name, i, line, columns)) for i, line in numbered]
            else:
                pairs = [(i, *pair_in(name, i, line, keys)) for i, line in numbered if line.strip()]
            yield number, pairs, raw
            number += len(lines)


def _on_one_line(text: str) -> str:
    return _STRAY_SPACE.sub(" ", text).strip(" ")


def holds_units(*paths: Path) -> bool:
    """Return whether paths are all the same file of units, by its name: `.tmx`, `.po.gz` and others."""
    return len({*paths}) == 1 and plain_name(paths[0]).suffix.lower() in _UNIT_READERS


def holds_pairs(path: Path) -> bool:
    """Return whether a file holds pairs by its name: `.tsv`, JSON or a file of units, gzipped or not."""
    return plain_name(path).suffix.lower() in _PAIRS_SUFFIXES


def plain_name(path: Path) -> Path:
    """Return a path without `.gz` or `.GZ`."""
    return path.with_suffix("") if path.suffix.lower() == ".gz" else path
