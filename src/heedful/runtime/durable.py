"""Atomic writes: directories and files that are complete or absent even after a power failure.

What is written has a temporary name until then: one of this process alone, or the name is locked meanwhile
(`claimed`). Two processes never write one another's files. Descriptors that the shell has opened, devices and
pipes are written to, never replaced.
"""

import errno
import itertools
import os
import re
import shutil
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from safetensors import SafetensorError

from heedful.errors import HeedfulError, RunError

# Suffixes that no other program uses. Files with one of the first three are leftovers, and may be removed.
ASIDE = ".heedful-old"
WRITING = ".heedful-writing"
LOCK = ".heedful-lock"
UNFINISHED = ".unfinished"  # the suffix of an output that is not complete; --resume needs it
_GZIP = b"\x1f\x8b"  # the first bytes of a gzip file
_EMPTY_GZIP = 20  # bytes of the file of an empty text
DISK_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
_DENIED = {errno.EACCES, errno.EPERM, errno.EROFS}
_DESCRIPTOR = re.compile(r"/(?:dev|proc/(?P<process>\d+)(?:/task/\d+)?)/fd/(?P<number>\d+)")
_MOST_LINKS = 40  # as in Linux
_STANDARD = (1, 2)  # stdout, stderr


def replace_directory(path: Path, temporary: Path) -> None:
    """Sync a directory with all its files and rename it to `path`, replacing an existing one.

    If that fails (OSError), the existing directory is restored, now or by `restore_backup`.
    """
    if path.is_symlink() or path.is_file():
        raise OSError(errno.EEXIST, "it is a link or a file", str(path))
    for file in temporary.rglob("*"):
        sync(file)
    sync(temporary)
    restore_backup(path)
    backup = backup_path(path)
    if path.exists():
        path.rename(backup)
    try:
        temporary.rename(path)
    except BaseException:
        restore_backup(path)
        raise
    sync(path.parent)
    shutil.rmtree(backup, ignore_errors=True)


def restore_backup(path: Path) -> None:
    """Undo an incomplete replacement: if there is no directory at `path`, restore the older one."""
    backup = backup_path(path)
    if backup.exists() and not path.exists():
        backup.rename(path)
    shutil.rmtree(backup, ignore_errors=True)


def write_atomically(path: Path, content: str | bytes) -> None:
    """Write a file whole, as `atomic_output` does; after an OSError an existing file is unchanged."""
    with named_in_errors(path), atomic_output(path) as file:
        file.write(content.encode() if isinstance(content, str) else content)


@contextmanager
def locked(path: Path, *, timeout: float = -1) -> Iterator[bool]:
    """Yield whether the name of a file or directory could be locked, for this thread of this process.

    The lock is a hidden file beside it. The lock of a process that is killed is open again. Another one is
    waited for `timeout` seconds; -1: until it is done.
    """
    import filelock  # slow to import

    if not path.parent.is_dir():  # filelock would make it
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))
    file = path.with_name(f".{path.name}{LOCK}")
    lock = filelock.FileLock(file)
    try:
        lock.acquire(timeout=timeout)
    except filelock.Timeout:
        yield False
        return
    except OSError as error:
        error.filename = str(path)
        raise
    try:
        yield True
    finally:
        with suppress(OSError):  # Windows keeps a file that is open
            file.unlink()
        lock.release()


@contextmanager
def claimed(path: Path) -> Iterator[None]:
    """Lock the name of a file or directory that is written in the block; RunError: another one writes it."""
    with locked(path, timeout=0) as is_ours:
        if not is_ours:
            raise RunError(f"{path}: another process is writing it; wait, or give another name")
        yield


@contextmanager
def atomic_output(path: Path, *, temporary: Path | None = None, keep: bool = False) -> Iterator[BinaryIO]:
    """Yield a stream into a file that gets its name, synced, after the block; an existing file is replaced.

    What must not be replaced, such as a pipe, is written directly.

    Args:
        path: of the file.
        temporary: the file until then, which no other process writes; None: a hidden one, while `path` is
            claimed.
        keep: whether what was written stays there after an error.

    Raises:
        RunError: another process is writing the file.
    """
    if not is_replaceable(path):
        with _opened_in_place(path) as stream:
            yield stream
        return
    if temporary is None:
        with claimed(path), atomic_output(path, temporary=writing_at(path), keep=keep) as stream:
            yield stream
        return
    with kept_after_error(temporary) if keep else _removed_at_the_end(temporary, path):
        with temporary.open("wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        replace_file(path, temporary)


def replace_file(path: Path, temporary: Path) -> None:
    """Rename a file that is on the disk to `path`; an existing file is replaced, and its mode copied."""
    if path.exists():
        shutil.copymode(path, temporary)
    temporary.replace(path)
    sync(path.parent)


@contextmanager
def _removed_at_the_end(temporary: Path, path: Path) -> Iterator[None]:
    """Remove a file after the block, unless it was renamed to `path`; the error of a full disk names that."""
    try:
        yield
    except OSError as error:
        if error.errno in DISK_FULL:
            error.filename = error.filename or str(path)
        raise
    finally:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)


@contextmanager
def kept_after_error(unfinished: Path, *, remedy: Callable[[], str] = str) -> Iterator[None]:
    """After an error in the block, say that a file has what was done before; remove it if it has nothing.

    `remedy` returns the end of the message.
    """
    try:
        yield
    except BaseException as error:
        match error:
            case _ if _has_no_text(unfinished):
                unfinished.unlink(missing_ok=True)
            case OSError(errno=number) if number in DISK_FULL:
                error.filename = error.filename or str(unfinished)  # not set for a full disk
            case HeedfulError() | KeyboardInterrupt():
                what = str(error) or "interrupted"
                error.args = (f"{what} (what was done before is in {unfinished}{remedy()})",)
        raise


def _has_no_text(file: Path) -> bool:
    if not file.exists():
        return True
    with file.open("rb") as stream:
        head = stream.read(_EMPTY_GZIP + 1)
    return not head or (len(head) == _EMPTY_GZIP and head.startswith(_GZIP))


def new_file_beside(path: Path) -> Path:
    """Create the file that has the text of `path` until it is complete, under an unused name."""
    endings = itertools.chain([UNFINISHED], (f"{UNFINISHED}-{number}" for number in itertools.count(2)))
    while True:
        unfinished = path.with_name(path.name + next(endings))
        with suppress(FileExistsError):
            unfinished.touch(exist_ok=False)
            return unfinished


def _opened_in_place(path: Path) -> BinaryIO:
    """Open for writing what must not be replaced: an open descriptor, a device, a pipe, a socket."""
    status, number = status_of(path), descriptor_of(path)
    if number is None and status is not None and not stat.S_ISREG(status.st_mode):
        return path.open("wb")
    if number is None:
        number = next(each for each in _STANDARD if is_same_file(status_of(each), status))
    return os.fdopen(os.dup(number), "wb")


def is_replaceable(path: Path | None) -> bool:
    """Return whether a path names a regular file, or none yet, that is not stdout, stderr or a descriptor.

    None and `-` are stdout. Others have written to the file behind stdout or stderr, and go on.
    """
    if path is None or str(path) == "-" or descriptor_of(path) is not None:
        return False
    status = status_of(path)
    is_open = any(is_same_file(status_of(each), status) for each in _STANDARD)
    return status is None or (stat.S_ISREG(status.st_mode) and not is_open)


def descriptor_of(path: Path) -> int | None:
    """Return the descriptor of this process that a path names, as /dev/stdout and /dev/fd/3 do; else None.

    Links are followed one by one: the name of the file at their end says nothing about descriptors.
    """
    for _ in range(_MOST_LINKS):
        path = Path(os.path.realpath(path.absolute().parent), path.name)
        match = _DESCRIPTOR.fullmatch(path.as_posix())
        if match is not None and match["process"] in (None, str(os.getpid())):
            return int(match["number"])
        if not path.is_symlink():
            return None
        path = path.parent / path.readlink()
    return None


def status_of(target: Path | int) -> os.stat_result | None:
    """Return the status of the file behind a path or an open descriptor; None: there is none."""
    try:
        if isinstance(target, int):
            return os.fstat(target)
        number = descriptor_of(target)
        return target.stat() if number is None else os.fstat(number)
    except OSError:
        return None


def is_same_file(one: os.stat_result | None, other: os.stat_result | None) -> bool:
    """Return whether both are of one file or pipe; a terminal may well be read and written."""
    if one is None or other is None or stat.S_ISCHR(one.st_mode) or stat.S_ISSOCK(one.st_mode):
        return False
    return os.path.samestat(one, other)


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

    `error` is an OSError, or a library's error caused by one; `remedy` is for when neither space nor a
    permission is missing.
    """
    cause: BaseException | None = error
    while not isinstance(cause, OSError | None):  # a library may hide the system's error
        cause = cause.__context__
    if cause is None:
        cause = OSError(errno.ENOSPC if "No space left" in str(error) else None, str(error))
    reason = cause.strerror or str(error) or type(error).__name__
    if cause.errno in DISK_FULL - {errno.EFBIG}:
        remedy = "free some space"
    elif cause.errno in _DENIED:
        remedy = "allow that"
    return f"{reason[0].lower()}{reason[1:]}; {remedy}"


def writing_at(path: Path) -> Path:
    """Return the temporary path at which a file or directory is written before it is renamed to `path`."""
    return path.with_name(f".{path.name}{WRITING}")


def backup_path(path: Path) -> Path:
    """Return the path of the old directory while another replaces it."""
    return path.with_name(f".{path.name}{ASIDE}")


@contextmanager
def claimed_directory(path: Path) -> Iterator[Path]:
    """Claim a path and yield a hidden directory beside it; it is removed after the block, unless renamed.

    A RunError says that another process is writing the path.
    """
    temporary = writing_at(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    with claimed(path):
        shutil.rmtree(temporary, ignore_errors=True)
        temporary.mkdir()
        try:
            yield temporary
        finally:
            shutil.rmtree(temporary, ignore_errors=True)


@contextmanager
def new_directory(output: Path, *, option: str = "--output") -> Iterator[Path]:
    """Yield a temporary directory, which is renamed to `output` after the block; an error leaves nothing.

    Its files get the usual mode of new files, even if a library set another. If the output exists, is being
    written or cannot be written, the RunError names the option of the path.
    """
    _check_is_new(output, option)
    try:
        with claimed_directory(output) as unfinished:
            _check_is_new(output, option)  # another process may have made it meanwhile
            yield unfinished
            readable = unfinished.stat().st_mode & 0o666
            for file in filter(Path.is_file, unfinished.rglob("*")):
                file.chmod(readable)
            unfinished.rename(output)
    except (OSError, SafetensorError) as error:
        raise RunError(f"{output}: cannot be written: {why_not_written(error)}") from error


def _check_is_new(output: Path, option: str) -> None:
    if output.exists() or output.is_symlink():
        raise RunError(f"{output}: already exists; give another {option}")
