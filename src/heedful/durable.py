"""Directories and files that are on the disk whole or not at all, whenever the power fails."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_ASIDE = ".old"
_WRITING = ".writing"


def put_in_place(temporary: Path, path: Path) -> None:
    """Sync a finished directory with all its files, and rename it to `path`, in place of what is there.

    Raises:
        OSError: it cannot be; what was there is there again, or is brought back by `bring_back`.
    """
    for file in temporary.rglob("*"):
        sync(file)
    sync(temporary)
    bring_back(path)
    aside = aside_of(path)
    if path.exists():
        path.rename(aside)
    try:
        temporary.rename(path)
    except BaseException:
        bring_back(path)
        raise
    sync(path.parent)
    shutil.rmtree(aside, ignore_errors=True)


def bring_back(path: Path) -> None:
    """Undo a replacement that ended half-way: with no directory in its place, the older one returns to it."""
    aside = aside_of(path)
    if aside.exists() and not path.exists():
        aside.rename(path)
    shutil.rmtree(aside, ignore_errors=True)


def put_text_in_place(path: Path, text: str) -> None:
    """Write a file, synced, under a temporary name, and rename it to `path`.

    Raises:
        OSError: it cannot be; what was there is as it was.
    """
    temporary = path.with_name(f".{path.name}{_WRITING}")
    with named_in_errors(path), temporary.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)


@contextmanager
def named_in_errors(path: Path) -> Iterator[None]:
    """Let an OSError of the block say which file or directory it was: a full disk does not."""
    try:
        yield
    except OSError as error:
        error.filename = error.filename or str(path)
        raise


def sync(path: Path) -> None:
    """Write a file or directory from the system's memory to the disk."""
    if path.is_dir() and os.name == "nt":
        return  # a directory cannot be opened there
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def aside_of(path: Path) -> Path:
    """Return where the directory at `path` is for the moment in which another takes its place."""
    return path.with_name(f".{path.name}{_ASIDE}")
