"""Safetensors files, read without torch: the shapes in their header, and their arrays.

Who reads adds the name of the file and what to do: every problem is a `ValueError` whose message is a phrase.
"""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open

from heedful.parsing import shown

_FLOATS = ("F64", "F32", "F16", "BF16")


def safetensors_shapes(path: Path) -> dict[str, tuple[int, ...]]:
    """Return the shape of each tensor in a safetensors file, all of floats, without reading the numbers.

    Raises:
        ValueError: it cannot be read, or holds something else.
    """
    shapes: dict[str, tuple[int, ...]] = {}
    try:
        with utf_8_name(path) as named, safe_open(named, framework="np") as file:
            names = file.keys()
            for name in names:
                part = file.get_slice(name)
                if part.get_dtype() not in _FLOATS:
                    raise ValueError(f"{shown(name)} is of type {part.get_dtype()}, not of floats")
                shapes[name] = tuple(part.get_shape())
    except (OSError, SafetensorError, UnicodeError) as error:
        raise ValueError(f"cannot be read: {one_line(error)}") from None
    return shapes


class SafetensorsArrays:
    """The arrays of a safetensors file, each read when it is asked for."""

    def __init__(self, path: Path) -> None:
        """Open a file of floats.

        Raises:
            ValueError: it cannot be read.
        """
        self._path = path
        self._state = _state(path) or (0, 0, 0)
        try:
            with utf_8_name(path) as named:
                self._file: Any = safe_open(named, framework="np")
        except (OSError, SafetensorError, UnicodeError) as error:
            raise ValueError(f"cannot be read: {one_line(error)}") from None

    def __getitem__(self, name: str) -> NDArray[np.float32]:
        """Return a copy of an array, in float32.

        Raises:
            ValueError: it cannot be read, or the file was written to since it was opened.
        """
        now = _state(self._path)
        if now is not None and now[0] == self._state[0] and now != self._state:  # the same file, changed
            raise ValueError("was written to while it was read")
        try:
            array: NDArray[np.generic] = self._file.get_tensor(name)
        except (OSError, SafetensorError, TypeError, AttributeError) as error:
            raise ValueError(f"{shown(name)} cannot be read: {one_line(error)}") from None
        return array.astype(np.float32, copy=False)


def _state(path: Path) -> tuple[int, int, int] | None:
    """Return a file's inode, size and time of change; None where there is none any more."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_ino, status.st_size, status.st_mtime_ns


@contextmanager
def utf_8_name(path: Path) -> Iterator[Path]:
    """Give a path to the same file that is UTF-8, for safetensors knows no others."""
    try:
        str(path).encode("utf-8")
    except UnicodeEncodeError:
        with tempfile.TemporaryDirectory() as folder:
            link = Path(folder, "link")
            link.symlink_to(path.absolute())
            yield link
    else:
        yield path


def one_line(error: Exception) -> str:
    """Return the beginning of the first line of an error's message."""
    lines = str(error).strip().splitlines() or [type(error).__name__]
    return lines[0][:120]
