"""Disks at their worst: full, or without power a moment later."""

import os
from collections.abc import Iterator
from contextlib import contextmanager

import pytest


@contextmanager
def files_limited_to(num_bytes: int) -> Iterator[None]:
    """No file may grow beyond a size, as on a full disk. POSIX only; elsewhere the test is skipped."""
    resource = pytest.importorskip("resource")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (num_bytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def record_syncs(monkeypatch: pytest.MonkeyPatch) -> set[int]:
    """The inode of every file that is synced to the disk from now on."""
    synced: set[int] = set()
    real = os.fsync

    def fsync(descriptor: int) -> None:
        real(descriptor)
        synced.add(os.fstat(descriptor).st_ino)

    monkeypatch.setattr(os, "fsync", fsync)
    return synced
