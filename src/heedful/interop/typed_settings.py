"""Read the values of a settings file by type; a wrong one is an error that names file and key."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from heedful.errors import InteropError
from heedful.parsing import is_whole, shown

MAX_NUMBER = 2**31 - 1  # of ids and sizes


@dataclass(frozen=True)
class TypedSettings:
    """Typed values of a settings file; a missing key or null gives None.

    Attributes:
        values: by key.
        file: for error messages.
    """

    values: Mapping[str, Any]
    file: Path

    def whole_number(self, key: str) -> int | None:
        """Return an id, a size or a count; InteropError for anything else."""
        value = self.values.get(key)
        if value is None:
            return None
        if is_whole(value, most=MAX_NUMBER):
            return int(value)
        raise self._error(key, f"must be a whole number from 0 to {MAX_NUMBER:,}")

    def number(self, key: str) -> float | None:
        """Return a finite number; InteropError for anything else."""
        value = self.values.get(key)
        if value is None:
            return None
        if isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < MAX_NUMBER:
            return float(value)
        raise self._error(key, "must be a number")

    def text(self, key: str) -> str | None:
        """Return a text; InteropError for anything else."""
        value = self.values.get(key)
        if value is None or isinstance(value, str):
            return value
        raise self._error(key, "must be a text")

    def _error(self, key: str, problem: str) -> InteropError:
        return InteropError(f"{self.file}: {key}={shown(self.values[key])}: {problem}")
