"""Containers of other systems' files: archives, mapped binary files, YAML. Reading them executes nothing."""

import mmap
import shutil
import struct
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory
from typing import Any

from heedful.errors import InteropError, TokenizerError, needing
from heedful.settings.parsing import decode_text, short, shown
from heedful.storage.weights_file import one_line

DAMAGED = (OSError, RuntimeError, EOFError, ValueError, zipfile.BadZipFile, zlib.error)
_MOST_FILES = 1000  # of an archive
_MAX_GROWTH = 20  # of an archive that is unpacked: weights hardly shrink, vocabularies five times
_SMALL = 2**20  # bytes that any archive may hold
_MAX_NAME = 500  # bytes of a text in a binary file


def require(is_right: bool, problem: str) -> None:  # noqa: FBT001
    """Raise a ValueError with the problem of a file unless a condition holds."""
    if not is_right:
        raise ValueError(problem)


@contextmanager
def unpacked(archive: Path, place: Callable[[PurePosixPath], str | None]) -> Iterator[Path]:
    """Unpack a zip archive into a temporary directory; errors within the block name the archive.

    Mapped files stay readable after the block. If a mapped file cannot be removed, it stays.

    Args:
        archive: the file.
        place: gives the path of a member in the directory; None leaves it out.

    Raises:
        InteropError: the archive is damaged, or unsafe to unpack.
    """
    with TemporaryDirectory(prefix="heedful-", ignore_cleanup_errors=True) as folder:
        try:
            _unpack(archive, Path(folder), place)
        except DAMAGED as error:
            reason = error.strerror if isinstance(error, OSError) and error.strerror else one_line(error)
            raise InteropError(f"{archive}: cannot be unpacked ({reason}); copy it again") from None
        try:
            yield Path(folder)
        except (InteropError, TokenizerError) as error:
            raise type(error)(str(error).replace(folder, str(archive))) from None


def _unpack(archive: Path, folder: Path, place: Callable[[PurePosixPath], str | None]) -> None:
    with zipfile.ZipFile(archive) as opened:
        members: dict[str, zipfile.ZipInfo] = {}
        infos = [info for info in opened.infolist() if not info.is_dir()]
        require(len(infos) <= _MOST_FILES, f"{len(infos):,} files")
        for info in infos:
            path = PurePosixPath(info.filename)
            is_inside = not path.is_absolute() and ".." not in path.parts and "\\" not in info.filename
            require(is_inside, f"the path {shown(info.filename)} leads out of it")
            name = place(path)
            require(name not in members, f"{shown(name)} comes twice")
            if name is not None:
                members[name] = info
        limit = max(_MAX_GROWTH * archive.stat().st_size, _SMALL)
        grown = sum(info.file_size for info in members.values())
        require(grown <= limit, f"it grows more than {_MAX_GROWTH} times when it is unpacked")
        for name, info in members.items():
            (folder / name).parent.mkdir(exist_ok=True)
            with opened.open(info) as packed, (folder / name).open("wb") as file:
                shutil.copyfileobj(packed, file)  # no more than its size says: zipfile ends there


def map_file(file: Path) -> mmap.mmap:
    """Return the bytes of a file, read when they are used; OSError or ValueError if it cannot be read."""
    with file.open("rb") as stream:
        return mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_COPY)


class Cursor:
    """Reads a binary file from its start on, little-endian; ValueError if it ends too early."""

    def __init__(self, buffer: mmap.mmap | bytes) -> None:
        self._buffer = buffer
        self.position = 0

    def numbers(self, kinds: str) -> tuple[int, ...]:
        """Return numbers of these kinds of `struct`, such as "2Q"."""
        start = self.skip(struct.calcsize(f"<{kinds}"))
        return struct.unpack_from(f"<{kinds}", self._buffer, start)

    def number(self, kind: str) -> int:
        """Return one number."""
        return self.numbers(kind)[0]

    def text(self, size: int) -> str:
        """Return a text with NUL at its end, of `size` bytes."""
        raw = self._buffer[(start := self.skip(size)) : start + size]
        require(0 < size <= _MAX_NAME and not raw[-1], "a name is too long or does not end")
        return decode_text(raw.rstrip(b"\0"))

    def skip(self, size: int) -> int:
        """Skip bytes; return where they start."""
        require(size <= len(self._buffer) - self.position, "truncated; copy it again")
        self.position += size
        return self.position - size


# YAML ends lines at these characters, other writers do not.
_ENDS = dict(zip("\x85\u2028\u2029", "\U0010fff0\U0010fff1\U0010fff2", strict=True))
_HIDE, _SHOW = str.maketrans(_ENDS), str.maketrans({value: key for key, value in _ENDS.items()})


def read_yaml(content: bytes, plain: Callable[[str], Any] = str) -> list[tuple[Any, Any]]:
    r"""Return the keys and values of a mapping in YAML, repeated keys too; values are scalars or lists.

    >>> read_yaml(b"~: 1\non: [2, '']")
    [('~', '1'), ('on', ['2', ''])]

    Args:
        content: the bytes of the file.
        plain: converts a scalar without quotes; others are texts.

    Raises:
        ValueError: it is not YAML, or has another form.
        MissingExtraError: PyYAML is not installed.
    """
    with needing("files of Marian need PyYAML", extra="marian"):
        import yaml
    loader = getattr(yaml, "CBaseLoader", yaml.BaseLoader)

    def value_of(node: yaml.Node) -> Any:  # noqa: ANN401
        if isinstance(node, yaml.SequenceNode):
            return [text_of(item, plain) for item in node.value]
        return text_of(node, plain)

    def text_of(node: yaml.Node, convert: Callable[[str], Any]) -> Any:  # noqa: ANN401
        is_scalar = isinstance(node, yaml.ScalarNode)
        line = node.start_mark.line + 1
        require(is_scalar, f"line {line:,} is no key, no text or number, and no list of them")
        text = node.value.translate(_SHOW)
        return text if node.style else convert(text)

    try:
        # Nodes, because a mapping of Python would lose repeated keys.
        root = yaml.compose(decode_text(content).translate(_HIDE), Loader=loader)
        entries = getattr(root, "value", [])
        is_mapping = root is None or isinstance(root, yaml.MappingNode)
        require(is_mapping, "line 1 is no key, no text or number, and no list of them")
        return [(text_of(key, str), value_of(value)) for key, value in entries]
    except (yaml.YAMLError, RecursionError) as error:
        mark = getattr(error, "problem_mark", None)
        line = 1 if mark is None else mark.line + 1
        problem = getattr(error, "problem", None) or error
        raise ValueError(f"line {line:,} is not YAML: {short(str(problem))}") from None
