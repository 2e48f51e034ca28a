"""Training text of any size: read once from its files, and kept in a temporary file while it is prepared.

It takes the memory of a few thousand pairs, for a text of any size.
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
from heedful.errors import CorpusError

ROWS = 8192  # of one block: read, tokenised and written at once
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
        """Return the sentences from `start` to `stop`, at least one."""


class Sentences(_Lines):
    """A read-only sequence of the sentences in a file; one block of it is in memory.

    The Arrow file has blocks of `ROWS` sentences; with `without_every`, the last sentence of each group of
    this size is left out.
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
        """Return the sentences without the last of each group of this size."""
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

    They are as large as the text. Pairs in which a filter of a plugin finds a fault are left out; `report` is
    called with the fraction that was read.
    """
    pairs = FilledPairs(files, is_faulty=faulty_by(filters) if filters else None, report=report)
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


def hold_out(text: ParallelText, every: int) -> tuple[ParallelText, ParallelText]:
    """Return a text without the last pair of each group of this size, and these pairs, in memory."""
    assert isinstance(text.src, Sentences)
    assert isinstance(text.tgt, Sentences)
    rest = replace(text, src=text.src.without_every(every), tgt=text.tgt.without_every(every))
    indices = range(every - 1, len(text), every)
    src, tgt = ([sentences[i] for i in indices] for sentences in (text.src, text.tgt))
    return rest, replace(text, src=src, tgt=tgt)


@contextmanager
def writing_to(directory: Path) -> Iterator[None]:
    """Turn an OSError into a CorpusError that names the directory of prepared text."""
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
