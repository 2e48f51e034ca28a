"""Read CTranslate2's model.bin: variables by name, which stay in the mapped file until they are used.

    u32 version; from 2 on: string spec, u32 revision; u32 number of variables
    a variable: string name, u8 rank, u32 sizes; u8 type, u32 bytes (before 4: u8 item size, u32 items);
    then the numbers
    from 3 on: u32 number of aliases, each of two strings

A string is a u16 length, which counts the NUL at its end, and its bytes. All numbers are little-endian.
"""

import math
import mmap
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from heedful.errors import InteropError
from heedful.settings.parsing import shown

VERSIONS = range(2, 7)
_BFLOAT16 = "bfloat16"
_TYPES = ("<f4", "<i1", "<i2", "<i4", "<f2", _BFLOAT16)  # by number, from version 4 on
_TYPES_BY_SIZE = {4: "<f4", 2: "<i2", 1: "<i1"}  # before
_MAX_RANK = 4
_LEAST_SCALE = 1e-30  # what is divided by it is still finite
_MAX_NAME = 500  # bytes


@dataclass(frozen=True)
class _Variable:
    shape: tuple[int, ...]
    type: str
    start: int  # of its numbers in the file

    @property
    def numpy_type(self) -> str:
        return "<u2" if self.type == _BFLOAT16 else self.type

    @property
    def num_bytes(self) -> int:
        return math.prod(self.shape) * np.dtype(self.numpy_type).itemsize


class ModelFile:
    """The variables of a model.bin; only names and shapes are read at first.

    Attributes:
        version: of the format.
        spec: the name of the kind of model, such as "TransformerSpec".
        revision: of that kind.
    """

    def __init__(self, path: Path, *, keep: object = None) -> None:
        """Map the file.

        Args:
            path: of the file.
            keep: what must live as long as this, such as a temporary directory.

        Raises:
            InteropError: it is missing, damaged, or of a version that is not supported.
        """
        self._path, self._keep = path, keep
        try:
            with path.open("rb") as file:
                self._bytes = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        except (OSError, ValueError) as error:
            reason = error.strerror if isinstance(error, OSError) else "empty"
            raise InteropError(f"{path}: {reason}; give the directory of a CTranslate2 model") from None
        cursor = _Cursor(self._bytes)
        try:
            self.version = cursor.number("I")
            if self.version not in VERSIONS:
                raise ValueError(
                    f"version {self.version} of the format; {VERSIONS[0]} to {VERSIONS[-1]} are supported"
                )
            self.spec = cursor.text()
            self.revision = cursor.number("I")
            self._variables = dict(self._read_variables(cursor))
            if self.version >= 3:
                self._add_aliases(cursor)
            if cursor.position != len(self._bytes):
                raise ValueError(f"{len(self._bytes) - cursor.position:,} bytes too many")
        except ValueError as error:
            raise self.error(str(error)) from None

    def error(self, problem: str) -> InteropError:
        """Return an exception that names the file."""
        return InteropError(f"{self._path}: {problem}")

    def __contains__(self, name: str) -> bool:
        return name in self._variables

    def __iter__(self) -> Iterator[str]:
        return iter(self._variables)

    def shape(self, name: str) -> tuple[int, ...]:
        """Return the sizes of a variable; those of a scalar are none."""
        return self._variable(name).shape

    def scalar(self, name: str, default: float) -> float:
        """Return a scalar, or a default if there is none.

        Raises:
            InteropError: it is no scalar, or not finite.
        """
        if name not in self:
            return default
        if math.prod(self.shape(name)) != 1:
            raise self.error(f"{name!r} has shape {self.shape(name)}, not that of one number")
        value = float(self._decoded(self._variable(name), slice(None)).item())
        if not math.isfinite(value):
            raise self.error(f"{name!r} is {value}")
        return value

    def text(self, name: str, default: str) -> str:
        """Return a text, or a default if there is none; InteropError if it is not UTF-8."""
        if name not in self:
            return default
        try:
            return self._array(self._variable(name)).tobytes().decode()
        except UnicodeDecodeError:
            raise self.error(f"{name!r} is not UTF-8") from None

    def is_flag(self, name: str) -> bool:
        """Return whether a variable is of the type of flags, which have one byte."""
        return name in self and self._variable(name).type == "<i1"

    def rows(self, name: str, rows: slice) -> NDArray[np.float32]:
        """Return rows of a variable in float32; quantised numbers are divided by their scale.

        Raises:
            InteropError: there is no such variable, or its scale is missing, of another shape, or 0.
        """
        variable = self._variable(name)
        values = self._decoded(variable, rows)
        if not variable.type.startswith("<i"):
            return values
        scales = self._variable(f"{name}_scale")
        if scales.type != "<f4" or (scales.shape not in ((), (1,)) and scales.shape != variable.shape[:1]):
            raise self.error(
                f"the scales of {name!r} are of shape {scales.shape}, not one number for each row"
            )
        each = self._decoded(scales, rows if scales.shape == variable.shape[:1] else slice(None))
        if not (np.isfinite(each).all() and (np.abs(each) > _LEAST_SCALE).all()):
            raise self.error(f"a scale of {name!r} is too small or not a number")
        values /= each.reshape(-1, *[1] * (values.ndim - 1))
        return values

    def release(self) -> None:
        """Leave the file's pages to the system: what was read need not stay in memory."""
        if hasattr(mmap, "MADV_DONTNEED"):
            self._bytes.madvise(mmap.MADV_DONTNEED)

    def equal(self, one: str, other: str) -> bool:
        """Return whether two variables and their scales hold the same bytes."""
        pairs = [(one, other)] + [(f"{one}_scale", f"{other}_scale")] * (f"{one}_scale" in self)
        return all(self._equal(*pair) for pair in pairs)

    def _equal(self, one: str, other: str) -> bool:
        a, b = self._variables.get(one), self._variables.get(other)
        if a is None or b is None or (a.shape, a.type) != (b.shape, b.type):
            return False
        return a.start == b.start or bool(np.array_equal(self._array(a), self._array(b)))

    def _variable(self, name: str) -> _Variable:
        if name not in self._variables:
            raise self.error(f"the variable {name!r} is missing; is it part of a model?")
        return self._variables[name]

    def _array(self, variable: _Variable) -> NDArray[np.generic]:
        """Return a view of the file."""
        numbers = np.frombuffer(
            self._bytes, variable.numpy_type, count=math.prod(variable.shape), offset=variable.start
        )
        return numbers.reshape(variable.shape)

    def _decoded(self, variable: _Variable, rows: slice) -> NDArray[np.float32]:
        array = self._array(variable)
        part = array[rows] if array.ndim else array
        if variable.type == _BFLOAT16:  # the upper half of a float32
            return (part.astype(np.uint32) << 16).view(np.float32)
        return part.astype(np.float32)

    def _read_variables(self, cursor: "_Cursor") -> Iterator[tuple[str, _Variable]]:
        names: set[str] = set()
        for _ in range(cursor.number("I")):
            name = cursor.text()
            if name in names:
                raise ValueError(f"the variable {shown(name)} comes twice")
            names.add(name)
            rank = cursor.number("B")
            if rank > _MAX_RANK:
                raise ValueError(f"the variable {shown(name)} has {rank} dimensions")
            shape = tuple(cursor.number("I") for _ in range(rank))
            kind = cursor.number("B")
            known = dict(enumerate(_TYPES)) if self.version >= 4 else _TYPES_BY_SIZE
            if kind not in known:
                raise ValueError(f"the variable {shown(name)} has the unknown type {kind}")
            num_bytes = cursor.number("I") * (1 if self.version >= 4 else kind)
            variable = _Variable(shape, known[kind], cursor.position)
            if num_bytes != variable.num_bytes:
                raise ValueError(f"the variable {shown(name)} of shape {shape} has {num_bytes:,} bytes")
            cursor.skip(num_bytes)
            yield name, variable

    def _add_aliases(self, cursor: "_Cursor") -> None:
        """Add other names of variables, and of their scales."""
        for _ in range(cursor.number("I")):
            alias, name = cursor.text(), cursor.text()
            if name not in self._variables:
                raise ValueError(f"the alias {shown(alias)} is of {shown(name)}, which is missing")
            self._variables[alias] = self._variables[name]
            if f"{name}_scale" in self._variables:
                self._variables[f"{alias}_scale"] = self._variables[f"{name}_scale"]


class _Cursor:
    """Reads a buffer from its start on; a ValueError where it ends too early."""

    def __init__(self, buffer: mmap.mmap) -> None:
        self._buffer = buffer
        self.position = 0

    def number(self, kind: str) -> int:
        start = self.position
        self.skip(struct.calcsize(f"<{kind}"))
        return int(struct.unpack_from(f"<{kind}", self._buffer, start)[0])

    def text(self) -> str:
        size = self.number("H")
        start = self.position
        self.skip(size)
        raw = self._buffer[start : self.position]
        if not 0 < size <= _MAX_NAME or raw[-1]:
            raise ValueError("a name is too long or does not end; is it a CTranslate2 model?")
        try:
            return raw[:-1].decode()
        except UnicodeDecodeError:
            raise ValueError("a name is not UTF-8; is it a CTranslate2 model?") from None

    def skip(self, size: int) -> None:
        if size > len(self._buffer) - self.position:
            raise ValueError("truncated; copy it again")
        self.position += size
