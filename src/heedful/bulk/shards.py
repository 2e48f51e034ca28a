"""Work on shards, the files of a directory, here or on Ray: each output is complete or absent.

    OUTPUT/
      manifest.json     the shards that are done (manifest.py)
      NAME              what was made of the shard NAME, written under a temporary name and renamed

What is made of a shard, a job knows: `text_shards.py`, `documents.py`, `tasks/prepare.py`.
"""

import itertools
import json
import logging
import os
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from functools import cached_property
from typing import Any, ClassVar, cast

from heedful.bulk.folders import Fingerprint, Folder, folder_at
from heedful.bulk.manifest import (
    MANIFEST,
    Display,
    Done,
    Manifest,
    Record,
    Settings,
    check_settings,
    no_display,
)
from heedful.decoding.translation import warn_of_cut
from heedful.errors import HeedfulError, InputError, RunError, needing
from heedful.runtime.durable import DISK_FULL

_NAMES_SHOWN = 3

# Takes how much of a shard is read, 0 to 1, and what is written of it, such as lines and tokens.
Report = Callable[[float, int, int], None]


@dataclass(frozen=True, kw_only=True)
class ShardJob(ABC):
    """The work on shards. It can be pickled, and loads what it needs when it gets its first shard.

    Attributes:
        source: the path or URL of the directory of the shards.
        output: the path or URL of the directory of the outputs.
        expected: the settings that finished shards were made with; none: no shard is finished.
        items: the word for shards, for messages.
        done: the word for a shard that is done, for messages.
        counted: what is counted of shards, in their records too.
        manifest: the name of the manifest.
        suffix: the end of an output's name, after the name of the shard.
    """

    source: str
    output: str
    expected: Settings = field(default_factory=dict)
    items: ClassVar[str] = "shards"
    done: ClassVar[str] = "translated"
    counted: ClassVar[tuple[str, str]] = ("lines", "tokens")
    manifest: ClassVar[str] = MANIFEST
    suffix: ClassVar[str] = ""

    @property
    def folder(self) -> Folder:
        """The directory of the shards."""
        return folder_at(self.source)

    @property
    def target(self) -> Folder:
        """The directory of the outputs."""
        return folder_at(self.output)

    @cached_property
    def settings(self) -> Settings:
        """What changes the outputs besides the shards, by name; RunError if finished shards had others."""
        settings = self.read_settings()
        if self.expected:
            check_settings(self.output, self.expected, settings, remedy="or another --output")
        return settings

    def process(self, name: str, report: Report) -> Record:
        """Write the output of a shard, and return its record."""
        source = self.fingerprint(name)
        counts = self.write_output(name, report)
        return {**counts, "source": source, "output": self.target.fingerprint(name + self.suffix)}

    def fingerprint(self, name: str) -> Fingerprint:
        """Return the size and the checksum of a shard."""
        return self.folder.fingerprint(name)

    @abstractmethod
    def read_settings(self) -> Settings:
        """Return what changes the outputs besides the shards, by name."""

    @abstractmethod
    def write_output(self, name: str, report: Report) -> Mapping[str, int]:
        """Write the output of a shard, and return what `counted` names."""


@dataclass(frozen=True)
class JobState:
    """How far a job is.

    `left` are the sizes of the shards that have no output yet, or one that has changed.
    """

    sizes: Mapping[str, int]
    done: Done
    left: Mapping[str, int]


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What was done of a job.

    Attributes:
        job: what was to be done.
        num_done: shards that are done now.
        num_before: shards that were done before.
        failed: why the other shards cannot be used, by their names.
        others: the names of files that are no shards, by what was done with them.
    """

    job: ShardJob
    num_done: int
    num_before: int
    failed: Mapping[str, str]
    others: Mapping[str, Sequence[str]] = field(default_factory=dict)

    def __str__(self) -> str:
        """Return the numbers in words, and the first names of other files."""
        before = f"; {self.num_before:,} were done before" if self.num_before else ""
        shown = [f"{self.job.items} {self.job.done}: {self.num_done:,}{before}"]
        for what, names in {**self.others, "failed": [*self.failed]}.items():
            if names:
                first = [*names[:_NAMES_SHOWN], *["..."] * (len(names) > _NAMES_SHOWN)]
                shown.append(f"{what.replace('_', ' ')}: {len(names):,} ({', '.join(first)})")
        return "\n".join(shown)

    def as_dict(self) -> dict[str, Any]:
        """Return the same for JSON, with all names."""
        counts = {"translated": self.num_done, "done_before": self.num_before}
        return {**counts, "failed": dict(self.failed), **self.others}

    def raise_if_failed(self) -> None:
        """Raise the first failure as a RunError, with the number of the others."""
        if self.failed:
            first, *others = self.failed.values()
            raise RunError(first + (f"; {len(others):,} more {self.job.items} failed" if others else ""))


def reason_of(error: HeedfulError | OSError) -> str:
    """Return why a shard cannot be used; the error of a full disk is raised again, and stops all work."""
    if isinstance(error, HeedfulError):
        return str(error)
    if error.errno in DISK_FULL:
        raise error
    reason = (error.strerror or str(error) or type(error).__name__).lower()
    return f"{error.filename}: {reason}" if error.filename else reason


def list_shards(source: str) -> tuple[Folder, dict[str, int]]:
    """Return the directory of an input, and the sizes of its shards by their names, in order.

    `source` is a directory, a file, or a pattern of the names of files in a directory; a path or a URL.
    InputError if there are no shards.
    """
    folder, pattern = folder_at(source), "*"
    if not folder.exists():
        head, _, pattern = source.rstrip("/").rpartition("/")
        folder = folder_at(head or ("/" if source.startswith("/") else "."))
    sizes = {
        name: size
        for name, size in folder.shards().items()
        if name == pattern or (fnmatchcase(name, pattern) and name != MANIFEST)
    }
    if not sizes:
        raise InputError(
            f"{source}: has no files to translate; give a directory, or a pattern such as 'news/*.gz'"
        )
    return folder, sizes


def open_job(
    job: ShardJob,
    sizes: Mapping[str, int],
    *,
    resume: bool,
    overwrite: bool = False,
    also_read: str | None = None,
) -> JobState:
    """Make the directory of a job's outputs, or read how far an earlier run of it came.

    Args:
        job: what to do.
        sizes: the bytes of each shard by its name.
        resume: whether to go on with an output that is there.
        overwrite: whether it may have other files; without `resume`, shards that are done too.
        also_read: another directory that is read.

    Raises:
        InputError: the outputs would be written into an input.
        RunError: the directory has other files, or such shards, or a shard has changed since it was done.
    """
    output, manifest = job.target, Manifest(job.target, job.manifest)
    inputs = [job.source, also_read or job.source]
    if any(folder_at(each).place == output.place for each in inputs):
        raise InputError(f"{output.url}: is the input too; write to another directory")
    try:
        output.create()
    except (FileExistsError, NotADirectoryError):
        raise RunError(f"{output.url}: is a file; give a directory for the {job.items}") from None
    with output.locked(job.manifest):
        is_new = overwrite or all(name.startswith(".") for name in output.files(recursive=True))
        if is_new and not (resume and output.has(job.manifest)):
            manifest.write({}, {})
        if not output.has(job.manifest):
            raise RunError(f"{output.url}: has files, but no {job.manifest}; give another --output")
        done = manifest.read()
    if done.parts and not resume:
        raise RunError(
            f"{output.url}: has {job.done} {job.items}; --resume goes on with them, or give another --output"
        )
    left = dict(sizes)
    for name in [each for each in sizes if each in done.parts]:
        before = job.fingerprint(name)
        if before != done.parts[name]["source"]:
            raise RunError(f"{job.source}/{name}: has changed since it was {job.done}; give another --output")
        made = name + job.suffix
        if output.has(made) and done.has(name, source=before, output=output.fingerprint(made)):
            del left[name]
    return JobState(sizes, done, left)


def run_job(
    job: ShardJob,
    state: JobState,
    *,
    ray_cpus: int = 0,
    ray_gpus: int = 0,
    notify: Callable[[str], None] = lambda message: None,
    display: Display = no_display,
) -> Outcome:
    """Work on the shards that are left, here or on Ray; one that cannot be used leaves the others.

    Args:
        job: what to do.
        state: what `open_job` has returned.
        ray_cpus: CPUs of each worker on Ray; 0: work here, also with other processes at the same time.
        ray_gpus: GPUs of each worker on Ray.
        notify: called with a line about each shard, here.
        display: shows the progress.

    Raises:
        RunError: the shards that are done have other settings.
        HeedfulError: what all shards need cannot be used.
    """
    left, failed = state.left, dict[str, str]()
    job = replace(job, expected=state.done.settings if state.done.parts else {})
    try:
        if left and ray_cpus:
            failed = _work_on_ray(job, left, cpus=ray_cpus, gpus=ray_gpus, display=display)
        elif left:
            failed = _work_here(job, state, notify, display)
    except KeyboardInterrupt as error:
        raise type(error)(str(error) or f"interrupted; --resume goes on with the other {job.items}") from None
    with job.target.locked(job.manifest):
        job.target.delete_leftovers([name + job.suffix for name in state.sizes if name not in failed])
    num_before = len(state.sizes) - len(left)
    return Outcome(job=job, num_done=len(left) - len(failed), num_before=num_before, failed=failed)


def _work_here(
    job: ShardJob, state: JobState, notify: Callable[[str], None], display: Display
) -> dict[str, str]:
    """Work on the shards that no other process is working on, then on those that it did not finish.

    Return the reasons why shards could not be used, by the names of the shards.
    """
    output, settings, failed, left = job.target, job.settings, dict[str, str](), state.left
    manifest, total = Manifest(output, job.manifest), max(1, sum(left.values()))
    items, size = job.counted
    seen, counts = dict[str, int](), Counter[str]()
    share = 0.0  # of the shard that is worked on, in bytes

    def report(share_read: float, num_items: int, num_size: int) -> None:
        nonlocal share
        share = share_read * left[name]
        show(counts[items] + num_items, counts[size] + num_size)

    with display(lambda: (sum(seen.values()) + share) / total, items=items, size=size) as show:
        for timeout, name in itertools.product((0, -1), left):
            if name in seen:
                continue
            shown = ""
            try:
                with output.locked(name, timeout=timeout) as is_mine:
                    if not is_mine:
                        continue
                    if manifest.read().parts.get(name) == state.done.parts.get(name):  # not done meanwhile
                        record = job.process(name, report)
                        manifest.add(name, record, settings)
                        counts.update({each: record[each] for each in job.counted})
                        shown = f"{record[items]:,} {items if record[items] != 1 else items[:-1]}"
            except (HeedfulError, OSError) as error:
                failed[name] = reason_of(error)
                shown = f"error: {failed[name]}"
            seen[name], share = left[name], 0.0
            if shown:
                notify(f"{len(seen):,}/{len(left):,} {name}: {shown}")
    return failed


class ShardWorker:
    """Works on shards in a process of Ray, one at a time."""

    def __init__(self, job: ShardJob) -> None:
        self._job = job

    def __call__(self, row: Mapping[str, Any]) -> dict[str, Any]:
        """Work on the shard that a row names; a mistake of the user is part of the answer."""
        answer = {"name": row["name"], "record": "", "error": ""}
        try:
            settings = self._job.settings
            record = self._job.process(row["name"], lambda share, items, size: None)
            return {**answer, "record": json.dumps([settings, record])}
        except (HeedfulError, OSError) as error:
            return {**answer, "error": reason_of(error)}


def _work_on_ray(
    job: ShardJob, left: Mapping[str, int], *, cpus: int, gpus: int, display: Display
) -> dict[str, str]:
    """Work on shards by a pool of actors; Ray replaces those that die, and gives their shards to others.

    Return the reasons why shards could not be used, by the names of the shards.
    """
    manifest, failed, counts = Manifest(job.target, job.manifest), dict[str, str](), Counter[str]()
    items, size = job.counted
    done, total = 0, max(1, sum(left.values()))
    with display(lambda: done / total, items=items, size=size) as show:
        for row in _rows_of_ray(job, [*left], cpus=cpus, gpus=gpus):
            if row["error"]:
                failed[row["name"]] = row["error"]
                continue
            settings, record = json.loads(row["record"])
            manifest.add(row["name"], record, settings)
            done += left[row["name"]]
            counts.update({each: record.get(each, 0) for each in (items, size, "num_cut")})
            show(counts[items], counts[size])
    if counts["num_cut"]:  # the warnings are in the logs of the workers
        warn_of_cut(counts["num_cut"])
    return failed


def _rows_of_ray(job: ShardJob, names: Sequence[str], *, cpus: int, gpus: int) -> Iterator[dict[str, Any]]:
    """Yield the answer of a worker for each shard; an error of Ray, such as a lost cluster, is one line."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    with needing("--on ray needs ray", extra="ray"):
        import ray.data
    if not ray.is_initialized():
        try:
            ray.init(log_to_driver=False, logging_level=logging.ERROR)
        except Exception as error:  # Ray does not say which classes it raises
            raise RunError(f"--on ray: Ray does not start: {error}") from error
    logging.getLogger("ray.data").setLevel(logging.ERROR)
    ray.data.DataContext.get_current().enable_progress_bars = False
    resources = cast(Any, ray).cluster_resources()
    workers = int(resources.get("GPU", 0) // gpus if gpus else resources.get("CPU", 0) // cpus)
    workers = max(1, min(len(names), workers))
    pool = ray.data.ActorPoolStrategy(min_size=1, max_size=len(names), initial_size=workers)
    rows = ray.data.from_items([{"name": name} for name in names], override_num_blocks=len(names)).map(
        cast(Any, ShardWorker), fn_constructor_args=(job,), compute=pool, num_cpus=cpus, num_gpus=gpus
    )
    try:
        yield from rows.iter_rows()
    except ray.exceptions.RayError as error:
        raise RunError(f"--on ray: {str(error).strip()}; --resume goes on with the other shards") from error
