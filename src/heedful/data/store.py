"""A tokenised corpus in a memory-mapped Arrow file, which is reused until text or settings change."""

import hashlib
import json
import os
import re
import shutil
import signal
import tempfile
import threading
import time
import zlib
from bisect import bisect_right
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import suppress
from dataclasses import asdict, dataclass, fields
from functools import cached_property, reduce
from itertools import accumulate, chain, islice
from multiprocessing import get_context, parent_process
from multiprocessing.connection import wait
from operator import add
from pathlib import Path
from typing import Any

import numpy as np
import platformdirs
import pyarrow as pa
from numpy.typing import NDArray

from heedful.data.corpora import ROWS, writing_to
from heedful.data.files import ParallelText, Report
from heedful.errors import CorpusError, refuse_if
from heedful.runtime.threads import set_threads
from heedful.runtime.workers import without_main_module
from heedful.settings.parsing import is_whole, parse_json
from heedful.text import SpecialTokens, TokenizerPair

MAX_BYTES = 20 * 2**30
_IN_USE = 24 * 3600.0  # seconds since the last use, within which a file may still be open
_HASH = re.compile(r"[0-9a-f]{40}")
_STORE = re.compile(rf"{_HASH.pattern}(\.arrow|\..*\.tmp)")  # .tmp: left by a killed run


def mark_used(path: Path) -> None:
    """Set the time of a store's last use to now."""
    with suppress(OSError):  # another user's file, or a read-only file system
        os.utime(_file_of_last_use(path))


def _file_of_last_use(path: Path) -> Path:
    """Return the file with the time of a store's last use: the store, or what is beside a large one."""
    stamp = _stamp_file(path)
    return stamp if stamp.exists() else path


def _stamp_file(path: Path) -> Path:
    return path.with_suffix(".verified")


def _stamp(path: Path) -> str:
    """Return a text that changes when the file is written or replaced."""
    status = path.stat()
    return f"{status.st_size} {status.st_mtime_ns} {status.st_ino}"


def _is_verified(path: Path) -> bool:
    """Return whether a large store is as it was when it was built or last verified."""
    try:
        return path.stat().st_size >= _LARGE and _stamp_file(path).read_text("ascii") == _stamp(path)
    except (OSError, ValueError):
        return False


def _set_verified(path: Path) -> None:
    if path.stat().st_size >= _LARGE:
        with suppress(OSError):  # a read-only file system: it is verified each time
            _stamp_file(path).write_text(_stamp(path), "ascii")


def evict(directory: Path, *, max_bytes: int = MAX_BYTES) -> list[Path]:
    """Remove the least recently used files until the rest fits, but none of the last day; return them."""
    files = []
    for path in directory.iterdir():
        with suppress(OSError):  # another process may remove it first
            if _STORE.fullmatch(path.name):
                used = _file_of_last_use(path).stat().st_mtime
                files.append((used, path.stat().st_size, path))
    total, latest, removed = sum(size for _, size, _ in files), time.time() - _IN_USE, []
    for used, size, path in sorted(files):
        is_left_over = path.suffix == ".tmp"
        if used > latest or (total <= max_bytes and not is_left_over):
            continue
        with suppress(OSError):
            if path.is_dir():  # of a shard
                shutil.rmtree(path)
            else:
                path.unlink()
            _stamp_file(path).unlink(missing_ok=True)
            removed.append(path)
            total -= size
    return removed


IdPair = tuple[NDArray[np.int32], NDArray[np.int32]]

_FORMAT = "heedful-store-1"  # a part of the fingerprint, so that a new layout never reads an old file
_ROWS = ROWS  # of one record batch; tokenised, written and located together
_REPORT_KEY = b"heedful.report"  # of the last record batch, which has no rows
_PROGRESS_KEY = b"heedful.progress"  # of each other: the report up to it, to continue after a kill
_STREAM = len(b"ARROW1\0\0")  # bytes before the record batches of an Arrow file
_LARGE = 2**26  # bytes; smaller stores are verified whenever they are opened, which takes 0.1 seconds
_FEW_BATCHES = 8  # of fewer record batches, no process is started
_COMPARED = 2**22  # pairs, at least, of a longer text, for the ratio of lengths
_WITHIN_RATIO = 0.999  # of the source tokens
_AHEAD = 2  # record batches of each process that wait to be written


@dataclass(frozen=True)
class CorpusReport:
    """The numbers of pairs in a store and of pairs left out. Lengths are in tokens, eos and tags included.

    Of the `num_read` pairs in the files, `num_empty` are left out because source or target is empty, and
    `num_too_long` because one is longer than `max_length`. The longest source and target that were read are
    `longest_src` and `longest_tgt`; the store has `num_src_tokens` and `num_tgt_tokens`.
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

    def __add__(self, other: "CorpusReport") -> "CorpusReport":
        """Return the report of both texts."""
        ours, theirs = asdict(self), asdict(other)
        total = {name: count + theirs[name] for name, count in ours.items()}
        for name in ("max_length", "longest_src", "longest_tgt"):
            total[name] = max(ours[name], theirs[name])
        return CorpusReport(**total)


class ParallelStore:
    """Pairs of id sequences, memory-mapped and read-only: `store[i]` is (source ids, target ids).

    The ids include special tokens. The pairs of several files follow one another.

    Attributes:
        paths: the Arrow files.
        report: the counts of all pairs.
        num_continued: the number of pairs that an interrupted build had written before this one.
    """

    def __init__(self, path: Path, *others: Path, num_continued: int = 0) -> None:
        self.paths, self.num_continued = (path, *others), num_continued
        batches, reports, self._hashes = zip(*map(_read, self.paths), strict=True)
        self._batches: list[pa.RecordBatch] = [*chain.from_iterable(batches)]
        self.report: CorpusReport = reduce(add, reports)
        self._starts: list[int] = list(accumulate((batch.num_rows for batch in self._batches), initial=0))
        self._src = [_column(batch, "src") for batch in self._batches]
        self._tgt = [_column(batch, "tgt") for batch in self._batches]

    def __reduce__(self) -> tuple[type["ParallelStore"], tuple[Path, ...]]:
        return type(self), self.paths  # another process maps the same files

    @property
    def path(self) -> Path:
        """The Arrow file, or the first one."""
        return self.paths[0]

    @property
    def fingerprint(self) -> str:
        """A hash of the text and all that the ids depend on; of a file with another name, of its ids."""
        hashes = self._hashes
        return hashes[0] if len(hashes) == 1 else hashlib.sha256(" ".join(hashes).encode()).hexdigest()[:40]

    def __len__(self) -> int:
        return self._starts[-1]

    def __getitem__(self, index: int) -> IdPair:
        part, row = self._locate(index)
        return self._src[part][row], self._tgt[part][row]

    @cached_property
    def src_lengths(self) -> NDArray[np.int32]:
        """Source lengths, eos and tags included."""
        return _lengths(self._src)

    @cached_property
    def tgt_lengths(self) -> NDArray[np.int32]:
        """Target lengths, eos and tags included."""
        return _lengths(self._tgt)

    @property
    def length_ratio(self) -> float:
        """The ratio of target to source length that the pairs of 99.9 % of the source tokens do not exceed.

        Tokens count, not pairs: the ratios of a few tokens vary much, and say little about long sentences.
        """
        step = max(1, len(self) // _COMPARED)
        src, tgt = self.src_lengths[::step], self.tgt_lengths[::step]
        order = np.argsort(tgt / src)
        tokens = np.cumsum(src[order], dtype=np.int64)
        pair = order[np.searchsorted(tokens, _WITHIN_RATIO * tokens[-1])]
        return float(tgt[pair] / src[pair])

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


def cache_directory(cache_dir: Path | str | None) -> Path:
    """Return the directory of stores, by default in the user's cache directory."""
    return Path(cache_dir) if cache_dir is not None else platformdirs.user_cache_path("heedful")


def build_store(
    text: ParallelText,
    tokenizers: TokenizerPair,
    *,
    max_length: int,
    template: SpecialTokens | None = None,
    cache_dir: Path | str | None = None,
    keep_text: bool = False,
    processes: int = 1,
    report: Report | None = None,
) -> ParallelStore:
    """Tokenise text into a store, or open the cached store of an earlier equal call.

    After a kill, the next equal call goes on where this one was; the file is the same byte for byte.

    Args:
        text: the sentence pairs.
        tokenizers: the tokenizers of source and target.
        max_length: pairs with a longer source or target, in tokens with eos and tags, are left out.
        template: the special-token template; None: eos only.
        cache_dir: the directory of the files; the user's cache directory by default.
        keep_text: whether to store the sentences too, for subword sampling.
        processes: the number of processes for a long text; the file does not depend on it.
        report: called now and then with the fraction that is done, 0 to 1.
    """
    directory = cache_directory(cache_dir)
    job = _Job(text, tokenizers, template or SpecialTokens.plain(tokenizers), max_length, keep_text, _ROWS)
    path = directory / f"{job.fingerprint()}.arrow"
    if path.exists():
        with suppress(CorpusError):
            mark_used(path)
            return ParallelStore(path)
    with writing_to(directory):
        directory.mkdir(parents=True, exist_ok=True)
        evict(directory)
        num_continued = _write(path, job, processes, report)
        _set_verified(path)
    return ParallelStore(path, num_continued=num_continued)


def _write(path: Path, job: "_Job", processes: int, report: Report | None) -> int:
    """Write under a temporary name, then rename; return the number of pairs of an interrupted build."""
    parts = path.parent.glob(f"{path.stem}.*.tmp")  # of killed processes, or of living ones
    before = max(parts, key=lambda part: part.stat().st_size, default=None)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f"{path.stem}.", suffix=".tmp")
    written = 0
    try:
        with os.fdopen(handle, "wb") as file:
            total = CorpusReport(job.text.num_read, 0, job.text.num_empty, 0, job.max_length)
            checksum, num_batches = 0, -(-len(job.text) // job.rows)
            with pa.ipc.new_file(file, job.schema) as writer:
                for batch, total, checksum in _batches_before(before, job.schema, num_batches):
                    writer.write_batch(batch, custom_metadata=_metadata(_PROGRESS_KEY, total, checksum))
                    written += 1
                num_continued = total.num_kept
                for batch, counts in job.batches(written, processes):
                    total += counts
                    checksum = _update_checksum(checksum, batch)
                    writer.write_batch(batch, custom_metadata=_metadata(_PROGRESS_KEY, total, checksum))
                    written += 1
                    if report:
                        report(written / num_batches)
                if total.num_kept == 0:
                    raise CorpusError(_nothing_left(job.text, total))
                writer.write_batch(batch.slice(0, 0), custom_metadata=_metadata(_REPORT_KEY, total, checksum))
            file.flush()
            os.fsync(file.fileno())
        with suppress(FileNotFoundError):  # another process has built the same, and removed this
            Path(temporary).replace(path)
    except BaseException as error:
        if isinstance(error, Exception) or not written:  # after Ctrl-C the next call continues
            Path(temporary).unlink(missing_ok=True)
        raise
    if before:
        with suppress(OSError):
            before.unlink(missing_ok=True)
    return num_continued


def _batches_before(
    part: Path | None, schema: pa.Schema, most: int
) -> Iterator[tuple[pa.RecordBatch, CorpusReport, int]]:
    """Yield the record batches of an incomplete file, with the report up to each, while all is as written."""
    checksum = 0
    if part is None:
        return
    with suppress(OSError, pa.ArrowException, ValueError, StopIteration), part.open("rb") as file:
        file.seek(_STREAM)
        reader = pa.ipc.open_stream(file)
        for _ in range(most if reader.schema.equals(schema) else 0):
            batch, metadata = reader.read_next_batch_with_custom_metadata()
            report, expected = _read_metadata(metadata, _PROGRESS_KEY)
            batch.validate(full=True)
            checksum = _update_checksum(checksum, batch)
            if checksum != expected:
                return
            yield batch, report, checksum


def _schema(*, keep_text: bool) -> pa.Schema:
    columns = [pa.field(name, pa.list_(pa.int32())) for name in ("src", "tgt")]
    texts = [pa.field(name, pa.string()) for name in ("src_text", "tgt_text")]
    return pa.schema(columns + texts if keep_text else columns)


@dataclass(frozen=True)
class _Job:
    """A text to tokenise, and everything else that the ids depend on."""

    text: ParallelText
    tokenizers: TokenizerPair
    template: SpecialTokens
    max_length: int
    keep_text: bool
    rows: int  # of a record batch

    @cached_property
    def schema(self) -> pa.Schema:
        """The columns of the store."""
        return _schema(keep_text=self.keep_text)

    def fingerprint(self) -> str:
        """Return a hash of the text and of everything that the ids depend on."""
        each, text = self.template, self.text
        template = [each.src_prefix, each.src_suffix, each.tgt_prefix, each.tgt_suffix]
        settings = [self.tokenizers.fingerprint(), template, self.max_length, self.keep_text]
        digest = hashlib.sha256(json.dumps([_FORMAT, *settings, len(text), text.num_empty]).encode())
        for sentences in (text.src, text.tgt):
            for start in range(0, len(sentences), ROWS):
                # NUL cannot occur in a sentence, so different sentences never give the same bytes.
                digest.update("\0".join([*sentences[start : start + ROWS], ""]).encode())
        return digest.hexdigest()[:40]

    def batches(self, first: int, processes: int) -> Iterator[tuple[pa.RecordBatch, CorpusReport]]:
        """Yield the record batches from number `first` on, with the counts of each."""
        starts = range(first * self.rows, len(self.text), self.rows)
        if processes == 1 or len(starts) < _FEW_BATCHES:
            yield from map(self.encode, starts)
            return
        with ProcessPoolExecutor(
            processes, get_context("spawn"), initializer=_start_worker, initargs=(self,)
        ) as pool:
            with without_main_module():  # the first task starts the processes
                waiting = deque(pool.submit(_encode, start) for start in starts[: _AHEAD * processes])
            rest = iter(starts[_AHEAD * processes :])
            try:
                while waiting:
                    message, counts = waiting.popleft().result()
                    waiting.extend(pool.submit(_encode, start) for start in islice(rest, 1))
                    yield pa.ipc.read_record_batch(pa.py_buffer(message), self.schema), counts
            except BrokenProcessPool as error:
                raise CorpusError(
                    f"{self.text.name}: a process that tokenises ended unexpectedly (out of memory?); start "
                    "again, which continues from here, or set train.threads=1"
                ) from error
            finally:
                pool.shutdown(wait=True, cancel_futures=True)

    def encode(self, start: int) -> tuple[pa.RecordBatch, CorpusReport]:
        """Return the record batch of the pairs from `start` on, and its counts."""
        texts = self.text.src[start : start + self.rows], self.text.tgt[start : start + self.rows]
        ids = self.tokenizers.src.encode_batch(texts[0]), self.tokenizers.tgt.encode_batch(texts[1])
        # Normalisation may remove all characters of a text.
        filled = [i for i, pair in enumerate(zip(*ids, strict=True)) if all(pair)]
        src, tgt = [*map(self.template.source, ids[0])], [*map(self.template.target, ids[1])]
        retained = [i for i in filled if max(len(src[i]), len(tgt[i])) <= self.max_length]
        columns = [[column[i] for i in retained] for column in (src, tgt, *texts)][: len(self.schema)]
        arrays = map(pa.array, columns, self.schema.types)
        batch = pa.record_batch([*arrays], schema=self.schema)
        return batch, CorpusReport(
            num_read=0,  # counted before
            num_kept=len(retained),
            num_empty=len(src) - len(filled),
            num_too_long=len(filled) - len(retained),
            max_length=self.max_length,
            longest_src=max(map(len, src)),
            longest_tgt=max(map(len, tgt)),
            num_src_tokens=sum(map(len, columns[0])),
            num_tgt_tokens=sum(map(len, columns[1])),
        )


_JOBS: list[_Job] = []  # of this process, which tokenises for another one


def _start_worker(job: _Job) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C goes to all; the first process decides
    threading.Thread(target=_end_with_parent, daemon=True).start()
    set_threads("train.threads", 1)
    _JOBS.append(job)


def _end_with_parent() -> None:
    """End this process when the one that started it was killed."""
    parent = parent_process()
    assert parent is not None
    wait([parent.sentinel])
    os._exit(1)


def _encode(start: int) -> tuple[bytes, CorpusReport]:
    batch, counts = _JOBS[-1].encode(start)
    return batch.serialize().to_pybytes(), counts


def _nothing_left(text: ParallelText, report: CorpusReport) -> str:
    if report.num_too_long:
        return (
            f"{text.name}: no pair is left, {report.num_too_long:,} are longer than "
            f"data.max_length={report.max_length} tokens; raise data.max_length"
        )
    return f"{text.name}: no pair is left, all tokenise to nothing; check the text"


def _read(path: Path) -> tuple[list[pa.RecordBatch], CorpusReport, str]:
    """Return the record batches with rows, the report, and the hash in the name of the file or of its ids.

    The contents are verified, unless they are as when they were verified before.
    """
    of_cache = _HASH.fullmatch(path.stem) is not None
    with suppress(OSError, pa.ArrowException, ValueError):
        reader = pa.ipc.open_file(pa.memory_map(str(path)))
        *batches, last = map(reader.get_batch_with_custom_metadata, range(reader.num_record_batches))
        report, expected = _read_metadata(last[1], _REPORT_KEY)
        with_rows = [batch for batch, _ in batches]
        schemas = _schema(keep_text=False), _schema(keep_text=True)
        refuse_if((not with_rows or reader.schema not in schemas, "no store of ids"), error=ValueError)
        if not _is_verified(path):
            refuse_if((_verified_checksum(with_rows) != expected, "another checksum"), error=ValueError)
            _set_verified(path)
        ids = json.dumps([_FORMAT, asdict(report), expected]).encode()
        return with_rows, report, path.stem if of_cache else hashlib.sha256(ids).hexdigest()[:40]
    remedy = "it is rebuilt" if of_cache else "run heedful prepare --resume"
    problem = f"not a complete store of ids; delete it and {remedy}"
    if not (of_cache or path.exists()):
        problem = "there is no such store of ids; heedful prepare --resume writes it again"
    raise CorpusError(f"{path}: {problem}")


def _verified_checksum(batches: Sequence[pa.RecordBatch]) -> int:
    """Return the checksum of record batches; an error if one is not valid or has an empty cell."""
    checksum = 0
    for batch in batches:
        batch.validate(full=True)
        has_gaps = any(column.null_count for column in batch.columns)
        refuse_if((has_gaps, "a cell is empty"), error=ValueError)
        checksum = _update_checksum(checksum, batch)
    return checksum


def _metadata(key: bytes, report: CorpusReport, checksum: int) -> dict[bytes, str]:
    """Return what is stored beside a record batch: the counts and the checksum of the batches up to it."""
    return {key: json.dumps({"report": asdict(report), "checksum": checksum})}


def _read_metadata(metadata: Mapping[bytes, bytes] | None, key: bytes) -> tuple[CorpusReport, int]:
    """Return the counts and the checksum beside a record batch; ValueError if there are none."""
    names = [each.name for each in fields(CorpusReport)]
    match parse_json(metadata[key] if metadata and key in metadata else b""):
        case {"report": dict(report), "checksum": int(checksum)} if [*report] == names and all(
            map(is_whole, [checksum, *report.values()])
        ):
            return CorpusReport(**report), checksum
    raise ValueError("no report")


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
