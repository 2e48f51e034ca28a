"""The files of prepared text in a cache directory: the least recently used go when there are too many."""

import os
import re
import time
from contextlib import suppress
from pathlib import Path

MOST_BYTES = 20 * 2**30
_UNTOUCHED = 24 * 3600.0  # seconds: what was used within them may be in use now
_STORE = re.compile(r"[0-9a-f]{40}\.arrow|[0-9a-f]{40}\..*\.tmp")  # the second: of a run that was killed


def note_use(path: Path) -> None:
    """Remember that a file was used now."""
    with suppress(OSError):  # of another user, or a file system that may only be read
        os.utime(path)


def tidy(directory: Path, *, most_bytes: int = MOST_BYTES) -> list[Path]:
    """Remove the least recently used files of ids until the rest fits; none of the last day. Returns them."""
    files = []
    for path in directory.iterdir():
        with suppress(OSError):  # another process may remove it first
            if _STORE.fullmatch(path.name):
                files.append((path.stat().st_mtime, path.stat().st_size, path))
    total, latest, removed = sum(size for _, size, _ in files), time.time() - _UNTOUCHED, []
    for used, size, path in sorted(files):
        is_left_over = path.suffix == ".tmp"
        if used > latest or (total <= most_bytes and not is_left_over):
            continue
        with suppress(OSError):
            path.unlink()
            removed.append(path)
            total -= size
    return removed
