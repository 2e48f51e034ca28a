"""Detect that a run directory was moved or removed during training."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from heedful.errors import RunError


class DirectoryGuard:
    """Checks that the directory at a path is still the one that training started in."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._original: os.stat_result | None = None

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Compare with the current directory until the block ends.

        It is kept open: some network file systems change the inode of a directory that nobody has open.
        """
        descriptor = None if os.name == "nt" else os.open(self.path, os.O_RDONLY)
        try:
            self._original = self.path.stat()
            yield
        finally:
            self._original = None
            if descriptor is not None:
                os.close(descriptor)

    def check(self) -> None:
        """Check that the directory is the same.

        Raises:
            RunError: it is gone, or another one has its path.
        """
        if self._original is None:
            return
        try:
            is_there = os.path.samestat(self.path.stat(), self._original)
        except FileNotFoundError:
            is_there = False
        if not is_there:
            raise RunError(
                f"{self.path}: was moved or removed during training, and nothing is written there any more; "
                "continue from its last checkpoint with --resume --output and its new path"
            )
