"""A file of lines that another run can go on with: until it is complete, a manifest says how much is done.

    NAME.unfinished         the lines so far
    NAME.unfinished.json    the manifest (manifest.py), with one part

The record of this part has the number of lines that are done, the checksum of these lines of each input, and
the size and checksum of their output.
"""

import hashlib
import itertools
import os
import re
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from io import BytesIO
from pathlib import Path
from typing import Any, BinaryIO

from heedful.bulk.folders import folder_at
from heedful.bulk.manifest import Done, Manifest, Settings, check_settings
from heedful.data.streams import compressed
from heedful.errors import RunError
from heedful.runtime.durable import (
    UNFINISHED,
    kept_after_error,
    new_file_beside,
    replace_file,
)

_PART = "lines"
_SYNC_SHARE = 0.02  # of the time, at most, goes into waiting for the disk
_LARGEST_BLOCK = 2**24  # bytes
_START_AGAIN = "leave --resume out to start again"


class ResumableOutput:
    """A file of lines that is written beside its target.

    `lines` is the number of lines that are done according to its manifest; `inputs` has the remaining lines
    of each input; `notice` tells the user about an earlier run.
    """

    def __init__(
        self, path: Path, file: BinaryIO, inputs: Sequence[Iterable[str]], settings: Settings
    ) -> None:
        """Start at the first line; `path` is the target, and `file` beside it."""
        self.lines, self.notice = 0, ""
        self._path, self._file, self._settings = path, file, settings
        self._manifest = manifest_of(Path(file.name))
        self._read, self._written = [hashlib.sha256() for _ in inputs], hashlib.sha256()
        self.inputs = [_hashed(lines, each.update) for lines, each in zip(inputs, self._read, strict=True)]
        self._block, self._due = bytearray(), 0.0

    def resume(self, done: Done) -> None:
        """Go on after what is done; without anything, write the manifest.

        A RunError says that the settings, the first lines of an input, or their output have changed.
        """
        record = done.parts.get(_PART)
        if record is None:
            self._manifest.write(self._settings, {})
            self._file.truncate()
            return
        check_settings(self._file.name, done.settings, self._settings, remedy=f"or {_START_AGAIN}")
        self.lines, size = record["lines"], record["output"]["bytes"]
        for lines in self.inputs:
            for _ in itertools.islice(lines, self.lines):
                pass
        while block := self._file.read(min(_LARGEST_BLOCK, size - self._file.tell())):
            self._written.update(block)
        now = self._record()
        if (now["source"], now["output"]) != (record["source"], record["output"]):
            problem = f"{self._file.name}: has changed since it was written; {_START_AGAIN}"
            if now["source"] != record["source"]:
                first = f"{self._path}: the first {self.lines:,} lines of the input"
                problem = f"{first} are not what was translated; give the same input, or {_START_AGAIN}"
            raise RunError(problem)
        self._file.truncate()

    def before(self) -> bytes:
        """Return what an earlier run has written, if it is not compressed."""
        self._file.seek(0)
        return self._file.read()

    def write(self, text: bytes) -> None:
        """Write one line or several."""
        self._block += text
        if len(self._block) >= _LARGEST_BLOCK:
            self.flush()

    def flush(self) -> None:
        """End a block: it is compressed by itself, so that all runs write the same bytes."""
        if self._block:
            self._put(bytes(self._block))
            self._block.clear()

    def _put(self, text: bytes) -> None:
        packed = BytesIO()
        with compressed(packed, self._path.name) as stream:
            stream.write(text)
        self._written.update(packed.getbuffer())
        self._file.write(packed.getbuffer())

    def checkpoint(self, lines: int) -> None:
        """End the block of a chunk, after this number of lines; record it unless that was done just now."""
        self.flush()
        started = time.monotonic()
        if started >= self._due:
            self._sync()
            self.lines = lines
            self._manifest.write(self._settings, {_PART: self._record()})
            now = time.monotonic()
            self._due = now + (now - started) / _SYNC_SHARE

    def finish(self) -> None:
        """Put the whole output on the disk."""
        self.flush()
        if not self._file.tell():
            self._put(b"")  # a compressed file of nothing has a head
        self._sync()

    def _sync(self) -> None:
        self._file.flush()
        os.fsync(self._file.fileno())

    def _record(self) -> dict[str, Any]:
        return {
            "lines": self.lines,
            "source": [each.hexdigest() for each in self._read],
            "output": {"bytes": self._file.tell(), "sha256": self._written.hexdigest()},
        }


@contextmanager
def open_resumable(
    path: Path,
    inputs: Sequence[Iterable[str]],
    settings: Settings,
    *,
    resume: bool,
    keep: bool = True,
    items: str = "lines",
) -> Iterator[ResumableOutput]:
    """Open a file for writing as `open_output`, so that another run can go on with it.

    Args:
        path: the file; an existing one is replaced in the end.
        inputs: the lines of each input, from the first.
        settings: what changes the output besides the inputs, by name.
        resume: whether to go on with the output that an earlier run has left; of several, the longest.
        keep: whether the file gets its name in the end; else it is removed, and `path` is not touched.
        items: the word for lines, for messages.

    Raises:
        RunError: that output has other settings or inputs, is in use, or has changed.
    """
    target = Path(os.path.realpath(path))
    unfinished, lines, notice = _unfinished(target, items, resume=resume)
    manifest = manifest_of(unfinished)
    with manifest.folder.claimed(unfinished.name), ExitStack() as stack:
        output = ResumableOutput(path, stack.enter_context(unfinished.open("r+b")), inputs, settings)
        output.resume(manifest.read() if lines else Done())
        output.notice = notice
        remedy = "; --resume goes on from there"
        try:
            with kept_after_error(unfinished, remedy=lambda: remedy if output.lines else ""):
                with stack.pop_all():
                    try:
                        yield output
                    finally:
                        output.flush()
                    output.finish()
                if keep:
                    replace_file(target, unfinished)
                else:
                    unfinished.unlink()
        finally:
            if not output.lines or not unfinished.exists():
                manifest.folder.delete(manifest.name)


def _unfinished(target: Path, items: str, *, resume: bool) -> tuple[Path, int, str]:
    """Return the file to write, the number of its lines that are done, and what to say of an earlier run."""
    path, lines = max(_earlier(target), key=lambda each: each[1], default=(target, 0))
    if resume and path != target:
        return path, lines, f"resuming after {items[:-1]} {lines:,}" if lines else ""
    notice = f"{path} has {lines:,} {items} of an earlier run; --resume goes on with them"
    return new_file_beside(target), 0, notice if lines else ""


def _earlier(target: Path) -> Iterator[tuple[Path, int]]:
    """Yield the outputs that earlier runs have left, and the number of lines of each."""
    name = re.compile(re.escape(target.name + UNFINISHED) + r"(-\d+)?")
    for path in target.parent.iterdir():
        if name.fullmatch(path.name):
            done = manifest_of(path).read()
            if done.settings or not path.stat().st_size:  # an empty one has no manifest yet
                yield path, done.parts.get(_PART, {"lines": 0})["lines"]


def manifest_of(unfinished: Path) -> Manifest:
    """Return the manifest of a file that is not complete."""
    return Manifest(folder_at(str(unfinished.parent)), f"{unfinished.name}.json")


def _hashed(lines: Iterable[str], update: Callable[[bytes], None]) -> Iterator[str]:
    """Yield lines; each becomes part of a checksum."""
    for line in lines:
        update(f"{line}\n".encode())
        yield line
