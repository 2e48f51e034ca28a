"""Directories that jobs read and write: of this machine, or of a file system of fsspec, named by a URL."""

import hashlib
import os
import re
import uuid
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from io import BufferedReader
from pathlib import Path
from typing import Any, BinaryIO

from heedful.errors import InputError, MissingExtraError, RunError, install_hint
from heedful.runtime.durable import WRITING, atomic_output, locked

_URL = re.compile(r"[a-z][a-z0-9+.-]*://", re.IGNORECASE)
_LEFTOVER = re.compile(
    r"\.{1,2}(?P<name>[^.].*?)\.([0-9a-f]{32}|heedful-lock|heedful-writing|translations\.unfinished.*)"
)

_BUFFER = 2**20  # bytes

Fingerprint = dict[str, Any]  # the size of a file and its checksum: bytes, sha256


@dataclass(frozen=True)
class Folder:
    """A directory.

    `url` is as the user wrote it, `path` the absolute path, or the path on `system`: a file system of fsspec,
    where nothing can be locked; None: this machine's.
    """

    url: str
    path: str
    system: Any = None

    @property
    def location(self) -> str:
        """The absolute path, or the URL."""
        return self.path if self.system is None else self.url

    @property
    def place(self) -> tuple[Any, Path]:
        """The file system and the path without links, to compare folders."""
        return self.system, Path(self.path).resolve()

    def of_file(self, name: str) -> str:
        """Return the path of a file."""
        return f"{self.path.rstrip('/')}/{name}"

    def beside(self, name: str, ending: str) -> Path:
        """Return the path of a hidden file beside a file, such as a lock; make its directory here."""
        file = Path(self.of_file(name))
        if self.system is None:
            if not file.parent.resolve().is_relative_to(Path(self.path).resolve()):
                raise RunError(f"{file}: a link there leads out of the directory; remove it")
            file.parent.mkdir(parents=True, exist_ok=True)
        return file.with_name(f".{file.name}{ending}")

    def exists(self) -> bool:
        """Return whether it is a directory."""
        return bool(self.system.isdir(self.path)) if self.system else Path(self.path).is_dir()

    def create(self) -> None:
        """Make the directory, unless it is there."""
        if self.system is None:
            Path(self.path).mkdir(parents=True, exist_ok=True)
        else:
            self.system.makedirs(self.path, exist_ok=True)

    def has(self, name: str) -> bool:
        """Return whether there is a file of this name."""
        path = self.of_file(name)
        return bool(self.system.isfile(path)) if self.system else Path(path).is_file()

    def files(self, *, recursive: bool = False) -> dict[str, int]:
        """Return the sizes of the files in bytes, by their names from the directory on; hidden files too."""
        if self.system is not None:
            found = self.system.find(self.path, maxdepth=None if recursive else 1, detail=True)
            return {path[len(self.of_file("")) :]: info["size"] for path, info in found.items()}
        sizes: dict[str, int] = {}
        for at, folders, names in os.walk(self.path):
            for path in (Path(at, name) for name in names):
                if path.is_file():
                    sizes[path.relative_to(self.path).as_posix()] = path.stat().st_size
            if not recursive:
                folders.clear()
        return sizes

    def shards(self) -> dict[str, int]:
        """Return the sizes of the files in bytes, hidden ones left out, by their names in order.

        An InputError tells of a name that is not UTF-8.
        """
        sizes = self.files()
        for name in sizes:
            if problem := why_not_utf_8(self.of_file(name)):
                raise InputError(problem)
        return {name: sizes[name] for name in sorted(sizes) if not name.startswith((".", "_"))}

    def open(self, name: str) -> BufferedReader:
        """Open a file for reading."""
        path = self.of_file(name)
        return BufferedReader(self.system.open(path), _BUFFER) if self.system else Path(path).open("rb")

    def fingerprint(self, name: str) -> Fingerprint:
        """Return the size of a file and its checksum."""
        with self.open(name) as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
            return {"bytes": file.seek(0, os.SEEK_END), "sha256": digest}

    def delete(self, name: str) -> None:
        """Delete a file."""
        if self.system is None:
            Path(self.of_file(name)).unlink()
        else:
            self.system.rm(self.of_file(name))

    def put(self, name: str, content: bytes) -> None:
        """Write a file that no other process writes meanwhile, such as a locked one."""
        with self.complete(name, ending=WRITING) as stream:
            stream.write(content)

    @contextmanager
    def complete(self, name: str, *, ending: str = "") -> Iterator[BinaryIO]:
        """Yield a stream into a new file, which gets its name when it is complete.

        Until then, its hidden name has this ending; by default, one that no other process has.
        """
        temporary = self.beside(name, ending or f".{uuid.uuid4().hex}")
        if self.system is None:
            with atomic_output(Path(self.of_file(name)), temporary=temporary) as stream:
                yield stream
            return
        try:
            with self.system.open(temporary.as_posix(), "wb") as stream:
                yield stream
            self.system.mv(temporary.as_posix(), self.of_file(name))
        except BaseException:
            with suppress(OSError):
                self.system.rm(temporary.as_posix())
            raise

    @contextmanager
    def locked(self, name: str, *, timeout: float = -1) -> Iterator[bool]:
        """Yield whether a file's name could be locked, as `durable.locked` does."""
        if self.system is not None:
            yield True
            return
        self.beside(name, "")  # makes its directory
        with locked(Path(self.of_file(name)), timeout=timeout) as is_ours:
            yield is_ours

    @contextmanager
    def claimed(self, name: str) -> Iterator[None]:
        """Lock a file's name; RunError if another process has it."""
        with self.locked(name, timeout=0) as is_ours:
            if not is_ours:
                file = self.of_file(name)
                raise RunError(f"{file}: another process is writing it; wait, or give another --output")
            yield

    def delete_leftovers(self, names: Iterable[str]) -> None:
        """Delete temporary files and locks of these names, which processes that were killed have left."""
        known = {*names}
        for path in self.files(recursive=True):
            folder, slash, name = path.rpartition("/")
            match = _LEFTOVER.fullmatch(name)
            if match is not None and f"{folder}{slash}{match['name']}" in known:
                self.delete(path)


def why_not_utf_8(file: str) -> str | None:
    """Return the message about a file with a name that is not UTF-8; None: it is."""
    shown = os.fsencode(file).decode(errors="backslashreplace")
    return None if shown == file else f"{shown}: the file's name is not UTF-8; rename it"


def folder_at(url: str) -> Folder:
    """Return the directory at a path or URL; fsspec, or what it needs for a URL, may not be installed."""
    if not url:
        raise InputError(f"{url!r}: the path is empty; give a directory")
    if not _URL.match(url):
        return Folder(url, str(Path(url).absolute()))
    try:
        import fsspec

        system, path = fsspec.core.url_to_fs(url)
    except ImportError as error:
        hint = install_hint("ray")
        raise MissingExtraError(f"{url}: {error}; {hint}, and the file system's package") from None
    except ValueError as error:
        raise InputError(f"{url}: {error}") from None
    return Folder(url, path, system)
