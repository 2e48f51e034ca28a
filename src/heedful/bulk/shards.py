"""Work on shards: each output is complete or absent, and a manifest says which are done, here or on Ray.

    OUTPUT/
      manifest.json     format_version, the settings, and for each shard that is done: lines, bytes, checksums
      NAME              what was made of the shard NAME, written under a temporary name and renamed

What a shard is and what is made of it, a worker knows: `text_shards.py`, `documents.py`,
`runs/prepare.py`. A path is of the local file system, a URL of one of fsspec's.
"""

import hashlib
import itertools
import json
import logging
import os
import re
import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from functools import cached_property
from pathlib import Path
from typing import Any, BinaryIO, cast

import pyarrow.fs as pafs

from heedful.bulk.resumable import Display, check_settings, locked, no_display
from heedful.data.streams import DISK_FULL
from heedful.decoding.translation import warn_of_cut
from heedful.errors import HeedfulError, InputError, MissingExtraError, RunError, install_hint
from heedful.runtime.durable import sync
from heedful.settings.parsing import parse_json

MANIFEST = "manifest.json"
_FORMAT_VERSION = 1
BUFFER = 2**20
_URL = re.compile(r"[a-z][a-z0-9+.-]*://", re.IGNORECASE)
_TEMPORARY = re.compile(r"\.(?P<name>.+)\.([0-9a-f]{32}|lock|translations\.unfinished.*)")

Record = Mapping[str, Any]  # of a shard that is done, as in the manifest


@dataclass(frozen=True)
class Folder:
    """A directory on a file system.

    Attributes:
        files: the file system.
        path: of the directory, as the file system knows it.
        url: of the directory, as the user wrote it.
    """

    files: pafs.FileSystem
    path: str
    url: str

    @classmethod
    def of(cls, url: str) -> "Folder":
        """Return the directory at a path or URL.

        Raises:
            MissingExtraError: a URL, and fsspec or what it needs is not installed.
            InputError: nothing, or a URL of no file system.
        """
        if not url:
            raise InputError(f"{url!r}: the path is empty; give that of a directory")
        if not _URL.match(url):
            return cls(pafs.LocalFileSystem(), str(Path(url).absolute()), url)
        try:
            import fsspec

            files, path = fsspec.core.url_to_fs(url)
        except ImportError as error:
            raise MissingExtraError(
                f"{url}: {error}; {install_hint('ray')}, and the file system's package"
            ) from None
        except ValueError as error:
            raise InputError(f"{url}: {error}") from None
        return cls(pafs.PyFileSystem(pafs.FSSpecHandler(files)), path, url)

    @property
    def is_local(self) -> bool:
        """Whether other processes can be locked out."""
        return isinstance(self.files, pafs.LocalFileSystem)

    def of_file(self, name: str) -> str:
        """Return the path of a file."""
        return f"{self.path.rstrip('/')}/{name}"

    def beside(self, name: str, ending: str = "") -> str:
        """Return the path of a hidden file beside a file, such as a lock; make its directory, if local."""
        folder, slash, last = name.rpartition("/")
        if self.is_local:
            if not Path(self.of_file(folder)).resolve().is_relative_to(Path(self.path).resolve()):
                raise RunError(f"{self.of_file(name)}: a link there leads out of the directory; remove it")
            Path(self.of_file(folder)).mkdir(parents=True, exist_ok=True)
        return self.of_file(f"{folder}{slash}.{last}{ending}")

    def sizes(self) -> dict[str, int]:
        """Return the sizes of the files in bytes, hidden ones left out, by their names in order.

        Raises:
            InputError: a name that is not UTF-8.
        """
        infos = self.files.get_file_info(pafs.FileSelector(self.path, allow_not_found=True))
        sizes = {self._name(info): info.size for info in infos if info.type == pafs.FileType.File}
        return {name: sizes[name] for name in sorted(sizes) if not name.startswith((".", "_"))}

    def names(self) -> set[str]:
        """Return the paths of all files from the directory on, also of hidden files and in subdirectories.

        Raises:
            InputError: a name that is not UTF-8.
        """
        selector = pafs.FileSelector(self.path, allow_not_found=True, recursive=True)
        return {
            self._name(info) for info in self.files.get_file_info(selector) if info.type == pafs.FileType.File
        }

    def has(self, name: str) -> bool:
        """Return whether there is a file of this name."""
        return bool(self.files.get_file_info(self.of_file(name)).type == pafs.FileType.File)

    def delete_leftovers(self, names: Iterable[str]) -> None:
        """Delete temporary files and locks of these names, which processes that were killed have left."""
        known = {*names}
        for path in self.names():
            folder, slash, name = path.rpartition("/")
            match = _TEMPORARY.fullmatch(name)
            if match is not None and f"{folder}{slash}{match['name']}" in known:
                self.files.delete_file(self.of_file(path))

    def _name(self, info: pafs.FileInfo) -> str:
        """Return the path of a file from the directory on.

        Raises:
            InputError: it is not UTF-8.
        """
        try:
            return str(info.path)[len(self.path.rstrip("/")) + 1 :]
        except UnicodeDecodeError as error:
            name = error.object.decode(errors="backslashreplace")
            raise InputError(f"{self.of_file(name)}: the file's name is not UTF-8; rename it") from None

    def fingerprint(self, name: str) -> dict[str, Any]:
        """Return the size of a file and its checksum."""
        digest = hashlib.sha256()
        with self.files.open_input_file(self.of_file(name)) as file:
            while block := file.read(BUFFER):
                digest.update(block)
            return {"bytes": file.size(), "sha256": digest.hexdigest()}

    @contextmanager
    def complete(self, name: str) -> Iterator[BinaryIO]:
        """Yield a stream into a new file, which gets its name when it is complete."""
        temporary = self.beside(name, f".{uuid.uuid4().hex}")
        try:
            with self._opened(temporary) as stream:
                yield stream
            if self.is_local:
                sync(Path(temporary))
            self.files.move(temporary, self.of_file(name))
        except BaseException:
            with suppress(OSError):
                self.files.delete_file(temporary)
            raise
        if self.is_local:
            sync(Path(temporary).parent)

    def _opened(self, path: str) -> BinaryIO:
        if self.is_local:  # a package of a document is another one where it cannot be sought in
            return Path(path).open("wb")
        return cast(BinaryIO, self.files.open_output_stream(path, compression=None, buffer_size=BUFFER))


@dataclass(frozen=True, kw_only=True)
class ShardJob:
    """What a process needs to work on shards; it can be pickled.

    Attributes:
        source: the URL of the directory of the shards.
        output: the URL of the directory of what is made of them.
        items: the word for shards, for messages.
        done: the word for a shard that is done, for messages.
        counted: what the progress counts: the items, and what is counted of them.
        manifest: the name of the manifest.
        suffix: of the outputs, after the names of the shards.
        num_left: shards that are not done.
        expected: the settings of the shards that are done; none: there are none yet.
    """

    source: str
    output: str
    items: str = "shards"
    done: str = "translated"
    counted: tuple[str, str] = ("lines", "tokens")
    manifest: str = MANIFEST
    suffix: str = ""
    num_left: int = 0
    expected: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What was done of a job.

    Attributes:
        job: what was to be done.
        num_done: shards that are done now.
        num_before: shards that were done before.
        failed: why the other shards cannot be used, by their names.
    """

    job: ShardJob
    num_done: int
    num_before: int
    failed: Mapping[str, str]

    def __str__(self) -> str:
        """Return the sums in words."""
        before = f"; {self.num_before:,} were done before" if self.num_before else ""
        return f"{self.job.items} {self.job.done}: {self.num_done:,}{before}"

    def as_dict(self) -> dict[str, Any]:
        """Return the numbers, and the failures, for JSON."""
        return {"translated": self.num_done, "done_before": self.num_before, "failed": dict(self.failed)}

    def raise_if_failed(self) -> None:
        """Raise the first failure.

        Raises:
            RunError: a shard has failed; the message has the number of the others.
        """
        if self.failed:
            first, *others = self.failed.values()
            raise RunError(first + (f"; {len(others):,} more {self.job.items} failed" if others else ""))


class ShardWorker(ABC):
    """Works on shards, one at a time.

    Attributes:
        bytes_read: how much of the shards was read.
        report: called now and then, with the lines and tokens that were written since the start.
    """

    def __init__(self, job: ShardJob) -> None:
        self.bytes_read = 0
        self._expected = job.expected
        self.report: Callable[[int, int], None] = lambda lines, tokens: None
        self._lines = self._tokens = 0
        self._source, self._output = Folder.of(job.source), Folder.of(job.output)

    def __call__(self, row: Mapping[str, Any]) -> dict[str, Any]:
        """Work on the shard that a row names, for Ray; a mistake of the user is part of the answer."""
        try:
            return {"name": row["name"], "record": json.dumps(self.work(row["name"])), "error": ""}
        except (HeedfulError, OSError) as error:
            return {"name": row["name"], "record": "", "error": reason_of(error)}

    @cached_property
    def settings(self) -> dict[str, str]:
        """The settings of the outputs.

        Raises:
            RunError: they are not the settings of the shards that are done.
        """
        settings = self._read_settings()
        if self._expected:
            check_settings(self._output.url, self._expected, settings, remedy="or another --output")
        return settings

    @abstractmethod
    def _read_settings(self) -> dict[str, str]:
        """Return what changes the outputs besides the shards."""

    @abstractmethod
    def work(self, name: str) -> Record:
        """Write the output of a shard, and return its entry of the manifest."""


class Manifest:
    """The list of the shards that are done, in the output's directory."""

    def __init__(self, folder: Folder, name: str = MANIFEST) -> None:
        self._folder, self._name = folder, name

    def read(self) -> dict[str, Any]:
        """Return the settings of the shards that are done, and the record of each.

        Raises:
            RunError: there is no manifest, or it is damaged.
        """
        if not self._folder.has(self._name):
            raise RunError(f"{self._folder.url}: has files, but no {self._name}; give another --output")
        with self._folder.files.open_input_file(self._folder.of_file(self._name)) as file:
            content = file.read()
        try:
            match manifest := parse_json(content):
                case {"format_version": 1, "settings": dict(), "shards": dict()}:
                    return cast(dict[str, Any], manifest)
        except ValueError:
            pass
        raise RunError(
            f"{self._folder.url}/{self._name}: damaged, or of a newer heedful; give another --output"
        )

    def add(self, name: str, record: Record) -> None:
        """Add the record of a shard; other processes may add theirs at the same time."""
        with claimed(self._folder, self._name, timeout=-1):
            manifest = self.read()
            manifest["settings"] = record["settings"]
            manifest["shards"][name] = {key: value for key, value in record.items() if key != "settings"}
            self._write(manifest)

    def set_settings(self, settings: Mapping[str, str]) -> None:
        """Write the settings of the shards to come, unless some are done."""
        with claimed(self._folder, self._name, timeout=-1):
            manifest = self.read()
            if not manifest["shards"] and manifest["settings"] != settings:
                self._write({**manifest, "settings": settings})

    def start(
        self, *, resume: bool, done: str, items: str = ShardJob.items, overwrite: bool = False
    ) -> dict[str, Any]:
        """Return what it holds; without one, write an empty one into an empty directory.

        Args:
            resume: whether there may be shards that are done.
            done: the word for these, for the message.
            items: the word for shards, for the message.
            overwrite: whether there may be other files; without `resume`, shards that are done too.

        Raises:
            RunError: the directory has other files, or such shards where this is no resumption.
        """
        folder = self._folder
        if folder.files.get_file_info(folder.path).type == pafs.FileType.File:
            raise RunError(f"{folder.url}: is a file; give a directory for the {items}")
        folder.files.create_dir(folder.path, recursive=True)
        with claimed(folder, self._name, timeout=-1):
            is_new = overwrite or all(name.startswith(".") for name in folder.names())
            if is_new and not (resume and folder.has(self._name)):
                self._write({"format_version": _FORMAT_VERSION, "settings": {}, "shards": {}})
            manifest = self.read()
        if manifest["shards"] and not resume:
            raise RunError(
                f"{folder.url}: has {done} {items}; --resume goes on with them, or give another --output"
            )
        return manifest

    def _write(self, manifest: Mapping[str, Any]) -> None:
        with self._folder.complete(self._name) as stream:
            stream.write(json.dumps(manifest, indent=1, ensure_ascii=False).encode() + b"\n")


def claimed(folder: Folder, name: str, *, timeout: float) -> AbstractContextManager[bool]:
    """Lock a name in a local directory, as `locked`; elsewhere nothing is locked."""
    if not folder.is_local:
        return nullcontext(enter_result=True)
    return locked(Path(folder.beside(name)), timeout=timeout)


def reason_of(error: HeedfulError | OSError) -> str:
    """Return why a shard cannot be used."""
    if isinstance(error, HeedfulError):
        return str(error)
    reason = (error.strerror or str(error) or type(error).__name__).lower()
    return f"{error.filename}: {reason}" if error.filename else reason


def list_shards(source: str) -> tuple[Folder, dict[str, int]]:
    """Return the directory of an input, and the sizes of its shards by their names, in order.

    Args:
        source: a directory, a file, or a pattern of the names of files in a directory; a path or a URL.

    Raises:
        InputError: there are none.
    """
    folder, pattern = Folder.of(source), "*"
    if folder.files.get_file_info(folder.path).type != pafs.FileType.Directory:
        head, _, pattern = source.rstrip("/").rpartition("/")
        folder = Folder.of(head or ("/" if source.startswith("/") else "."))
    sizes = {
        name: size
        for name, size in folder.sizes().items()
        if name == pattern or (fnmatchcase(name, pattern) and name != MANIFEST)
    }
    if not sizes:
        raise InputError(f"{source}: no such files; give a directory, or a pattern such as 'news/*.gz'")
    return folder, sizes


def work_on_shards(
    worker: type[ShardWorker],
    job: ShardJob,
    sizes: Mapping[str, int],
    *,
    resume: bool,
    overwrite: bool = False,
    ray_cpus: int = 0,
    ray_gpus: int = 0,
    display: Display = no_display,
) -> Outcome:
    """Work on shards, here or on Ray; one that cannot be used leaves the others.

    Args:
        worker: its instances do the work; it takes the job.
        job: what to do; `source` is the directory of `list_shards`.
        sizes: of the shards.
        resume: whether to go on with an output that is there; also with other processes at the same time.
        overwrite: whether the output may have other files, which are replaced where they have the same names.
        ray_cpus: CPUs of each worker on Ray; 0: work here.
        ray_gpus: GPUs of each worker on Ray.
        display: of the progress.

    Raises:
        RunError: an output that cannot be continued.
        HeedfulError: what all shards need cannot be used.
    """
    output = Folder.of(job.output)
    manifest = Manifest(output, job.manifest)
    started = manifest.start(resume=resume, done=job.done, items=job.items, overwrite=overwrite)
    records, written = started["shards"], output.names()
    check_unchanged(job.source, records, sizes, done=job.done)
    to_do = {
        name: size for name, size in sizes.items() if name not in records or name + job.suffix not in written
    }
    job = replace(job, expected=started["settings"] if records else {}, num_left=len(to_do))
    failed: Mapping[str, str] = {}
    if to_do and ray_cpus:
        failed = _work_on_ray(worker, job, to_do, manifest, cpus=ray_cpus, gpus=ray_gpus, display=display)
    elif to_do:
        failed = _work_here(worker(job), job, to_do, manifest, display)
    done = [name + job.suffix for name in sizes if name not in failed]
    with claimed(output, job.manifest, timeout=-1):
        output.delete_leftovers([*done, job.manifest])
    return Outcome(
        job=job, num_done=len(to_do) - len(failed), num_before=len(sizes) - len(to_do), failed=failed
    )


def check_unchanged(
    source: str, records: Mapping[str, Record], sizes: Mapping[str, int], *, done: str
) -> None:
    """Check that the shards that are done have the sizes that they had.

    Args:
        source: the directory of the shards, for the message.
        records: of the shards that are done.
        sizes: of the shards.
        done: the word for those that are done, for the message.

    Raises:
        RunError: naming the first that has changed.
    """
    for name, size in sizes.items():
        if name in records and records[name]["source"]["bytes"] != size:
            raise RunError(f"{source}/{name}: has changed since it was {done}; give another --output")


def _work_here(
    worker: ShardWorker, job: ShardJob, sizes: Mapping[str, int], manifest: Manifest, display: Display
) -> dict[str, str]:
    """Work on the shards that no other process is working on, then on those that it did not finish.

    Returns:
        Why shards could not be used, by their names.
    """
    total, output, failed = sum(sizes.values()), Folder.of(job.output), dict[str, str]()
    items, size = job.counted
    manifest.set_settings(worker.settings)
    with display(lambda: worker.bytes_read / max(total, 1), items=items, size=size) as worker.report:
        for timeout, name in itertools.product((0, -1), sizes):
            if name in failed:
                continue
            try:
                with claimed(output, name, timeout=timeout) as is_mine:
                    if is_mine and not (name in manifest.read()["shards"] and output.has(name + job.suffix)):
                        manifest.add(name, worker.work(name))
            except (HeedfulError, OSError) as error:
                if isinstance(error, OSError) and error.errno in DISK_FULL:
                    raise
                failed[name] = reason_of(error)
    return failed


@contextmanager
def _one_line_of(kind: type[Exception]) -> Iterator[None]:
    """Report an error of Ray itself, such as a lost cluster, in one line."""
    try:
        yield
    except kind as error:
        raise RunError(f"--on ray: {str(error).strip()}; --resume goes on with the other shards") from error


def _work_on_ray(
    worker: type[ShardWorker],
    job: ShardJob,
    sizes: Mapping[str, int],
    manifest: Manifest,
    *,
    cpus: int,
    gpus: int,
    display: Display,
) -> dict[str, str]:
    """Work on shards by a pool of actors; Ray replaces those that die, and gives their shards to others.

    Returns:
        Why shards could not be used, by their names.
    """
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    try:
        import ray
        import ray.data
    except ImportError:
        raise MissingExtraError(f"--on ray: {install_hint('ray')}") from None
    if not ray.is_initialized():
        try:
            ray.init(log_to_driver=False, logging_level=logging.ERROR)
        except Exception as error:  # which is all that is known of its class
            raise RunError(f"--on ray: Ray does not start: {error}") from error
    logging.getLogger("ray.data").setLevel(logging.ERROR)
    ray.data.DataContext.get_current().enable_progress_bars = False
    resources = cast(Any, ray).cluster_resources()
    workers = int(resources.get("GPU", 0) // gpus if gpus else resources.get("CPU", 0) // cpus)
    workers = max(1, min(len(sizes), workers))
    pool = ray.data.ActorPoolStrategy(min_size=1, max_size=len(sizes), initial_size=workers)
    rows = ray.data.from_items([{"name": name} for name in sizes], override_num_blocks=len(sizes)).map(
        cast(Any, worker), fn_constructor_args=(job,), compute=pool, num_cpus=cpus, num_gpus=gpus
    )
    total, failed = max(1, sum(sizes.values())), dict[str, str]()
    done = lines = tokens = num_cut = 0
    with display(lambda: done / total) as show, _one_line_of(ray.exceptions.RayError):
        for row in rows.iter_rows():
            if row["error"]:
                failed[row["name"]] = row["error"]
                continue
            record = json.loads(row["record"])
            manifest.add(row["name"], record)
            done += sizes[row["name"]]
            lines += record["lines"]
            tokens += record["tokens"]
            num_cut += record.get("num_cut", 0)  # whose warnings are in the logs of the workers
            show(lines, tokens)
    if num_cut:
        warn_of_cut(num_cut)
    return failed
