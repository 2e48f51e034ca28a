"""Training text of any size: read once from its files, and kept in a temporary file while it is prepared.

Sources are text files, Parquet, and directories of the `datasets` library. Memory is that of a few thousand
pairs, whatever the size of the text.
"""

import errno
import os
import tempfile
from abc import abstractmethod
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from functools import partial
from itertools import accumulate, chain
from pathlib import Path
from typing import Any, overload

import pyarrow as pa
from typing_extensions import override

from heedful.data.cleaning.pair import faulty_by
from heedful.data.files import Chunk, FilledPairs, PairFiles, ParallelText, Report
from heedful.data.json_pairs import paths_of_key
from heedful.errors import CorpusError
from heedful.settings.parsing import parse_json, shown

ROWS = 8192  # of one block: read, tokenised and written at once
_PARQUET = ".parquet"
_INFO, _STATE, _SPLITS = "dataset_info.json", "state.json", "dataset_dict.json"  # of the datasets library
_SCHEMA = pa.schema([pa.field("text", pa.large_string())])


class _Lines(Sequence[str]):
    """A sequence of sentences that are read range by range."""

    @overload
    def __getitem__(self, index: int) -> str: ...

    @overload
    def __getitem__(self, index: slice) -> list[str]: ...

    @override
    def __getitem__(self, index: int | slice) -> str | list[str]:
        numbers = range(len(self))[index]
        if isinstance(numbers, int):
            return self._range(numbers, numbers + 1)[0]
        if not numbers:
            return []
        first, last = sorted((numbers[0], numbers[-1]))
        between = self._range(first, last + 1)
        return [between[number - first] for number in numbers]

    @abstractmethod
    def _range(self, start: int, stop: int) -> list[str]:
        """Return sentences from `start` to `stop`, of which there is at least one."""


class Sentences(_Lines):
    """A read-only sequence of the sentences in a file, of which one block is in memory.

    Args:
        path: an Arrow file with blocks of `ROWS` sentences.
        count: of its sentences.
        without_every: of so many sentences, the last one is left out; 0: none is.
    """

    def __init__(self, path: Path, count: int, *, without_every: int = 0) -> None:
        self._path, self._count, self._every = path, count, without_every
        self._reader: Any = None
        self._number, self._block = -1, list[str]()

    def __reduce__(self) -> tuple[object, tuple[object, ...]]:
        return partial(Sentences, without_every=self._every), (self._path, self._count)

    def __len__(self) -> int:
        return self._count - (self._count // self._every if self._every else 0)

    @override
    def __iter__(self) -> Iterator[str]:
        for start in range(0, len(self), ROWS):
            yield from self[start : start + ROWS]

    def without_every(self, number: int) -> "Sentences":
        """Return the sentences without the last of each so many."""
        return Sentences(self._path, self._count, without_every=number)

    @override
    def _range(self, start: int, stop: int) -> list[str]:
        if self._every:  # what is left out lies between
            start, stop = start + start // (self._every - 1), stop + (stop - 1) // (self._every - 1)
        sentences: list[str] = []
        for number in range(start // ROWS, (stop - 1) // ROWS + 1):
            first = number * ROWS
            sentences += self._load(number)[max(0, start - first) : stop - first]
        if self._every:
            del sentences[(self._every - 1 - start) % self._every :: self._every]
        return sentences

    def _load(self, number: int) -> list[str]:
        if number != self._number:
            if self._reader is None:
                self._reader = pa.ipc.open_file(pa.OSFile(str(self._path)))
            self._number, self._block = number, self._reader.get_batch(number).column(0).to_pylist()
        return self._block


@contextmanager
def open_text(
    files: PairFiles, directory: Path, *, filters: Sequence[str] = (), report: Report | None = None
) -> Iterator[ParallelText]:
    """Read a text of any size into temporary files, which are removed when the block ends.

    Args:
        files: the text.
        directory: for the temporary files, which are as large as the text.
        filters: of plugins; pairs in which one finds a fault are left out.
        report: called with the fraction that was read.

    Raises:
        CorpusError: the text is not usable, or the files cannot be written; filters leave nothing.
        ConfigError: there is no such filter.
    """
    is_faulty = faulty_by(filters) if filters else None
    pairs = FilledPairs(chunks(files, report=report), files, is_faulty=is_faulty)
    with ExitStack() as stack, writing_to(directory):
        directory.mkdir(parents=True, exist_ok=True)
        paths = [stack.enter_context(_temporary(directory)) for _ in range(2)]
        count = _write(paths, pairs)
        src, tgt = (Sentences(path, count) for path in paths)
        text = ParallelText(src, tgt, tuple(map(str, files.paths)), pairs.num_empty, pairs.num_faulty)
        if not count:
            raise CorpusError(f"{files.name}: data.filters={','.join(filters)} leave no pair")
        stack = stack.pop_all()
    with stack:
        yield text


class _Joined(_Lines):
    """Several sequences of sentences as one, without a copy."""

    def __init__(self, parts: Sequence[Sequence[str]]) -> None:
        self._parts = parts
        self._starts = [*accumulate(map(len, parts), initial=0)]

    def __len__(self) -> int:
        return self._starts[-1]

    @override
    def _range(self, start: int, stop: int) -> list[str]:
        sentences: list[str] = []
        while start < stop:
            number = bisect_right(self._starts, start) - 1
            first = self._starts[number]
            sentences += self._parts[number][start - first : stop - first]
            start = self._starts[number + 1]
        return sentences

    @override
    def __iter__(self) -> Iterator[str]:
        return chain.from_iterable(self._parts)


def joined(texts: Sequence[ParallelText]) -> ParallelText:
    """Return several texts as one, without a copy."""
    src, tgt = _Joined([text.src for text in texts]), _Joined([text.tgt for text in texts])
    names = tuple(name for text in texts for name in text.sources)
    empty, faulty = sum(text.num_empty for text in texts), sum(text.num_faulty for text in texts)
    return ParallelText(src, tgt, names, empty, faulty)


def load_text(files: PairFiles) -> ParallelText:
    """Read a text into memory.

    Raises:
        CorpusError: it is not usable.
    """
    pairs = FilledPairs(chunks(files), files)
    blocks = [*pairs]
    src, tgt = ([*chain.from_iterable(texts)] for texts in zip(*blocks, strict=True))
    return ParallelText(src, tgt, tuple(map(str, files.paths)), pairs.num_empty)


def hold_out(text: ParallelText, every: int) -> tuple[ParallelText, ParallelText]:
    """Return a text without the last of each so many pairs, and these pairs, in memory."""
    assert isinstance(text.src, Sentences)
    assert isinstance(text.tgt, Sentences)
    rest = replace(text, src=text.src.without_every(every), tgt=text.tgt.without_every(every))
    indices = range(every - 1, len(text), every)
    src, tgt = ([sentences[i] for i in indices] for sentences in (text.src, text.tgt))
    return rest, replace(text, src=src, tgt=tgt)


@contextmanager
def writing_to(directory: Path) -> Iterator[None]:
    """Name the directory of prepared text in the error when it cannot be written.

    Raises:
        CorpusError: instead of an OSError.
    """
    try:
        yield
    except OSError as error:
        problem = "the disk is full" if error.errno == errno.ENOSPC else error.strerror or str(error)
        raise CorpusError(
            f"{directory}: ids cannot be written ({problem}); free some space or set data.cache_dir"
        ) from error


@contextmanager
def _temporary(directory: Path) -> Iterator[Path]:
    """Create a file, named as those that the eviction of stores removes after a kill."""
    handle, name = tempfile.mkstemp(dir=directory, prefix=f"{os.urandom(20).hex()}.", suffix=".tmp")
    os.close(handle)
    try:
        yield Path(name)
    finally:
        with suppress(OSError):  # open elsewhere, on Windows
            Path(name).unlink()


def _write(paths: Sequence[Path], pairs: Iterable[Chunk]) -> int:
    """Write sources and targets in blocks of `ROWS`, and return the number of pairs."""
    count = 0
    waiting: Chunk = ([], [])
    with ExitStack() as stack:
        files = [stack.enter_context(path.open("wb")) for path in paths]
        writers = [stack.enter_context(pa.ipc.new_file(file, _SCHEMA)) for file in files]

        def write(rows: int) -> None:
            for writer, sentences in zip(writers, waiting, strict=True):
                writer.write_batch(pa.record_batch([pa.array(sentences[:rows], pa.large_string())], _SCHEMA))
                del sentences[:rows]

        for chunk in pairs:
            for sentences, more in zip(waiting, chunk, strict=True):
                sentences += more
            count += len(chunk[0])
            while len(waiting[0]) >= ROWS:
                write(ROWS)
        if waiting[0]:
            write(len(waiting[0]))
    return count


def chunks(files: PairFiles, *, report: Report | None = None) -> Iterator[Chunk]:
    """Read the pairs of any source in order, empty ones included, in lists of a few thousand.

    Raises:
        CorpusError: a source that cannot be read, when its faulty part is reached.
    """
    if files.kind != "table":
        yield from files.chunks(report)
        return
    path, name, number = files.paths[0], files.name, 0
    try:
        for batch, share in _table_batches(path, (files.src_key, files.tgt_key)):
            src, tgt = (
                _texts(name, number, batch, key, path=_find(name, batch.schema, key))
                for key in (files.src_key, files.tgt_key)
            )
            yield src, tgt
            number += batch.num_rows
            if report:
                report(share)
    except (OSError, ValueError, pa.ArrowException) as error:
        reason = " ".join(str(error).split()) or type(error).__name__
        raise CorpusError(f"{name}: cannot be read as a table ({reason}); write it again") from error
    if number == 0:
        raise CorpusError(f"{name}: the table has no rows; give one with text")


def _table_batches(path: Path, keys: tuple[str, str]) -> Iterator[tuple[pa.RecordBatch, float]]:
    """Yield record batches with at least the named columns, and the fraction that was read with each."""
    import pyarrow.parquet as pq

    if path.is_dir() and (path / _STATE).exists():
        files = _dataset_files(path)
        for i, file in enumerate(files, start=1):
            with pa.OSFile(str(file)) as source, pa.ipc.open_stream(source) as reader:
                for batch in reader:
                    for start in range(0, batch.num_rows, ROWS):
                        yield batch.slice(start, ROWS), i / len(files)
        return
    files = sorted(path.glob(f"*{_PARQUET}")) if path.is_dir() else [path]
    if not files:
        raise CorpusError(_no_table(path))
    for i, file in enumerate(files):
        if not file.exists():
            raise CorpusError(f"{file}: no such file; check the path")
        with pq.ParquetFile(file) as table:
            columns = [_find(str(file), table.schema_arrow, key) for key in keys]
            read = 0
            for batch in table.iter_batches(ROWS, columns=[".".join(column) for column in columns]):
                read += batch.num_rows
                yield batch, (i + read / table.metadata.num_rows) / len(files)


def _dataset_files(directory: Path) -> list[Path]:
    """Return the Arrow files of a directory that `Dataset.save_to_disk` wrote."""
    state = parse_json((directory / _STATE).read_bytes())
    listed = state.get("_data_files") if isinstance(state, dict) else None
    names = [each.get("filename") if isinstance(each, dict) else None for each in listed or ()]
    if not names or not all(isinstance(name, str) for name in names):
        raise ValueError(f"{_STATE} names no files")
    return [directory / Path(str(name)).name for name in names]


def _no_table(path: Path) -> str:
    if (path / _SPLITS).exists():
        splits = ", ".join(sorted(each.name for each in path.iterdir() if (each / _INFO).exists()))
        return f"{path}: has several splits ({splits}); give the directory of one of them"
    return f"{path}: neither Parquet files nor a directory of Dataset.save_to_disk; give one of these"


def _find(name: str, schema: pa.Schema, key: str) -> list[str]:
    """Return the column of a key, or the column and the fields of structs, as `paths_of_key` has them."""
    for path in paths_of_key(key):
        kind, fields = None, list(schema)
        for part in path:
            named = [field.type for field in fields if field.name == part]
            if len(named) > 1:
                raise CorpusError(f"{name}: has the column {part!r} twice; rename one of them")
            kind = named[0] if named else None
            fields = list(kind) if kind is not None and pa.types.is_struct(kind) else []
        if kind is not None:
            break
    else:
        inner = {field.name: field.type for field in schema}.get("translation", pa.null())
        names = [field.name for field in inner] if pa.types.is_struct(inner) else schema.names
        has = ", ".join(map(shown, names[:5])) or "none"
        raise CorpusError(f"{name}: no column {key!r} (it has {has}); set data.src_key and data.tgt_key")
    value = kind.value_type if pa.types.is_dictionary(kind) else kind
    if value not in (pa.string(), pa.large_string(), pa.string_view()):
        raise CorpusError(f"{name}: column {key!r} is of type {kind}, not text; name another one")
    return path


def _texts(name: str, number: int, batch: pa.RecordBatch, key: str, *, path: list[str]) -> list[str]:
    """Return the texts of a column on one line each; a missing one is empty."""
    column: Any = batch.column(path[0])
    for part in path[1:]:
        column = column.field(part)
    texts: list[str] = column.to_pylist()
    for row, text in enumerate(texts):
        if text is None:
            texts[row] = ""
        elif "\0" in text:
            raise CorpusError(f"{name}: row {number + row + 1:,}: NUL character in {key!r}; remove it")
        elif "\n" in text:
            texts[row] = " ".join(text.split("\n"))
    return texts
