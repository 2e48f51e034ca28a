"""The cache of tokenised text: a directory from which the least recently used files are evicted."""

import os
import re
import time
from contextlib import suppress
from pathlib import Path

MAX_BYTES = 20 * 2**30
_IN_USE = 24 * 3600.0  # seconds since the last use, within which a file may still be open
_STORE = re.compile(r"[0-9a-f]{40}\.arrow|[0-9a-f]{40}\..*\.tmp")  # .tmp: left by a killed run


def mark_used(path: Path) -> None:
    """Set the time of a file's last use to now."""
    with suppress(OSError):  # another user's file, or a read-only file system
        os.utime(path)


def evict(directory: Path, *, max_bytes: int = MAX_BYTES) -> list[Path]:
    """Remove the least recently used files until the rest fits, but none of the last day; return them."""
    files = []
    for path in directory.iterdir():
        with suppress(OSError):  # another process may remove it first
            if _STORE.fullmatch(path.name):
                files.append((path.stat().st_mtime, path.stat().st_size, path))
    total, latest, removed = sum(size for _, size, _ in files), time.time() - _IN_USE, []
    for used, size, path in sorted(files):
        is_left_over = path.suffix == ".tmp"
        if used > latest or (total <= max_bytes and not is_left_over):
            continue
        with suppress(OSError):
            path.unlink()
            removed.append(path)
            total -= size
    return removed
