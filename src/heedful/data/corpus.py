"""Parallel text from files, checked before anything is computed from it."""

import gzip
import io
import zlib
from collections.abc import Sequence, Sized
from dataclasses import dataclass
from pathlib import Path

from heedful import parsing
from heedful.errors import CorpusError

_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_GZIP_MAGIC = b"\x1f\x8b"
_CHUNK = 2**20
_MAX_RATIO = 200  # of text to its gzip; that of natural language is 3
_PACKED_WITHOUT_DOUBT = 2**28  # bytes


@dataclass(frozen=True)
class ParallelText:
    """Sentence pairs: `src[i]` and `tgt[i]` mean the same, and neither is empty.

    Attributes:
        src: source sentences.
        tgt: target sentences, as many.
        sources: the names of the files, for messages: two, or one that holds source and target.
        num_empty: pairs left out because source or target was empty.
    """

    src: list[str]
    tgt: list[str]
    sources: tuple[str, ...] = ()
    num_empty: int = 0

    def __len__(self) -> int:
        return len(self.src)

    @property
    def num_read(self) -> int:
        """Pairs in the files, those left out included."""
        return len(self.src) + self.num_empty

    @property
    def name(self) -> str:
        """The files, as a message names them."""
        return " and ".join(self.sources) or "the parallel text"


def read_parallel(src_path: str | Path, tgt_path: str | Path) -> ParallelText:
    """Read two files of one sentence a line, plain or gzipped; pairs with an empty text are left out.

    Raises:
        CorpusError: a file that is missing, empty, not UTF-8, holds a NUL byte or only empty lines;
            unequal numbers of lines; no pair with text in source and target.
    """
    src, tgt = read_lines(src_path), read_lines(tgt_path)
    check_parallel(str(src_path), src, str(tgt_path), tgt)
    _check_some_text(str(src_path), src)
    _check_some_text(str(tgt_path), tgt)
    return _leave_out_empty(src, tgt, (str(src_path), str(tgt_path)))


def read_pairs(path: str | Path, *, src_key: str = "src", tgt_key: str = "tgt") -> ParallelText:
    """Read one file of pairs, plain or gzipped: `.tsv` (source, tab, target) or `.jsonl` (an object a line).

    Args:
        path: the file; `.jsonl` (also `.jsonl.gz`) is read as JSON lines, every other name as TSV.
        src_key: the key of the source sentence in a JSON object.
        tgt_key: the key of the target sentence.

    Raises:
        CorpusError: as `read_parallel`; a line without exactly two columns, without the keys, or not JSON.
    """
    name = str(path)
    lines = read_lines(path)
    if name.removesuffix(".gz").endswith(".jsonl"):
        pairs = [parse_json(name, i, line, (src_key, tgt_key)) for i, line in enumerate(lines, start=1)]
        labels = (f"{name} (key {src_key!r})", f"{name} (key {tgt_key!r})")
    else:
        pairs = [parse_tsv(name, i, line) for i, line in enumerate(lines, start=1)]
        labels = (f"{name} (column 1)", f"{name} (column 2)")
    src, tgt = [pair[0] for pair in pairs], [pair[1] for pair in pairs]
    _check_some_text(labels[0], src)
    _check_some_text(labels[1], tgt)
    return _leave_out_empty(src, tgt, (name,))


def read_lines(path: str | Path) -> list[str]:
    r"""The lines of a UTF-8 file, plain or gzipped, empty ones kept.

    Only \n ends a line (one \r before it goes with it): other separators that Unicode knows may stand inside
    a sentence, and to split at them would shift the source against the target. A byte order mark is dropped.

    Raises:
        CorpusError: a file that is missing, empty, truncated, not UTF-8, or holds a NUL byte.
    """
    name = str(path)
    content = _read_bytes(Path(path))
    if content in (b"", _BYTE_ORDER_MARK):
        raise CorpusError(f"{name}: the file is empty; give a file with one sentence a line")
    nul = content.find(0)
    if nul >= 0:
        place = _place(content, nul)
        raise CorpusError(
            f"{name}: {place}: NUL byte; this is no plain text file (UTF-16?), convert it to UTF-8"
        )
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError as error:
        byte = f"0x{content[error.start]:02x}"
        place = _place(content, error.start)
        raise CorpusError(f"{name}: {place}: {byte} is not valid UTF-8; convert the file to UTF-8") from error
    lines = text.removeprefix("\ufeff").split("\n")
    if not lines[-1]:
        lines.pop()
    if "\r" in text:
        lines = [line.removesuffix("\r") for line in lines]
    return lines


def check_parallel(src_name: str, src: Sized, tgt_name: str, tgt: Sized) -> None:
    """Check that source and target have as many lines.

    Raises:
        CorpusError: they have not; the message names the first line without a partner.
    """
    if len(src) == len(tgt):
        return
    (short_name, short), (long_name, long) = sorted(
        ((src_name, len(src)), (tgt_name, len(tgt))), key=lambda side: side[1]
    )
    raise CorpusError(
        f"{short_name}: {short:,} lines but {long_name} has {long:,}; "
        f"the two sides must be parallel (first unmatched line: {short + 1:,})"
    )


def overlap(train: ParallelText, held_out: ParallelText) -> int:
    """How many held-out pairs have a source sentence that training has seen: scores on them say little."""
    seen = set(train.src)
    return sum(sentence in seen for sentence in held_out.src)


def shared_pairs(train: ParallelText, held_out: ParallelText) -> list[int]:
    """Which held-out pairs are in training too, source and target: scores on them are of what was learned."""
    wanted = set(zip(held_out.src, held_out.tgt, strict=True))
    seen = wanted.intersection(zip(train.src, train.tgt, strict=True))
    return [i for i, pair in enumerate(zip(held_out.src, held_out.tgt, strict=True)) if pair in seen]


def _read_bytes(path: Path) -> bytes:
    try:
        content = path.read_bytes()
    except FileNotFoundError as error:
        raise CorpusError(f"{path}: no such file; check the path") from error
    except IsADirectoryError as error:
        raise CorpusError(f"{path}: is a directory; give a file") from error
    except OSError as error:
        raise CorpusError(f"{path}: cannot be read ({error.strerror}); check the path") from error
    if path.suffix != ".gz" and not content.startswith(_GZIP_MAGIC):
        return content
    check_is_gzip(path, content)
    try:
        return _unpack(path, content)
    except (OSError, EOFError, zlib.error) as error:
        raise CorpusError(f"{path}: the gzip file is truncated or corrupt; fetch or pack it again") from error


def check_is_gzip(path: Path, start: bytes) -> None:
    """Refuse plain text whose name ends in .gz; an empty file is left to the reader.

    Raises:
        CorpusError: as said.
    """
    if start and not start.startswith(_GZIP_MAGIC):
        raise CorpusError(f"{path}: no gzip file, although its name ends in .gz; rename or pack it")


def _unpack(path: Path, content: bytes) -> bytes:
    """Unpack gzip; what text never packs into is refused before it has filled the memory."""
    limit = max(_PACKED_WITHOUT_DOUBT, _MAX_RATIO * len(content))
    chunks: list[bytes] = []
    with gzip.open(io.BytesIO(content)) as file:
        while chunk := file.read(_CHUNK):
            chunks.append(chunk)
            if _CHUNK * len(chunks) > limit:
                raise CorpusError(
                    f"{path}: unpacks to more than {_MAX_RATIO} times its size, which no text does; "
                    "give the plain file if it is meant"
                )
    return b"".join(chunks)


def _place(content: bytes, offset: int) -> str:
    """Line and byte of an offset; lines count from 1, bytes from 0, in the line and in the file."""
    line = content.count(b"\n", 0, offset) + 1
    in_line = offset - (content.rfind(b"\n", 0, offset) + 1)
    return f"line {line:,}, byte {in_line:,} (byte {offset:,} of the file)"


def parse_tsv(name: str, number: int, line: str) -> tuple[str, str]:
    """Take source and target from a line of a TSV file.

    Raises:
        CorpusError: it has not exactly two columns.
    """
    columns = line.split("\t")
    if len(columns) != 2:
        raise CorpusError(
            f"{name}: line {number:,}: {len(columns)} tab-separated columns; "
            "each line needs two, source and target"
        )
    return columns[0], columns[1]


def parse_json(name: str, number: int, line: str, keys: tuple[str, str]) -> tuple[str, str]:
    """Take source and target from a line that holds a JSON object.

    Raises:
        CorpusError: it is no object, or one without these keys or with other values than text.
    """
    where = f"{name}: line {number:,}"
    try:
        record = parsing.parse_json(line, half_pairs=True)
    except ValueError as error:
        reason = str(error).removeprefix("not valid JSON: ")
        raise CorpusError(
            f"{where}: not JSON ({reason}); each line must be one object, with {_keys(keys)}"
        ) from error
    if not isinstance(record, dict):
        raise CorpusError(f"{where}: not a JSON object; each line must be one, with {_keys(keys)}")
    src, tgt = (_json_text(where, record, key) for key in keys)
    return src, tgt


def _json_text(where: str, record: dict[str, object], key: str) -> str:
    text = record.get(key)
    if key not in record:
        has = ", ".join(map(parsing.shown, list(record)[:5])) or "none"
        raise CorpusError(f"{where}: no key {key!r} (it has {has}); set data.src_key and data.tgt_key")
    if not isinstance(text, str):
        raise CorpusError(f"{where}: the value of {key!r} is no string; it must be one sentence")
    if "\0" in text:
        raise CorpusError(f"{where}: NUL character in the value of {key!r}; remove it")
    if not text.isascii() and any("\ud800" <= character <= "\udfff" for character in text):
        raise CorpusError(
            f"{where}: half of a surrogate pair in the value of {key!r}; write the whole character"
        )
    return " ".join(text.split("\n"))


def _keys(keys: tuple[str, str]) -> str:
    return f"the keys {keys[0]!r} and {keys[1]!r}"


def _check_some_text(name: str, lines: Sequence[str]) -> None:
    if not any(line.strip() for line in lines):
        raise CorpusError(f"{name}: every line is empty; this side must hold text")


def _leave_out_empty(src: list[str], tgt: list[str], names: tuple[str, ...]) -> ParallelText:
    kept = [i for i in range(len(src)) if src[i].strip() and tgt[i].strip()]
    if not kept:
        raise CorpusError(
            f"{' and '.join(names)}: no line has text on both sides; check that they are parallel"
        )
    if len(kept) == len(src):
        return ParallelText(src, tgt, names)
    return ParallelText([src[i] for i in kept], [tgt[i] for i in kept], names, len(src) - len(kept))
