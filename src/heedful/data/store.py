"""A tokenised corpus in a memory-mapped Arrow file, which is reused until text or settings change."""

import contextlib
import errno
import hashlib
import json
import os
import re
import tempfile
import time
import zlib
from bisect import bisect_right
from contextlib import suppress
from dataclasses import asdict, dataclass, fields, replace
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np
import platformdirs
import pyarrow as pa
from numpy.typing import NDArray

from heedful.data.files import ParallelText
from heedful.errors import CorpusError
from heedful.settings.parsing import Json, is_whole, parse_json
from heedful.text import SpecialTokens, TokenizerPair

MAX_BYTES = 20 * 2**30
_IN_USE = 24 * 3600.0  # seconds since the last use, within which a file may still be open
_STORE = re.compile(r"[0-9a-f]{40}\.arrow|[0-9a-f]{40}\..*\.tmp")  # .tmp: left by a killed run


def mark_used(path: Path) -> None:
    """Set the time of a file's last use to now."""
    with suppress(OSError):  # another user's file, or a read-only file system
        os.utime(path)


def evict(directory: Path, *, max_bytes: int = MAX_BYTES) -> list[Path]:
    """Remove the least recently used files until the rest fits, but none of the last day; return them."""
    files = []
    for path in directory.iterdir():
        with suppress(OSError):  # another process may remove it first
            if _STORE.fullmatch(path.name):
                files.append((path.stat().st_mtime, path.stat().st_size, path))
    total, latest, removed = sum(size for _, size, _ in files), time.time() - _IN_USE, []
    for used, size, path in sorted(files):
        is_left_over = path.suffix == ".tmp"
        if used > latest or (total <= max_bytes and not is_left_over):
            continue
        with suppress(OSError):
            path.unlink()
            removed.append(path)
            total -= size
    return removed


IdPair = tuple[NDArray[np.int32], NDArray[np.int32]]

_FORMAT = "heedful-store-1"  # a part of the fingerprint, so that a new layout never reads an old file
_ROWS = 8192  # of one record batch; tokenised, written and located together
_REPORT_KEY = b"heedful.report"


@dataclass(frozen=True)
class CorpusReport:
    """The pairs of a store and those left out. Lengths are in tokens, eos and tags included.

    Attributes:
        num_read: pairs in the files.
        num_kept: pairs in the store.
        num_empty: pairs left out because source or target was empty.
        num_too_long: pairs left out because source or target was longer than `max_length`.
        max_length: the longest source or target allowed.
        longest_src: the longest source sentence read.
        longest_tgt: the longest target sentence read.
        num_src_tokens: source tokens in the store.
        num_tgt_tokens: target tokens in the store.
    """

    num_read: int
    num_kept: int
    num_empty: int
    num_too_long: int
    max_length: int
    longest_src: int = 0
    longest_tgt: int = 0
    num_src_tokens: int = 0
    num_tgt_tokens: int = 0


class ParallelStore:
    """Pairs of id sequences, memory-mapped and read-only: `store[i]` is (source ids, target ids).

    The ids include special tokens.

    Attributes:
        path: the Arrow file.
        report: the counts of its pairs.
        src_lengths: source lengths, eos and tags included.
        tgt_lengths: target lengths, eos and tags included.

    Raises:
        CorpusError: the file is not a complete store.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            self._batches, self.report = _read(path)
        except (OSError, pa.ArrowException, ValueError) as error:
            raise CorpusError(f"{path}: not a complete store of ids; delete it and it is rebuilt") from error
        self._starts: list[int] = list(accumulate((batch.num_rows for batch in self._batches), initial=0))
        self._src = [_column(batch, "src") for batch in self._batches]
        self._tgt = [_column(batch, "tgt") for batch in self._batches]
        self.src_lengths = _lengths(self._src)
        self.tgt_lengths = _lengths(self._tgt)

    def __reduce__(self) -> tuple[type["ParallelStore"], tuple[Path]]:
        return type(self), (self.path,)  # another process maps the same file

    def __len__(self) -> int:
        return self._starts[-1]

    def __getitem__(self, index: int) -> IdPair:
        part, row = self._locate(index)
        return self._src[part][row], self._tgt[part][row]

    @property
    def max_length(self) -> int:
        """The longest source or target allowed, eos and tags included."""
        return self.report.max_length

    @property
    def has_text(self) -> bool:
        """Whether the store has the sentences besides their ids."""
        return "src_text" in self._batches[0].schema.names

    def text(self, index: int) -> tuple[str, str]:
        """Return source and target sentence of a pair, if the store was built with `keep_text`."""
        part, row = self._locate(index)
        batch = self._batches[part]
        return batch.column("src_text")[row].as_py(), batch.column("tgt_text")[row].as_py()

    def count(self, src_id: int, tgt_id: int) -> tuple[int, int]:
        """Return how often `src_id` occurs in the sources and `tgt_id` in the targets."""
        src = sum(int((column.values == src_id).sum()) for column in self._src)
        return src, sum(int((column.values == tgt_id).sum()) for column in self._tgt)

    def _locate(self, index: int) -> tuple[int, int]:
        if not 0 <= index < len(self):
            raise IndexError(f"pair {index} of a store of {len(self)}")
        part = bisect_right(self._starts, index) - 1
        return part, index - self._starts[part]


def build_store(
    text: ParallelText,
    tokenizers: TokenizerPair,
    *,
    max_length: int,
    template: SpecialTokens | None = None,
    cache_dir: Path | str | None = None,
    keep_text: bool = False,
) -> ParallelStore:
    """Tokenise text into a store, or open the cached store of an earlier equal call.

    Args:
        text: the sentence pairs.
        tokenizers: of source and target.
        max_length: pairs with a longer source or target, in tokens with eos and tags, are left out.
        template: the special-token template; None: eos only.
        cache_dir: the directory of the files; the user's cache directory by default.
        keep_text: store the sentences too, for subword sampling.

    Raises:
        CorpusError: no pair is left, or the file cannot be written.
    """
    directory = Path(cache_dir) if cache_dir is not None else platformdirs.user_cache_path("heedful")
    encoder = _Encoder(tokenizers, template or SpecialTokens.plain(tokenizers))
    path = directory / f"{_fingerprint(text, encoder, max_length, keep_text=keep_text)}.arrow"
    if path.exists():
        with contextlib.suppress(CorpusError):
            mark_used(path)
            return ParallelStore(path)
    try:
        directory.mkdir(parents=True, exist_ok=True)
        evict(directory)
        _write(path, text, encoder, max_length, keep_text=keep_text)
    except OSError as error:
        problem = "the disk is full" if error.errno == errno.ENOSPC else error.strerror or str(error)
        raise CorpusError(
            f"{directory}: ids cannot be written ({problem}); free some space or set data.cache_dir"
        ) from error
    return ParallelStore(path)


@dataclass(frozen=True)
class _Encoder:
    """Tokenise text and add special tokens."""

    tokenizers: TokenizerPair
    template: SpecialTokens

    def fingerprint(self) -> list[object]:
        """Return everything that the ids depend on; a plain template has no entry, as in older versions."""
        template, plain = self.template, SpecialTokens.plain(self.tokenizers)
        frame = (template.src_prefix, template.src_suffix, template.tgt_prefix, template.tgt_suffix)
        is_plain = frame == (plain.src_prefix, plain.src_suffix, plain.tgt_prefix, plain.tgt_suffix)
        return [self.tokenizers.fingerprint(), *([] if is_plain else [frame])]


def _fingerprint(text: ParallelText, encoder: _Encoder, max_length: int, *, keep_text: bool) -> str:
    settings = [_FORMAT, *encoder.fingerprint(), max_length, keep_text, len(text), text.num_empty]
    digest = hashlib.sha256(json.dumps(settings).encode())
    for sentences in (text.src, text.tgt):
        for start in range(0, len(sentences), _ROWS):
            # NUL cannot occur in a sentence, so different sentences never give the same bytes.
            digest.update("\0".join([*sentences[start : start + _ROWS], ""]).encode())
    return digest.hexdigest()[:40]


def _write(path: Path, text: ParallelText, encoder: _Encoder, max_length: int, *, keep_text: bool) -> None:
    """Write under a temporary name, then rename: a file under its own name is complete."""
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f"{path.stem}.", suffix=".tmp")
    try:
        with os.fdopen(handle, "wb") as file:
            schema = _schema(keep_text=keep_text)
            report = CorpusReport(text.num_read, 0, text.num_empty, 0, max_length)
            checksum = 0
            with pa.ipc.new_file(file, schema) as writer:
                for start in range(0, len(text), _ROWS):
                    batch, report = _encode(text, start, encoder, schema, report)
                    writer.write_batch(batch)
                    checksum = _update_checksum(checksum, batch)
                if report.num_kept == 0:
                    raise CorpusError(_nothing_left(text, report))
                last = json.dumps({"report": asdict(report), "checksum": checksum})
                writer.write_batch(batch.slice(0, 0), custom_metadata={_REPORT_KEY: last})
            file.flush()
            os.fsync(file.fileno())
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def _schema(*, keep_text: bool) -> pa.Schema:
    columns = [pa.field(name, pa.list_(pa.int32())) for name in ("src", "tgt")]
    texts = [pa.field(name, pa.string()) for name in ("src_text", "tgt_text")]
    return pa.schema(columns + texts if keep_text else columns)


def _encode(
    text: ParallelText, start: int, encoder: _Encoder, schema: pa.Schema, report: CorpusReport
) -> tuple[pa.RecordBatch, CorpusReport]:
    """Return the record batch of the pairs from `start` on, and the updated report."""
    texts = text.src[start : start + _ROWS], text.tgt[start : start + _ROWS]
    tokenizers, template = encoder.tokenizers, encoder.template
    ids = tokenizers.src.encode_batch(texts[0]), tokenizers.tgt.encode_batch(texts[1])
    # Normalisation may remove all characters of a text.
    filled = [i for i, (src_ids, tgt_ids) in enumerate(zip(*ids, strict=True)) if src_ids and tgt_ids]
    src, tgt = [template.source(each) for each in ids[0]], [template.target(each) for each in ids[1]]
    retained = [i for i in filled if max(len(src[i]), len(tgt[i])) <= report.max_length]
    columns = [[column[i] for i in retained] for column in (src, tgt, *texts)][: len(schema)]
    batch = pa.record_batch(
        [pa.array(column, type=field.type) for column, field in zip(columns, schema, strict=True)],
        schema=schema,
    )
    return batch, replace(
        report,
        num_kept=report.num_kept + len(retained),
        num_empty=report.num_empty + len(src) - len(filled),
        num_too_long=report.num_too_long + len(filled) - len(retained),
        longest_src=max(report.longest_src, *map(len, src)),
        longest_tgt=max(report.longest_tgt, *map(len, tgt)),
        num_src_tokens=report.num_src_tokens + sum(map(len, columns[0])),
        num_tgt_tokens=report.num_tgt_tokens + sum(map(len, columns[1])),
    )


def _nothing_left(text: ParallelText, report: CorpusReport) -> str:
    if report.num_too_long:
        return (
            f"{text.name}: no pair is left, {report.num_too_long:,} are longer than "
            f"data.max_length={report.max_length} tokens; raise data.max_length"
        )
    return f"{text.name}: no pair is left, all tokenise to nothing; check the text"


def _read(path: Path) -> tuple[list[pa.RecordBatch], CorpusReport]:
    """Map the file and verify its contents.

    Raises:
        ValueError: it is incomplete or altered.
    """
    reader = pa.ipc.open_file(pa.memory_map(str(path)))
    if not any(reader.schema.equals(_schema(keep_text=keep_text)) for keep_text in (False, True)):
        raise ValueError("columns of something else")
    if reader.num_record_batches < 2:
        raise ValueError("no pairs")
    batches = [reader.get_batch(i) for i in range(reader.num_record_batches - 1)]
    _, last = reader.get_batch_with_custom_metadata(reader.num_record_batches - 1)
    end = parse_json(last[_REPORT_KEY] if last and _REPORT_KEY in last else b"")
    checksum = 0
    for batch in batches:
        batch.validate(full=True)
        if any(column.null_count for column in batch.columns):
            raise ValueError("pairs that are missing")
        checksum = _update_checksum(checksum, batch)
    if not isinstance(end, dict) or checksum != end.get("checksum"):
        raise ValueError("the ids are not those that were written")
    return batches, _report(end.get("report"))


def _report(report: Json) -> CorpusReport:
    names = [each.name for each in fields(CorpusReport)]
    if not (isinstance(report, dict) and [*report] == names and all(map(is_whole, report.values()))):
        raise ValueError("no report")
    return CorpusReport(**report)


def _update_checksum(checksum: int, batch: pa.RecordBatch) -> int:
    for name in ("src", "tgt"):
        column = _column(batch, name)
        checksum = zlib.crc32(column.values.data, zlib.crc32(column.offsets.data, checksum))
    return checksum


@dataclass(frozen=True)
class _Column:
    """An Arrow list column: concatenated sequences and offsets, as numpy views of the mapped file."""

    values: NDArray[np.int32]
    offsets: NDArray[np.int32]

    def __getitem__(self, row: int) -> NDArray[np.int32]:
        return self.values[self.offsets[row] : self.offsets[row + 1]]


def _column(batch: pa.RecordBatch, name: str) -> _Column:
    array: Any = batch.column(name)
    return _Column(array.values.to_numpy(), array.offsets.to_numpy())


def _lengths(columns: list[_Column]) -> NDArray[np.int32]:
    return np.concatenate([np.diff(column.offsets) for column in columns])
