"""Read CTranslate2's model.bin: variables by name, which stay in the mapped file until they are used.

    u32 version; from 2 on: string spec, u32 revision; u32 number of variables
    a variable: string name, u8 rank, u32 sizes; u8 type, u32 bytes (before 4: u8 item size, u32 items);
    then the numbers
    from 3 on: u32 number of aliases; an alias: two strings

A string is a u16 length, which counts the NUL at its end, and its bytes. All numbers are little-endian.
"""

import math
import mmap
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from heedful.errors import InteropError
from heedful.interop.containers import Cursor, map_file, require
from heedful.settings.parsing import shown

_Numbers = NDArray[np.generic]  # as in the file
_Floats = NDArray[np.float32]
VERSIONS = range(2, 7)
_BFLOAT16 = "<u2"  # numpy has no such type; here, no other numbers are unsigned
_TYPES = dict(enumerate(("<f4", "<i1", "<i2", "<i4", "<f2", _BFLOAT16)))  # from version 4 on
_TYPES_BY_SIZE = {4: "<f4", 2: "<i2", 1: "<i1"}  # before
_MAX_RANK = 4
_LEAST_SCALE = 1e-30  # numbers divided by it are still finite


class ModelFile:
    """The variables of a model.bin; at first only names and shapes are read.

    Attributes:
        path: the file.
        version: the version of the format.
        spec: the name of the kind of model, such as "TransformerSpec".
    """

    def __init__(self, path: Path) -> None:
        """Map the file.

        Raises:
            InteropError: it is missing, damaged, or of a version that is not supported.
        """
        self.path = path
        self._variables: dict[str, _Numbers] = {}
        try:
            self._bytes = map_file(path)
            self._read(Cursor(self._bytes))
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or error
            raise InteropError(f"{path}: {reason}; give the directory of a CTranslate2 model") from None

    def require(self, is_right: bool, problem: str) -> None:  # noqa: FBT001
        """Raise an InteropError that names the file unless a condition holds."""
        if not is_right:
            raise InteropError(f"{self.path}: {problem}")

    def __contains__(self, name: str) -> bool:
        return name in self._variables

    def __iter__(self) -> Iterator[str]:
        return iter(self._variables)

    def shape(self, name: str) -> tuple[int, ...]:
        """Return the sizes of a variable; a scalar has none."""
        return self._variable(name).shape

    def scalar(self, name: str, default: float) -> float:
        """Return a scalar, or a default if there is none; InteropError if it is not one finite number."""
        if name not in self:
            return default
        values = _in_float32(self._variable(name))
        is_number = values.size == 1 and bool(np.isfinite(values).all())
        self.require(is_number, f"{name!r} of shape {values.shape} is not one finite number")
        return float(values.item())

    def text(self, name: str, default: str) -> str:
        """Return a text, or a default if there is none."""
        return self._variable(name).tobytes().decode(errors="replace") if name in self else default

    def is_flag(self, name: str) -> bool:
        """Return whether a variable has the type of flags, one byte."""
        return name in self and self._variable(name).dtype == np.int8

    def rows(self, name: str, rows: slice) -> _Floats:
        """Return rows of a variable in float32; quantised numbers are divided by their scale.

        Raises:
            InteropError: there is no such variable, or its scale is missing, of another shape, or 0.
        """
        stored = self._variable(name)
        values = _in_float32(stored[rows])
        if stored.dtype.kind != "i":
            return values
        scales = self._variable(f"{name}_scale")
        is_one = scales.shape in ((), (1,))
        is_right = scales.dtype == np.float32 and (is_one or scales.shape == stored.shape[:1])
        self.require(
            is_right, f"the scales of {name!r} have shape {scales.shape}, not one number for each row"
        )
        divisors = _in_float32(scales if is_one else scales[rows])
        self.require(
            bool((np.isfinite(divisors) & (np.abs(divisors) > _LEAST_SCALE)).all()),
            f"a scale of {name!r} is too small or not a number",
        )
        values /= divisors.reshape(-1, *[1] * (values.ndim - 1))
        return values

    def release(self) -> None:
        """Leave the file's pages to the system, because what was read need not stay in memory."""
        if hasattr(mmap, "MADV_DONTNEED"):
            self._bytes.madvise(mmap.MADV_DONTNEED)

    def equal(self, one: str, other: str) -> bool:
        """Return whether two variables and their scales hold the same bytes."""
        return all(self._equal(f"{one}{part}", f"{other}{part}") for part in ("", "_scale"))

    def _equal(self, one: str, other: str) -> bool:
        a, b = self._variables.get(one), self._variables.get(other)
        if a is None or b is None:
            return a is b and one.endswith("_scale")
        return a is b or (a.dtype == b.dtype and np.array_equal(a, b))

    def _variable(self, name: str) -> _Numbers:
        self.require(name in self, f"the variable {name!r} is missing; is it part of a model?")
        return self._variables[name]

    def _read(self, cursor: Cursor) -> None:
        """Read names, shapes and aliases; ValueError if they are not the whole file."""
        self.version = cursor.number("I")
        if self.version not in VERSIONS:
            raise ValueError(
                f"version {self.version} of the format; {VERSIONS[0]} to {VERSIONS[-1]} are read"
            )
        self.spec = _text(cursor)
        cursor.skip(4)  # the revision of that kind
        types = _TYPES if self.version >= 4 else _TYPES_BY_SIZE
        for _ in range(cursor.number("I")):
            name, rank = _text(cursor), cursor.number("B")
            shape = cursor.numbers(f"{min(rank, _MAX_RANK)}I")
            kind, size = cursor.numbers("BI")
            count = math.prod(shape)
            num_bytes = count * np.dtype(types.get(kind, "<f4")).itemsize
            is_right = rank <= _MAX_RANK and kind in types
            is_right &= size == (num_bytes if self.version >= 4 else count)
            require(is_right, f"{shown(name)} of {rank} dimensions has type {kind} and size {size:,}")
            start = cursor.skip(num_bytes)
            numbers = np.frombuffer(self._bytes, types[kind], count, start)
            self._variables[name] = numbers.reshape(shape)
        for _ in range(cursor.number("I") if self.version >= 3 else 0):
            alias, name = _text(cursor), _text(cursor)
            for part in ("", "_scale"):
                if f"{name}{part}" in self._variables:
                    self._variables[f"{alias}{part}"] = self._variables[f"{name}{part}"]
        left = len(self._bytes) - cursor.position
        require(not left, f"{left:,} bytes too many")


def _text(cursor: Cursor) -> str:
    return cursor.text(cursor.number("H"))


def _in_float32(values: _Numbers) -> _Floats:
    if values.dtype == _BFLOAT16:  # the upper half of a float32
        return (values.astype(np.uint32) << 16).view(np.float32)
    return values.astype(np.float32)
