"""A file of JSON Lines that several processes share: what is added is on the disk before the call returns.

A kill at any point leaves whole lines, and perhaps the beginning of one that nobody was told about: it is not
read, and the next writer removes it.
"""

import errno
import json
import os
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from io import FileIO
from pathlib import Path

import filelock

from heedful import InputError
from heedful.runtime.durable import sync, why_not_written
from heedful.serving.access import locked, put_private_file
from heedful.serving.refusals import UnavailableError


class Journal:
    """The lines of a file, which `add` receives in order, first those that are there already."""

    def __init__(self, path: Path, add: Callable[[bytes], object], restart: Callable[[], object]) -> None:
        """Take the path of the file, which need not exist.

        Args:
            path: the path of the file.
            add: receives each line once; a ValueError says that it is none of this file.
            restart: called before the first line of a file that has replaced another.
        """
        self.path, self._add, self._restart = path, add, restart
        self.lock = threading.RLock()  # of what `add` changes
        self._file, self._size = 0, 0  # inode, and the bytes that were read

    @property
    def num_unread(self) -> int:
        """The bytes that another process may have added since the last call of `refresh`."""
        with suppress(FileNotFoundError):
            return abs(self.path.stat().st_size - self._size)
        return 0

    def refresh(self) -> None:
        """Read what was added since the last call, by this process or another.

        Raises:
            UnavailableError: the file cannot be read, or holds something else.
        """
        try:
            self.read()
        except (OSError, ValueError):
            self._file = 0  # all of it is read again
            raise UnavailableError(f"{self.path.name} cannot be read", retry_after=60) from None

    def read(self) -> None:
        """Read as `refresh` does.

        Raises:
            OSError: the file cannot be read.
            ValueError: it holds something else.
        """
        with self.lock:
            try:
                status = self.path.stat()
            except FileNotFoundError:
                if self._file:  # it was deleted
                    self._restart()
                    self._file = self._size = 0
                return
            if status.st_ino == self._file and status.st_size == self._size:
                return
            if status.st_ino != self._file or status.st_size < self._size:
                self._restart()
                self._file, self._size = status.st_ino, 0
            with self.path.open("rb") as file:
                file.seek(self._size)
                for line in file:
                    if not line.endswith(b"\n"):
                        if not self._size:
                            _check_half_line(line)
                        break
                    self._add(line)
                    self._size += len(line)

    @contextmanager
    def changing(self, what: str) -> Iterator[Callable[[Iterable[str]], None]]:
        """Let no other process change the file in the block; yield what adds lines, all of them or none.

        Raises:
            UnavailableError: the file cannot be read or written, or another process does not unlock it; the
                message names `what`.
        """
        try:
            with locked(self.path):
                self.refresh()
                yield self._append
                self.refresh()
        except filelock.Timeout:
            raise UnavailableError(f"{what} are being changed; try again", retry_after=5) from None
        except OSError as error:
            message = f"{what} cannot be written: {why_not_written(error)}"
            raise UnavailableError(message, retry_after=60) from None

    def replace(self, lines: Iterable[str]) -> None:
        """Put a file with these lines in the place of this one, in a block of `changing`."""
        put_private_file(self.path, "".join(f"{line}\n" for line in lines))

    def _append(self, lines: Iterable[str]) -> None:
        content = "".join(f"{line}\n" for line in lines).encode()
        is_new = not self.path.exists()
        with self._opened() as file:
            file.truncate(self._size)  # without the half line of a process that was killed
            try:
                if file.write(content) < len(content):
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
                os.fsync(file.fileno())
            except OSError:
                file.truncate(self._size)
                raise
        if is_new:
            sync(self.path.absolute().parent)

    def _opened(self) -> FileIO:
        """Open the file to add to it; a new one is its owner's alone."""
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | getattr(os, "O_BINARY", 0)
        return FileIO(os.open(self.path, flags, 0o600), "ab")


def _check_half_line(text: bytes) -> None:
    """Raise a ValueError if a file of one line without its end is no beginning of a journal.

    The next writer would remove it, and it may be another file, which was named by mistake.
    """
    is_whole = True
    try:
        json.loads(text)
    except ValueError:
        is_whole = False
    if is_whole or not text.startswith(b'{"'):
        raise ValueError("it holds something else")


def check_parent(path: Path) -> None:
    """Check that a file can have this path.

    Raises:
        InputError: there is no directory for it.
    """
    if not path.absolute().parent.is_dir():
        raise InputError(f"{path}: there is no directory {path.absolute().parent}; make it")
