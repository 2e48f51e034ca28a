"""A disk that is full, for as long as a block lasts: no file may grow beyond a size."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest


@contextmanager
def files_limited_to(num_bytes: int) -> Iterator[None]:
    """Writing more fails as on a full disk. POSIX only; elsewhere the test is skipped."""
    resource = pytest.importorskip("resource")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (num_bytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
