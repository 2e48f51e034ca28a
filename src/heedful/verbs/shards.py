"""Work on shards: each output is complete or absent, and a manifest says which are done, here or on Ray.

    OUTPUT/
      manifest.json     format_version, the settings, and for each shard that is done: lines, bytes, checksums
      NAME              what was made of the shard NAME, written under a temporary name and renamed

Shards are translated here, and prepared for training in `corpus_shards.py`. To be translated, a shard is a
text (gzipped or not) or a Parquet file, which gets the column `translation`. A path is of the local file
system, a URL of one of fsspec's.
"""

import hashlib
import io
import json
import logging
import os
import re
import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from functools import cached_property
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pyarrow.fs as pafs
import pyarrow.parquet as pq
from typing_extensions import override

from heedful.cli.streams import Lines, compressed, decompressed, translation_display, write_line
from heedful.decoding.options import SearchOptions
from heedful.decoding.translation import Translation, warn_of_cut
from heedful.decoding.translator import Translator
from heedful.errors import HeedfulError, InputError, MissingExtraError, RunError, install_hint
from heedful.runtime.durable import sync
from heedful.settings.parsing import parse_json
from heedful.verbs.resumable import check_settings, locked, settings_of

MANIFEST = "manifest.json"
TRANSLATION, SCORE = "translation", "score"  # columns that are added
_FORMAT_VERSION = 1
_ROW_GROUP = 65_536
_BUFFER = 2**20
_PARQUET = ".parquet"
_URL = re.compile(r"[a-z][a-z0-9+.-]*://", re.IGNORECASE)
_TEMPORARY = re.compile(r"\.(?P<name>.+)\.[0-9a-f]{32}")

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

    def sizes(self) -> dict[str, int]:
        """Return the sizes of the files in bytes, hidden ones left out, by their names in order.

        Raises:
            InputError: a name that is not UTF-8.
        """
        infos = self.files.get_file_info(pafs.FileSelector(self.path, allow_not_found=True))
        sizes = {self._name(info): info.size for info in infos if info.type == pafs.FileType.File}
        return {name: sizes[name] for name in sorted(sizes) if not name.startswith((".", "_"))}

    def leftovers(self, names: Iterable[str]) -> list[str]:
        """Return the names of temporary files of these names, which processes that were killed have left."""
        known = {*names, MANIFEST}
        infos = self.files.get_file_info(pafs.FileSelector(self.path))
        matches = {name: _TEMPORARY.fullmatch(name) for name in map(self._name, infos)}
        return [name for name, match in matches.items() if match is not None and match["name"] in known]

    def _name(self, info: pafs.FileInfo) -> str:
        """Return the name of a file.

        Raises:
            InputError: it is not UTF-8.
        """
        try:
            return str(info.base_name)
        except UnicodeDecodeError as error:
            name = error.object.decode(errors="backslashreplace")
            raise InputError(f"{self.of_file(name)}: the file's name is not UTF-8; rename it") from None

    def fingerprint(self, name: str) -> dict[str, Any]:
        """Return the size of a file and its checksum."""
        digest = hashlib.sha256()
        with self.files.open_input_file(self.of_file(name)) as file:
            while block := file.read(_BUFFER):
                digest.update(block)
            return {"bytes": file.size(), "sha256": digest.hexdigest()}

    @contextmanager
    def complete(self, name: str) -> Iterator[pa.NativeFile]:
        """Yield a stream into a new file, which gets its name when it is complete."""
        temporary = self.of_file(f".{name}.{uuid.uuid4().hex}")
        try:
            with self.files.open_output_stream(temporary, compression=None, buffer_size=_BUFFER) as stream:
                yield stream
            if self.is_local:
                sync(Path(temporary))
            self.files.move(temporary, self.of_file(name))
        except BaseException:
            with suppress(OSError):
                self.files.delete_file(temporary)
            raise
        if self.is_local:
            sync(Path(self.path))


@dataclass(frozen=True, kw_only=True)
class ShardJob:
    """Whatever a process needs to work on shards; it can be pickled.

    Attributes:
        source: the URL of the directory of the shards.
        output: the URL of the directory of what is made of them.
        done: the word for a shard that is done, for messages.
        suffix: of the outputs, after the names of the shards.
        expected: the settings of the shards that are done; none: there are none yet.
    """

    source: str
    output: str
    done: str = "translated"
    suffix: str = ""
    expected: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class TranslationJob(ShardJob):
    """Whatever a process needs to translate shards.

    Attributes:
        load: returns the translator, the search, and how many lines to translate at a time.
        shown: returns the output lines of a translation; its arguments are that and the number of the line.
        layout: settings of the output lines, for the manifest.
        column: of Parquet files, with the text.
        with_scores: whether Parquet files get a column of scores.
    """

    load: Callable[[], tuple[Translator, SearchOptions, int]]
    shown: Callable[[Translation, int], Iterable[str]]
    layout: Mapping[str, object]
    column: str = "text"
    with_scores: bool = False


class ShardWorker(ABC):
    """Works on shards, one at a time.

    Attributes:
        bytes_read: how much of the shards was read.
        report: called now and then, with the lines and tokens that were written since the start.
    """

    def __init__(self, job: ShardJob) -> None:
        self.bytes_read = 0
        self.report: Callable[[int, int], None] = lambda lines, tokens: None
        self._lines = self._tokens = 0
        self._source, self._output = Folder.of(job.source), Folder.of(job.output)

    def __call__(self, row: Mapping[str, Any]) -> dict[str, Any]:
        """Work on the shard that a row names, for Ray; a mistake of the user is part of the answer."""
        try:
            return {"name": row["name"], "record": json.dumps(self.work(row["name"])), "error": ""}
        except (HeedfulError, OSError) as error:
            return {"name": row["name"], "record": "", "error": str(error)}

    @abstractmethod
    def work(self, name: str) -> Record:
        """Write the output of a shard, and return its entry of the manifest."""


class ShardTranslator(ShardWorker):
    """Translates shards; the model is loaded with the first of them."""

    def __init__(self, job: TranslationJob) -> None:
        super().__init__(job)
        self._job = job
        self._num_cut = 0

    @override
    def work(self, name: str) -> Record:
        """Translate a shard, and return its entry of the manifest.

        Raises:
            CorpusError: a text that is damaged or not UTF-8.
            InputError: a Parquet file without the column.
            RunError: other settings than those of the shards before.
        """
        settings, before, tokens_before = self._settings, self.bytes_read, self._tokens
        cut_before = self._num_cut
        source = self._source.fingerprint(name)
        write = self._write_parquet if name.endswith(_PARQUET) else self._write_text
        with (
            self._source.files.open_input_file(self._source.of_file(name)) as file,
            self._output.complete(name) as out,
        ):
            lines = write(f"{self._source.url}/{name}", file, out)
        self.bytes_read = before + source["bytes"]
        return {
            "settings": settings,
            "lines": lines,
            "tokens": self._tokens - tokens_before,
            "num_cut": self._num_cut - cut_before,
            "source": source,
            "output": self._output.fingerprint(name),
        }

    def _write_text(self, name: str, file: pa.NativeFile, out: pa.NativeFile) -> int:
        """Write the translation of a text, and return the number of its lines."""
        before, number = self.bytes_read, -1
        translator, options, chunk_lines = self._loaded
        stream = io.BufferedReader(file, _BUFFER)
        with decompressed(stream, name) as plain, compressed(out, name) as target:
            lines = Lines(plain, name)
            translations = translator.translate_lines(lines, options=options, chunk_lines=chunk_lines)
            for number, translation in enumerate(translations):
                for line in self._job.shown(translation, number):
                    write_line(target, line)
                self._count(translation, bytes_read=before + file.tell())
            lines.raise_if_bad()
        return number + 1

    def _write_parquet(self, name: str, file: pa.NativeFile, out: pa.NativeFile) -> int:
        """Write the rows of a Parquet file with their translations, and return the number of rows."""
        before, number = self.bytes_read, 0
        translator, options, chunk_lines = self._loaded
        source = pq.ParquetFile(file)
        added = [pa.field(TRANSLATION, pa.string()), *[pa.field(SCORE, pa.float64())] * self._job.with_scores]
        check_column(name, source.schema_arrow, self._job.column, added=added)
        schema = pa.schema([*source.schema_arrow, *added], source.schema_arrow.metadata)
        with pq.ParquetWriter(out, schema) as writer:
            for batch in source.iter_batches(_ROW_GROUP):
                texts = batch.column(self._job.column).to_pylist()
                translations = translator.translate_lines(
                    (text or "" for text in texts),
                    options=options,
                    chunk_lines=chunk_lines,
                    first_line=number + 1,
                )
                rows: list[tuple[str | None, float]] = []
                for text, translation in zip(texts, translations, strict=True):
                    rows.append((None if text is None else translation.text, translation.score))
                    number += 1
                    share = number / source.metadata.num_rows
                    self._count(translation, bytes_read=before + int(share * file.size()))
                new = [pa.array([row[i] for row in rows], each.type) for i, each in enumerate(added)]
                writer.write_batch(pa.record_batch([*batch.columns, *new], schema=schema))
        return number

    def _count(self, translation: Translation, *, bytes_read: int) -> None:
        self._lines += 1
        self._tokens += translation.num_tokens
        self._num_cut += not translation.finished
        if self._lines % self._loaded[2] == 0:
            self.bytes_read = bytes_read
            self.report(self._lines, self._tokens)

    @cached_property
    def _loaded(self) -> tuple[Translator, SearchOptions, int]:
        return self._job.load()

    @cached_property
    def _settings(self) -> dict[str, str]:
        """The settings, which are those of the shards that are done."""
        translator, options, _ = self._loaded
        settings = settings_of(translator, options, self._job.layout)
        if self._job.expected:
            check_settings(self._job.output, self._job.expected, settings, remedy="or another --output")
        return settings


def check_column(name: str, schema: pa.Schema, column: str, *, added: Sequence[pa.Field]) -> None:
    """Check that a table has a column of texts, and none of those that are added.

    Raises:
        InputError: naming the column.
    """
    if column not in schema.names:
        names = ", ".join(schema.names)
        raise InputError(f"{name}: has no column {column!r} (it has {names}); choose with --column")
    if schema.names.count(column) > 1:
        raise InputError(f"{name}: has the column {column!r} twice; rename one of them")
    kind = schema.field(column).type
    if not (pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind)):
        raise InputError(f"{name}: the column {column!r} is {kind}, not string; choose another with --column")
    taken = [each.name for each in added if each.name in schema.names]
    if taken:
        raise InputError(f"{name}: has a column {taken[0]!r} already; rename it")


class Manifest:
    """The list of the shards that are done, in the output's directory."""

    def __init__(self, folder: Folder) -> None:
        self._folder = folder

    def read(self) -> dict[str, Any]:
        """Return the settings of the shards that are done, and the record of each.

        Raises:
            RunError: there is no manifest, or it is damaged.
        """
        path = self._folder.of_file(MANIFEST)
        if self._folder.files.get_file_info(path).type != pafs.FileType.File:
            raise RunError(f"{self._folder.url}: has files, but no {MANIFEST}; give another --output")
        with self._folder.files.open_input_file(path) as file:
            content = file.read()
        try:
            match manifest := parse_json(content):
                case {"format_version": 1, "settings": dict(), "shards": dict()}:
                    return cast(dict[str, Any], manifest)
        except ValueError:
            pass
        raise RunError(
            f"{self._folder.url}/{MANIFEST}: damaged, or of a newer heedful; give another --output"
        )

    def add(self, name: str, record: Record) -> None:
        """Add the record of a shard; other processes may add theirs at the same time."""
        with claimed(self._folder, MANIFEST, timeout=-1):
            manifest = self.read()
            manifest["settings"] = record["settings"]
            manifest["shards"][name] = {key: value for key, value in record.items() if key != "settings"}
            self._write(manifest)

    def set_settings(self, settings: Mapping[str, str]) -> None:
        """Write the settings of the shards to come, unless some are done."""
        with claimed(self._folder, MANIFEST, timeout=-1):
            manifest = self.read()
            if not manifest["shards"] and manifest["settings"] != settings:
                self._write({**manifest, "settings": settings})

    def start(self, *, resume: bool, done: str) -> dict[str, Any]:
        """Return what it holds; without one, write an empty one into an empty directory.

        Args:
            resume: whether there may be shards that are done.
            done: the word for these, for the message.

        Raises:
            RunError: the directory has other files, or such shards where this is no resumption.
        """
        if self._folder.files.get_file_info(self._folder.path).type == pafs.FileType.File:
            raise RunError(f"{self._folder.url}: is a file; give a directory for the shards")
        self._folder.files.create_dir(self._folder.path, recursive=True)
        with claimed(self._folder, MANIFEST, timeout=-1):
            if not self._folder.sizes():
                self._write({"format_version": _FORMAT_VERSION, "settings": {}, "shards": {}})
            manifest = self.read()
        if manifest["shards"] and not resume:
            raise RunError(
                f"{self._folder.url}: has {done} shards; --resume goes on with them, or give another --output"
            )
        return manifest

    def _write(self, manifest: Mapping[str, Any]) -> None:
        with self._folder.complete(MANIFEST) as stream:
            stream.write(json.dumps(manifest, indent=1, ensure_ascii=False).encode() + b"\n")


def claimed(folder: Folder, name: str, *, timeout: float) -> AbstractContextManager[bool]:
    """Lock a name in a local directory, as `locked`; elsewhere nothing is locked."""
    if not folder.is_local:
        return nullcontext(enter_result=True)
    return locked(Path(folder.of_file(f".{name}")), timeout=timeout)


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
    ray_cpus: int,
    ray_gpus: int = 0,
) -> str:
    """Work on shards, here or on Ray, and return what was done, in words.

    Args:
        worker: its instances do the work; it takes the job.
        job: what to do; `source` is the directory of `list_shards`.
        sizes: of the shards.
        resume: whether to go on with an output that is there; also with other processes at the same time.
        ray_cpus: CPUs of each worker on Ray; 0: work here.
        ray_gpus: GPUs of each worker on Ray.

    Raises:
        HeedfulError: shards that cannot be used; the others before them are done.
    """
    output = Folder.of(job.output)
    manifest = Manifest(output)
    started = manifest.start(resume=resume, done=job.done)
    records, written = started["shards"], output.sizes()
    job = replace(job, expected=started["settings"] if records else {})
    check_unchanged(job.source, records, sizes, done=job.done)
    to_do = {
        name: size for name, size in sizes.items() if name not in records or name + job.suffix not in written
    }
    before = len(sizes) - len(to_do)
    if to_do and ray_cpus:
        _work_on_ray(worker, job, to_do, manifest, cpus=ray_cpus, gpus=ray_gpus)
    elif to_do:
        _work_here(worker(job), job, to_do, manifest)
    for name in output.leftovers(name + job.suffix for name in sizes):
        output.files.delete_file(output.of_file(name))
    return f"shards {job.done}: {len(to_do):,}" + (f"; {before:,} were done before" if before else "")


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


def _work_here(worker: ShardWorker, job: ShardJob, sizes: Mapping[str, int], manifest: Manifest) -> None:
    """Work on the shards that no other process is working on, then on those that it did not finish."""
    total, output = sum(sizes.values()), Folder.of(job.output)
    with translation_display(lambda: worker.bytes_read / max(total, 1)) as worker.report:
        for timeout in (0, -1):
            for name in sizes:
                with claimed(output, name, timeout=timeout) as is_mine:
                    if not is_mine:
                        continue
                    written = output.sizes()
                    if name not in manifest.read()["shards"] or name + job.suffix not in written:
                        manifest.add(name, worker.work(name))


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
) -> None:
    """Work on shards by a pool of actors; Ray replaces those that die, and gives their shards to others."""
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
    total, errors = max(1, sum(sizes.values())), []
    done = lines = tokens = num_cut = 0
    with translation_display(lambda: done / total) as show, _one_line_of(ray.exceptions.RayError):
        for row in rows.iter_rows():
            if row["error"]:
                errors.append(row["error"])
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
    if errors:
        raise RunError(errors[0] + (f"; {len(errors) - 1:,} more shards failed" if errors[1:] else ""))
