"""An output that another run can go on with: written beside its target, with a journal."""

import hashlib
import itertools
import json
import os
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import BinaryIO, Protocol

import filelock

from heedful.data.streams import compressed, new_file_beside, renamed_to
from heedful.decoding.options import SearchOptions
from heedful.decoding.translator import Translator
from heedful.errors import RunError
from heedful.runtime.durable import is_replaceable, sync
from heedful.settings.parsing import parse_json
from heedful.storage.bundle import Bundle
from heedful.storage.description import CONFIG_FILE, file_sha256

_FORMAT_VERSION = 1
_JOURNAL, _LOCK = ".journal", ".lock"
_SYNC_SHARE = 0.02  # of the time, at most, goes into waiting for the disk
_LARGEST_BLOCK = 2**24  # bytes
_LEAVE_OUT = "or leave --resume out to start again"

Settings = Mapping[str, str]


class Display(Protocol):
    """Shows progress: the share that was read, which it asks for, and the items and sizes that it is told."""

    def __call__(
        self, share_read: Callable[[], float | None], *, items: str = "lines", size: str = "tokens"
    ) -> AbstractContextManager[Callable[[int, int], None]]:
        """Return a context that yields the function to be told of progress."""
        ...


@contextmanager
def no_display(
    share_read: Callable[[], float | None],
    *,
    items: str = "lines",
    size: str = "tokens",
) -> Iterator[Callable[[int, int], None]]:
    """Show nothing."""
    yield lambda lines, tokens: None


@dataclass(frozen=True)
class Progress:
    """How far an output has come, as an entry of its journal.

    Attributes:
        lines: of the input.
        size: of the output, in bytes.
        sha256: of these lines of each input, in hexadecimal.
    """

    lines: int = 0
    size: int = 0
    sha256: tuple[str, ...] = ()


def settings_of(
    translator: Translator, options: SearchOptions, shown: Mapping[str, object]
) -> dict[str, str]:
    """Return what changes translations besides their input, by name.

    Threads and the CPU are not among them: in float32 they change no translation.

    Args:
        translator: with the model.
        options: of the search.
        shown: how the translations are written.
    """
    bundles = [translator.bundle, *translator.ensemble]
    generator = translator.generator
    computing = {
        "model": " ".join(map(_checksum, bundles)),
        "languages": dict(translator.bundle.config.languages),
        "engine": translator.engine_in_use,
        "precision": translator.precision_in_use,
        "device": translator.device,
        "batch_tokens": generator.batch_tokens,
        "batch_size": generator.batch_size,
    }
    search = {each.name: getattr(options, each.name) for each in fields(options) if each.compare}
    return {name: str(value) for name, value in {**computing, **search, **shown}.items()}


def _checksum(bundle: Bundle) -> str:
    """Return the checksum of a bundle: of its description, or of the weights that are in memory alone."""
    if bundle.path is not None and not bundle.changes:
        return file_sha256(bundle.path / CONFIG_FILE)
    digest = hashlib.sha256()
    for weight in bundle.model.parameters():
        digest.update(weight.detach().cpu().float().numpy().tobytes())
    return digest.hexdigest()


def further_settings(
    *, prefix: Path | None = None, shortlist: Path | None = None, memories: Sequence[Path] = ()
) -> dict[str, object]:
    """Return what other inputs than the lines change in an output: whether there is one, or its checksum."""
    checksum = None if shortlist is None else file_sha256(shortlist)
    further: dict[str, object] = {"prefix": prefix is not None, "shortlist": checksum}
    return {**further, "memory": [file_sha256(each) for each in memories]} if memories else further


def is_resumable(output: Path | None) -> bool:
    """Return whether an output is a file that is replaced when it is complete: no stream, pipe or device."""
    return output is not None and str(output) != "-" and is_replaceable(output)


def check_settings(where: str, before: Settings, now: Settings, *, remedy: str = _LEAVE_OUT) -> None:
    """Check that an output can be continued.

    Args:
        where: the output, for the message.
        before: the settings that it was written with.
        now: those of this run.
        remedy: what else to do than to give the same, for the message.

    Raises:
        RunError: naming the first setting that has changed.
    """
    changed = [name for name in {**before, **now} if before.get(name) != now.get(name)]
    if changed:
        name = changed[0]
        what = (
            "with another model"
            if name == "model"
            else f"with {name}={before.get(name)}, not {now.get(name)}"
        )
        raise RunError(f"{where}: was written {what}; give the same model and options, {remedy}")


class Inputs:
    """The lines of the inputs of an output, and the checksums of those that were read.

    Attributes:
        target: the name of the output.
        lines: for each input, those that are left.
    """

    def __init__(self, target: str, inputs: Sequence[Iterable[str]]) -> None:
        self.target = target
        self._digests = [hashlib.sha256() for _ in inputs]
        self.lines = [
            _hashed(lines, digest.update) for lines, digest in zip(inputs, self._digests, strict=True)
        ]

    def sha256(self) -> tuple[str, ...]:
        """Return the checksum of the lines that were read of each input."""
        return tuple(each.hexdigest() for each in self._digests)

    def skip(self, done: Progress) -> None:
        """Skip the lines that are done.

        Raises:
            RunError: they are not the lines that were translated.
        """
        for lines in self.lines:
            for _ in itertools.islice(lines, done.lines):
                pass
        if done.lines and self.sha256() != done.sha256:
            raise RunError(
                f"{self.target}: the first {done.lines:,} lines of the input are not those that were "
                f"translated; give the same input, {_LEAVE_OUT}"
            )


class ResumableOutput:
    """A file of lines that is written beside its target, with a journal of how far it has come.

    The journal of NAME.unfinished is NAME.unfinished.journal, with a JSON object a line: first the settings,
    then entries. An entry is added when the output that it speaks of is on the disk.

    Attributes:
        start: how far an earlier run has come.
        latest: the last entry.
        inputs: the lines that are left.
        is_empty: whether nothing was written.
        notice: what to say about an earlier run; nothing without one.
    """

    def __init__(self, file: BinaryIO, journal: BinaryIO, start: Progress, inputs: "Inputs") -> None:
        """Continue a file.

        Args:
            file: at the end of the output of the first lines.
            journal: at its end.
            start: how far the output has come.
            inputs: without these lines.
        """
        self.start, self.latest, self.inputs = start, start, inputs
        self.is_empty = not start.size
        self.notice = ""
        self._file, self._journal = file, journal
        self._block = bytearray()
        self._due = 0.0

    def before(self) -> bytes:
        """Return what an earlier run has written, if it is not compressed."""
        self._file.seek(0)
        return self._file.read(self.start.size)  # up to the end, where the next block begins

    def write(self, text: bytes) -> None:
        """Write one line or several."""
        self._block += text
        if len(self._block) >= _LARGEST_BLOCK:
            self.flush()

    def flush(self) -> None:
        """End a block: each is compressed by itself, so that the bytes are those of any run."""
        if self._block:
            with compressed(self._file, self.inputs.target) as stream:
                stream.write(self._block)
            self._block.clear()
            self.is_empty = False

    def checkpoint(self, lines: int) -> None:
        """End the block of a chunk, after so many lines; put it on the disk unless that was done just now."""
        self.flush()
        started = time.monotonic()
        if started < self._due:
            return
        self._file.flush()
        os.fsync(self._file.fileno())
        self.latest = Progress(lines, self._file.tell(), self.inputs.sha256())
        _append(self._journal, asdict(self.latest))
        os.fsync(self._journal.fileno())
        now = time.monotonic()
        self._due = now + (now - started) / _SYNC_SHARE

    def remedy(self) -> str:
        """Return the end of a message about what stays."""
        return "; --resume goes on from there" if self.latest.lines else ""

    def finish(self) -> None:
        """Put the whole output on the disk."""
        self.flush()
        if self.is_empty:
            with compressed(self._file, self.inputs.target):  # a compressed file of nothing has a head
                pass
        self._file.flush()
        os.fsync(self._file.fileno())


@contextmanager
def open_resumable(
    path: Path, inputs: Sequence[Iterable[str]], settings: Settings, *, resume: bool, keep: bool = True
) -> Iterator[ResumableOutput]:
    """Open a file for writing as `open_output`, with a journal, so that another run can go on with it.

    Args:
        path: of the file; an existing one is replaced in the end.
        inputs: the lines of each, from the first.
        settings: see `settings_of`.
        resume: whether to go on with the output that an earlier run has left; of several, the longest.
        keep: whether the file gets its name in the end; else it is removed, and `path` is not touched.

    Raises:
        RunError: that output has other settings or inputs, is in use, or damaged.
    """
    target = Path(os.path.realpath(path))
    unfinished, lines = max(_earlier(target), key=lambda each: each[1], default=(None, 0))
    notice = f"resuming after line {lines:,}"
    if unfinished is None or not resume:
        notice = f"{unfinished} has {lines:,} lines of an earlier run; --resume goes on with them"
        unfinished, empty = new_file_beside(target)
        empty.close()
        _journal_of(unfinished).unlink(missing_ok=True)  # of an output that was renamed before a kill
    with locked(unfinished) as is_ours, ExitStack() as stack:
        if not is_ours:
            raise RunError(
                f"{unfinished}: another process is writing it; wait for it, or give another --output"
            )
        journal, start = _open_journal(unfinished, settings)
        stack.enter_context(journal)
        rest = Inputs(str(path), inputs)
        rest.skip(start)
        file = stack.enter_context(unfinished.open("r+b"))
        file.truncate(start.size)
        file.seek(start.size)
        output = ResumableOutput(file, journal, start, rest)
        output.notice = notice if lines else ""
        try:
            with (
                renamed_to(
                    target if keep else None,
                    unfinished,
                    is_empty=lambda: output.is_empty,
                    remedy=output.remedy,
                ),
                stack.pop_all(),
            ):
                try:
                    yield output
                finally:
                    output.flush()
                output.finish()
            sync(target.parent)
        finally:
            if not output.latest.lines or not unfinished.exists():
                _journal_of(unfinished).unlink(missing_ok=True)


def _earlier(target: Path) -> Iterator[tuple[Path, int]]:
    """Yield the outputs that earlier runs have left, and the number of lines of each."""
    name = re.compile(re.escape(target.name) + r"\.unfinished(-\d+)?")
    for path in target.parent.iterdir():
        if name.fullmatch(path.name) and _journal_of(path).exists():
            yield path, _read_journal(_journal_of(path))[1].lines


def _journal_of(unfinished: Path) -> Path:
    return unfinished.with_name(unfinished.name + _JOURNAL)


def _open_journal(unfinished: Path, settings: Settings) -> tuple[BinaryIO, Progress]:
    """Open the journal of an output at its end, and return how far the output has come.

    Raises:
        RunError: the output has other settings, or is damaged.
    """
    path = _journal_of(unfinished)
    before, progress, size = _read_journal(path) if path.exists() else ({}, Progress(), 0)
    if not size and path.exists() and path.stat().st_size:
        raise RunError(f"{path}: damaged, or of a newer heedful; remove it to start again")
    if progress.lines:
        check_settings(str(unfinished), before, settings)
        if unfinished.stat().st_size < progress.size:
            raise RunError(f"{unfinished}: shorter than its journal says; {_LEAVE_OUT[3:]}")
    file = path.open("r+b" if progress.lines else "wb")
    file.truncate(size if progress.lines else 0)
    file.seek(0, os.SEEK_END)
    if not progress.lines:
        _append(file, {"format_version": _FORMAT_VERSION, "settings": dict(settings)})
    return file, progress


def _read_journal(path: Path) -> tuple[Settings, Progress, int]:
    """Return the settings of a journal, its last entry, and its length up to there, in bytes.

    An entry that was being written when the machine stopped does not count.
    """
    settings: Settings = {}
    progress, size = Progress(), 0
    for line in path.read_bytes().splitlines(keepends=True):
        try:
            entry = parse_json(line) if line.endswith(b"\n") else None
        except ValueError:
            break
        match entry:
            case {"format_version": 1, "settings": dict(settings)} if not size:
                pass
            case {"lines": int(lines), "size": int(written), "sha256": [*digests]} if size:
                progress = Progress(lines, written, tuple(map(str, digests)))
            case _:
                break
        size += len(line)
    return settings, progress, size


def _append(journal: BinaryIO, entry: Mapping[str, object]) -> None:
    journal.write(json.dumps(entry, ensure_ascii=False).encode() + b"\n")
    journal.flush()


def _hashed(lines: Iterable[str], update: Callable[[bytes], None]) -> Iterator[str]:
    """Yield lines, each of which becomes part of a checksum."""
    for line in lines:
        update(f"{line}\n".encode())
        yield line


@contextmanager
def locked(path: Path, *, timeout: float = 0.0) -> Iterator[bool]:
    """Yield whether the lock of a file could be taken; that of a process that is killed is open again.

    Args:
        path: of the file; the lock is NAME.lock.
        timeout: how long to wait for another process, in seconds; -1: until it is done.
    """
    file = path.with_name(path.name + _LOCK)
    lock = filelock.FileLock(file)
    try:
        lock.acquire(timeout=timeout)
    except filelock.Timeout:
        yield False
        return
    try:
        yield True
    finally:
        with suppress(OSError):  # of Windows, where an open file stays
            file.unlink()
        lock.release()
