r"""Read and write text: UTF-8, one sentence a line; only `\n` ends a line."""

import gzip
import os
import stat
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import BinaryIO, Protocol, cast

from heedful.data.files import (
    BYTE_ORDER_MARK,
    DAMAGED,
    DAMAGES,
    GZIP,
    check_parallel,
    decode,
    decompressed,
    holds_units,
)
from heedful.data.markup import refuse_markup
from heedful.errors import CorpusError, InputError
from heedful.runtime.durable import atomic_output, claimed, descriptor_of, is_replaceable, new_file_beside

_LEVEL = 6  # as gzip's default
_STDOUT = 1


class Lines:
    """The lines of a stream, up to its end or the first bad line.

    A bad line ends the iteration silently, so that the lines before it are processed; call `raise_if_bad`
    afterwards.

    Attributes:
        name: the name of the stream, for messages.
    """

    def __init__(self, stream: BinaryIO, name: str) -> None:
        self._stream = stream
        self.name = name
        self._mistake: CorpusError | None = None

    def __iter__(self) -> Iterator[str]:
        try:
            for number, raw in enumerate(self._stream, start=1):
                line = self._without_mark(raw) if number == 1 else raw
                text = decode(line, self.name, line=number, offset=None)
                yield text.removesuffix("\n").removesuffix("\r")
        except CorpusError as mistake:
            self._mistake = mistake
        except DAMAGES:
            self._mistake = CorpusError(f"{self.name}: {DAMAGED}")

    def _without_mark(self, first: bytes) -> bytes:
        """Return the first line of a text without a byte order mark; a file comes decompressed."""
        if first.startswith(GZIP):
            raise CorpusError(f"{self.name}: is gzip; decompress it, as in zcat FILE | heedful ...")
        refuse_markup(self.name, first)
        return first.removeprefix(BYTE_ORDER_MARK)

    def raise_if_bad(self) -> None:
        """Raise the CorpusError that ended the iteration: NUL, invalid UTF-8, or a truncated gzip file."""
        if self._mistake is not None:
            raise self._mistake

    @property
    def share_read(self) -> float | None:
        """The fraction of a file that was read, 0 to 1, gzipped or not; None if the stream is no file."""
        plain = getattr(self._stream, "fileobj", None) or self._stream  # of a gzip file, the compressed one
        try:
            status = os.fstat(plain.fileno())
        except OSError:
            return None
        return plain.tell() / status.st_size if stat.S_ISREG(status.st_mode) and status.st_size else None

    def strictly(self) -> Iterator[str]:
        """Yield all lines; a bad one raises as `raise_if_bad`."""
        yield from self
        self.raise_if_bad()


def stdin_or(path: Path) -> Path:
    """Return a path, or for `-` the file that stdin is."""
    return Path("/dev/stdin") if str(path) == "-" else path


def is_text(path: Path) -> bool:
    """Return whether a path names lines, in a file or a pipe, and not a directory, such as a run."""
    path = stdin_or(path)
    return path.exists() and not path.is_dir()


@contextmanager
def open_input(path: Path | None) -> Iterator[tuple[BinaryIO, str]]:
    """Open a file (gzip too), or stdin for None or `-`; gives the stream and its name for messages."""
    if path is None or str(path) == "-":
        if sys.__stdin__ is None:  # whoever started the program has closed it
            raise CorpusError("stdin: is closed; give a file")
        yield sys.stdin.buffer, "stdin"
        return
    try:
        plain = path.open("rb")
    except OSError as error:
        raise CorpusError(f"{path}: cannot be read: {(error.strerror or str(error)).lower()}") from None
    with plain, decompressed(plain, str(path)) as stream:
        refuse_markup(str(path))
        yield stream, str(path)


def count_lines(path: Path) -> int | None:
    """Return the number of lines of a file (`.gz` too); None for streams."""
    if str(path) == "-" or (path.exists() and not path.is_file()):
        return None
    with open_input(path) as (stream, name):
        try:
            return sum(1 for _ in stream)
        except DAMAGES:
            raise CorpusError(f"{name}: {DAMAGED}") from None


def count_pairs(src: Path, tgt: Path) -> int | None:
    """Return the number of pairs of two files if it is known before they are read; None for two streams."""
    if holds_units(src, tgt):
        return None
    num_src, num_tgt = count_lines(src), count_lines(tgt)
    if num_src is not None and num_tgt is not None:
        check_parallel(str(src), range(num_src), str(tgt), range(num_tgt))
    return num_src if num_tgt is None else num_tgt


@contextmanager
def open_output(path: Path | None, *, at_once: bool = False, keep: bool = True) -> Iterator[BinaryIO]:
    """Open a file for writing, compressed if its name ends in .gz, or stdout for None or `-`.

    The file is written under a temporary name and renamed when it is complete. After an error, the part
    written so far stays as NAME.unfinished, and the message says so. If that name exists, it is
    NAME.unfinished-2, and so on. A pipe, a device or an open descriptor is written directly. With `at_once` a
    file is written under its final name, for programs that read along; without `keep` an error leaves
    nothing.
    """
    is_stdout = path is None or str(path) == "-" or descriptor_of(path) == _STDOUT
    if is_stdout and sys.__stdout__ is None:
        raise InputError("stdout: is closed; give a file with --output")
    if path is None or str(path) == "-":
        yield sys.stdout.buffer
        return
    for each in (sys.stdout, sys.stderr):  # what was written before comes first
        each.flush()
    with ExitStack() as stack:
        if not is_replaceable(path):
            file = stack.enter_context(atomic_output(path))
        elif at_once:
            stack.enter_context(claimed(path))
            file = stack.enter_context(path.open("wb"))
        else:
            target = Path(os.path.realpath(path))
            temporary = new_file_beside(target) if keep else None
            file = stack.enter_context(atomic_output(target, temporary=temporary, keep=keep))
        yield stack.enter_context(compressed(file, path.name))


@contextmanager
def compressed(file: BinaryIO, name: str) -> Iterator[BinaryIO]:
    """Yield a stream into a file, which compresses if the name ends in .gz; the same text, the same bytes."""
    if not name.lower().endswith(".gz"):
        yield file
        return
    with gzip.GzipFile(filename="", mode="wb", compresslevel=_LEVEL, fileobj=file, mtime=0) as packed:
        yield cast(BinaryIO, packed)


class Writable(Protocol):
    """A stream that bytes can be written to."""

    def write(self, text: bytes, /) -> object:
        """Write some bytes."""
        ...


def write_line(stream: Writable, text: str) -> None:
    """Write one line; line breaks inside the text become spaces."""
    stream.write((text.replace("\n", " ") + "\n").encode("utf-8", errors="replace"))


def clock(seconds: float) -> str:
    """Return a duration as minutes and seconds, or hours, minutes and seconds.

    >>> clock(3725)
    '1:02:05'
    """
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
