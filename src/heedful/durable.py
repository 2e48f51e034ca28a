"""Atomic writes: directories and files that are complete or absent even after a power failure."""

import errno
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

# Suffixes that nobody else uses: files with one are leftovers and may be removed.
ASIDE = ".heedful-old"
WRITING = ".heedful-writing"
_FULL = {errno.ENOSPC, errno.EDQUOT}
_DENIED = {errno.EACCES, errno.EPERM, errno.EROFS}


def put_in_place(temporary: Path, path: Path) -> None:
    """Sync a directory with all its files and rename it to `path`, replacing an existing one.

    Raises:
        OSError: it fails; the existing directory is restored, now or by `bring_back`.
    """
    if path.is_symlink():
        raise OSError(errno.EEXIST, "it is a link", str(path))
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
    """Undo an incomplete replacement: if there is no directory at `path`, restore the older one."""
    aside = aside_of(path)
    if aside.exists() and not path.exists():
        aside.rename(path)
    shutil.rmtree(aside, ignore_errors=True)


def put_text_in_place(path: Path, text: str) -> None:
    """Write a file, synced, under a temporary name, and rename it to `path`.

    Raises:
        OSError: it fails; an existing file is unchanged.
    """
    temporary = writing_at(path)
    with named_in_errors(path), temporary.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)


@contextmanager
def named_in_errors(path: Path) -> Iterator[None]:
    """Add the path to an OSError of the block that has none, as for a full disk."""
    try:
        yield
    except OSError as error:
        error.filename = error.filename or str(path)
        raise


def sync(path: Path) -> None:
    """Flush a file or directory from the system's cache to the disk."""
    if path.is_dir() and os.name == "nt":
        return  # a directory cannot be opened there
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def why_not_written(error: BaseException, *, remedy: str = "choose another location") -> str:
    """Return why something could not be written, and what to do: "file too large; choose another location".

    Args:
        error: an OSError, or a library's error caused by one.
        remedy: if neither space nor a permission is missing.
    """
    cause: BaseException | None = error
    while cause is not None and not isinstance(cause, OSError):  # a library may hide the system's error
        cause = cause.__context__
    number = cause.errno if cause else errno.ENOSPC if "No space left" in str(error) else None
    reason = (cause.strerror if cause else None) or str(error) or type(error).__name__
    if number in _FULL:
        remedy = "free some space"
    elif number in _DENIED:
        remedy = "allow that"
    return f"{reason[0].lower()}{reason[1:]}; {remedy}"


def writing_at(path: Path) -> Path:
    """Return the temporary path at which a file or directory is written before it is renamed to `path`."""
    return path.with_name(f".{path.name}{WRITING}")


def aside_of(path: Path) -> Path:
    """Return the path of the old directory while another replaces it."""
    return path.with_name(f".{path.name}{ASIDE}")
