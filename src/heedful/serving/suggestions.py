"""Better translations from clients, in a file with a line of JSON for each."""

import errno
import os
from datetime import datetime
from io import FileIO
from pathlib import Path

import filelock
from pydantic import BaseModel

from heedful import InputError
from heedful.runtime.durable import why_not_written
from heedful.serving.access import locked
from heedful.serving.refusals import UnavailableError


class Suggestion(BaseModel):
    """A better translation, and who sent it when.

    Attributes:
        client: the name of the key; "" without keys.
    """

    time: datetime
    client: str
    source: str
    target: str
    q: str
    s: str


class SuggestionFile:
    """A file to which several processes may add; a suggestion is on the disk before it is answered."""

    def __init__(self, path: Path) -> None:
        """Take the path of the file, which need not exist.

        Raises:
            InputError: there is no directory for it.
        """
        self._path = path
        if not path.absolute().parent.is_dir():
            raise InputError(f"{path}: there is no directory {path.absolute().parent}; make it")

    def add(self, suggestion: Suggestion) -> None:
        """Add a line.

        Raises:
            UnavailableError: the file cannot be written, or another process does not unlock it.
        """
        line = f"{suggestion.model_dump_json()}\n".encode()
        try:
            with locked(self._path), self._opened() as file:
                end = file.seek(0, os.SEEK_END)
                try:
                    if file.write(line) < len(line):
                        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
                    os.fsync(file.fileno())
                except OSError:
                    file.truncate(end)  # no half line stays
                    raise
        except filelock.Timeout:
            raise UnavailableError("the suggestions are being changed; try again", retry_after=5) from None
        except OSError as error:
            message = f"the suggestion cannot be written: {why_not_written(error)}"
            raise UnavailableError(message, retry_after=60) from None

    def _opened(self) -> FileIO:
        """Open the file to add to it; a new one is its owner's alone."""
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | getattr(os, "O_BINARY", 0)
        return FileIO(os.open(self._path, flags, 0o600), "ab")
