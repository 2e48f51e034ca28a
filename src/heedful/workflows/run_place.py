"""The place of a run directory, which somebody may move or remove while the run is trained."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from heedful.errors import RunError


class RunPlace:
    """Notices that the directory at a path is no longer the one that training began in."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._begun_in: os.stat_result | None = None

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Compare with the directory as it is now until the block ends.

        It stays open: some network file systems number a directory anew when nobody has it open.
        """
        descriptor = None if os.name == "nt" else os.open(self.path, os.O_RDONLY)
        try:
            self._begun_in = self.path.stat()
            yield
        finally:
            self._begun_in = None
            if descriptor is not None:
                os.close(descriptor)

    def check(self) -> None:
        """Refuse to write where the directory was.

        Raises:
            RunError: it is gone, or another is in its place.
        """
        if self._begun_in is None:
            return
        try:
            is_there = os.path.samestat(self.path.stat(), self._begun_in)
        except FileNotFoundError:
            is_there = False
        if not is_there:
            raise RunError(
                f"{self.path}: was moved or removed while the run was trained, and nothing is written there "
                "any more; continue from its last checkpoint with --resume --output and its new path"
            )
