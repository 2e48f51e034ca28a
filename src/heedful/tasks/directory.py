"""A run directory: its files, its lock, and where an old run goes.

Nothing that a user may have put there is ever removed: `--overwrite` renames the directory to NAME.old-N.
"""

import itertools
import os
import shutil
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import filelock

from heedful.errors import ConfigError, CorpusError, RunError, refuse_if
from heedful.runtime.durable import WRITING, named_in_errors, sync, write_atomically, writing_at
from heedful.settings.loading import load_config, to_toml
from heedful.settings.presets import PRESETS
from heedful.settings.run import Config, DataConfig
from heedful.storage.description import RUN_CONFIG
from heedful.text import TokenizerPair

if TYPE_CHECKING:
    from heedful.data.store import ParallelStore
    from heedful.training.events import SkippedEvent

CONFIG, LOG, LOCK = RUN_CONFIG, "log.jsonl", ".lock"
SKIPPED, SKIPPED_HEADER = "skipped.tsv", "step\tpair\tsource\ttarget"
CHECKPOINTS, TOKENIZER = "checkpoints", "tokenizer"
BUNDLES = BEST, LAST = ("best", "last")
_COMMENT = "# "  # before a command in config.toml
_STARTING = f".starting{WRITING}"  # there while a run starts


class DirectoryGuard:
    """Checks that the directory at a path is still the one that training started in."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._original: os.stat_result | None = None

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Compare with the current directory until the block ends.

        It is kept open: some network file systems change the inode of a directory that is not open.
        """
        descriptor = None if os.name == "nt" else os.open(self.path, os.O_RDONLY)
        try:
            self._original = self.path.stat()
            yield
        finally:
            self._original = None
            if descriptor is not None:
                os.close(descriptor)

    def check(self) -> None:
        """Raise a RunError if the directory is gone, or another one has its path."""
        if self._original is None:
            return
        is_there = False
        with suppress(FileNotFoundError):
            is_there = os.path.samestat(self.path.stat(), self._original)
        if not is_there:
            raise RunError(
                f"{self.path}: was moved or removed during training, and nothing is written there any more; "
                "continue from its last checkpoint with --resume --output and its new path"
            )


# Sections, or single settings, that define a run: with others it would be another one. Checkpoints hold them
# and the text by a hash (`train.fingerprint_of`).
FIXED = (
    "model",
    "tokenizer",
    "data.max_length",
    "data.filters",
    "batch",
    "optimizer.name",
    "train.seed",
    "train.loss",
    "train.freeze",
    "lora",
    "languages",
)
_TEXTS = ("src", "tgt", "pairs", "valid_src", "valid_tgt", "valid_pairs")
RESOLVED = {"src_vocab_size", "tgt_vocab_size", "src_pad_id", "tgt_pad_id", "tokens"}  # when a run starts


def settings_in(config: Config, names: Collection[str] = FIXED, *, only_set: bool = False) -> dict[str, Any]:
    """Return settings by their whole keys: these sections and single settings, all or those that were set."""
    return {
        f"{section}.{key}": value
        for section, settings in config.model_dump(exclude_unset=only_set).items()
        for key, value in settings.items()
        if section in names or f"{section}.{key}" in names
    }


def changed_settings(
    before: Config, now: Config, names: Collection[str] = FIXED, *, only_set: bool = False
) -> Iterator[tuple[str, object, object]]:
    """Yield the whole key, the old and the new value of settings that were changed."""
    was = settings_in(before, names)
    for name, value in settings_in(now, names, only_set=only_set).items():
        if value != was[name]:
            yield name, was[name], value


def check_resumable(
    before: Config, now: Config, *, names: Collection[str] | None = None, given_by: str = ""
) -> None:
    """Check that the fixed settings of a run are unchanged; all others apply from now on.

    Args:
        before: the settings of the run.
        now: other ones.
        names: the whole keys that are compared; None: all.
        given_by: the option that set them, for the message.
    """
    for name, was, value in changed_settings(before, now):
        if names is None or name in names:
            raise ConfigError(
                f"{given_by}{name}={value!r}: the run has {was!r}, which cannot change at --resume; leave it "
                "out, or give another --output for a new run"
            )


def text_files(data: DataConfig) -> dict[str, str | None]:
    """Return the names of all text files, by their keys."""
    of_corpora = {
        f"corpora.{number}.{key}": getattr(corpus, key)
        for number, corpus in enumerate(data.corpora)
        for key in _TEXTS
    }
    return {key: getattr(data, key) for key in _TEXTS} | of_corpora


def check_files_are_there(run: Path, now: Config) -> None:
    """Check that the text files in a run's configuration still exist.

    Files named on the command line are checked when they are read.
    """
    before = text_files(load_config(run / CONFIG).data)
    for key, name in text_files(now.data).items():
        if name is not None and name == before.get(key) and not Path(name).exists():
            relative = "" if Path(name).is_absolute() else f", relative to the directory {Path.cwd()}"
            option = "--" + key.replace("_", "-") if key in _TEXTS else "--set data.corpora"
            raise CorpusError(
                f"{name}: no such file; {run / CONFIG} names it (data.{key}){relative}; set it with {option}"
            )


def check_are_outside(run: Path, paths: Iterable[str | Path | None]) -> None:
    """Check that no path is in the directory that `--overwrite` renames."""
    for path in paths:
        if path is not None and Path(path).resolve().is_relative_to(run.resolve()):
            raise RunError(
                f"{path}: is in {run}, which --overwrite would rename; move it, or give another --output"
            )


def check_preset(run: Path, preset: str, overridden: Collection[str]) -> None:
    """Check that a preset named at --resume agrees with the run's fixed settings."""
    now = load_config(preset=preset)
    sections = PRESETS[preset] | {"model": now.model.model_dump()}
    named = {f"{section}.{key}" for section, keys in sections.items() for key in keys if key not in RESOLVED}
    names = named.difference(overridden)
    check_resumable(load_config(run / CONFIG), now, names=names, given_by=f"--preset {preset}: ")


_FEW_NAMES = 3


@dataclass(frozen=True)
class RunDirectory:
    """runs/NAME: config.toml, log.jsonl, skipped.tsv, tokenizer/, checkpoints/, best/, last/.

    `extra_files` are names of other files that a new run may have.
    """

    path: Path
    extra_files: tuple[str, ...] = ()

    @property
    def config_file(self) -> Path:
        """The resolved configuration; it exists if there is a run."""
        return self.path / CONFIG

    def check(self, *, resume: bool, overwrite: bool) -> None:
        """Refuse to start where something is, or another process trains, and to resume a missing run."""
        self._check_what_is_there(resume=resume, overwrite=overwrite)
        if (self.path / LOCK).exists():
            with _lock(self.path):
                pass

    @contextmanager
    def locked(self, *, resume: bool) -> Iterator[None]:
        """Lock the directory while the block runs.

        The system releases the lock when the process ends, however it ends; the lock file stays.
        """
        self.path.mkdir(parents=True, exist_ok=True)
        with _lock(self.path):
            self._check_what_is_there(resume=resume, overwrite=False)
            yield

    def set_aside(self) -> Path | None:
        """Rename the directory, if there is anything in it, to NAME.old-1, or the next free number.

        A link to a directory stays, and what it points to is renamed.

        Returns:
            Its new path, or None.
        """
        self.check(resume=False, overwrite=True)
        if not self._others():
            return None
        path = self.path.resolve()
        if Path.cwd().is_relative_to(path):
            raise RunError(
                f"{self.path}: --overwrite would rename it, and it is the current directory, or around it; "
                "run the command in another one"
            )
        names = (path.with_name(f"{path.name}.old-{number}") for number in itertools.count(1))
        old = next(name for name in names if not os.path.lexists(name))
        try:
            path.rename(old)
        except OSError as error:
            problem = f"cannot be renamed, as --overwrite does ({error.strerror})"
            raise RunError(f"{self.path}: {problem}; give another --output") from error
        path.mkdir()
        return old

    def _check_what_is_there(self, *, resume: bool, overwrite: bool) -> None:
        """Check that the directory has a run to resume, or nothing, unless it is to be renamed."""
        path, is_run, is_new = self.path, self.config_file.exists(), not (resume or overwrite)
        links = [path / name for name in BUNDLES if resume and (path / name).is_symlink()]
        has_seeds = path.is_dir() and any(path.glob("seed-*"))
        start = (
            "give --seeds to continue the runs inside it" if has_seeds else "leave --resume out to start one"
        )
        others = self._others() if is_new else []
        more = f" and {len(others) - _FEW_NAMES} more" if len(others) > _FEW_NAMES else ""
        refuse_if(
            (path.exists() and not path.is_dir(), f"{path}: is a file; give a directory as --output"),
            (resume and not is_run, f"{path}: has no run to resume; {start}"),
            (
                links,  # the next bundle would replace the link, not its target
                f"{', '.join(map(str, links[:1]))}: is a link, which the run's next model would replace; put "
                "the directory itself there, or move the whole run and link to that",
            ),
            (
                is_new and is_run,
                f"{path}: already exists, with a run; give another --output, --overwrite to rename this "
                "one, or `heedful train --resume` to continue it",
            ),
            (
                others,
                f"{path}: already exists, with {', '.join(map(str, others[:_FEW_NAMES]))}{more}; give "
                "another --output, or --overwrite to rename this one",
            ),
            error=RunError,
        )

    def _others(self) -> list[Path]:
        """Return what is in the directory, without what a run left that was killed while it started."""
        known = {LOCK, *self.extra_files}
        if not self.config_file.exists() and (self.path / _STARTING).exists():
            known |= {_STARTING, TOKENIZER, writing_at(self.config_file).name}
        there = self.path.iterdir() if self.path.is_dir() else ()
        return sorted(path for path in there if path.name not in known)

    def start(self, config: Config, tokenizers: TokenizerPair, commands: Sequence[str] = ()) -> None:
        """Write the tokenizers, then the configuration of a new run; see `write_config`."""
        starting, folder = self.path / _STARTING, self.path / TOKENIZER
        starting.touch()
        if folder.exists():  # left by a start that was killed
            shutil.rmtree(folder)
        folder.mkdir()
        with named_in_errors(folder):
            tokenizers.save(folder)
        for path in (*folder.iterdir(), folder):
            sync(path)
        self.write_config(config, commands)
        starting.unlink()

    def write_config(self, config: Config, commands: Sequence[str] = ()) -> None:
        """Write the resolved configuration, atomically; the commands of the run are comments above it."""
        write_atomically(
            self.config_file, "".join(f"{_COMMENT}{command}\n" for command in commands) + to_toml(config)
        )

    def commands(self) -> list[str]:
        """Return the commands that have started and resumed the run so far, the first one first."""
        if not self.config_file.exists():
            return []
        lines = self.config_file.read_text(encoding="utf-8", errors="replace").split("\n")
        return [line.removeprefix(_COMMENT) for line in lines if line.startswith(f"{_COMMENT}heedful ")]


@contextmanager
def _lock(run: Path) -> Iterator[None]:
    lock = filelock.FileLock(run / LOCK)
    try:
        lock.acquire(timeout=0)
    except filelock.Timeout:
        raise RunError(
            f"{run}: another process is training there; wait for it, stop it, or give another --output"
        ) from None
    except OSError as error:
        raise RunError(f"{run / LOCK}: cannot be locked ({error}); give another --output") from error
    try:
        yield
    finally:
        lock.release()


class SkippedReport:
    """A row for each sentence pair of a skipped step: the step, the pair's number in the store, its texts."""

    def __init__(self, path: Path, store: "ParallelStore", tokenizers: TokenizerPair) -> None:
        self.path = path
        self._store = store
        self._tokenizers = tokenizers

    def add(self, event: "SkippedEvent") -> None:
        """Append the pairs of a step."""
        rows = [(str(event.step), str(pair), *self._texts(pair)) for pair in event.pairs]
        is_new = not self.path.exists()
        with named_in_errors(self.path), self.path.open("a", encoding="utf-8") as file:
            if is_new:
                file.write(f"{SKIPPED_HEADER}\n")
            file.writelines("\t".join(" ".join(cell.split()) for cell in row) + "\n" for row in rows)

    def drop_after(self, step: int) -> None:
        """Drop the rows of later steps, which are about to be taken again, and an incomplete one."""
        if self.path.exists():
            lines = self.path.read_text(encoding="utf-8", errors="replace").split("\n")
            rows = [line for line in lines if _is_until(line, step)]
            write_atomically(self.path, "\n".join([SKIPPED_HEADER, *rows, ""]))

    def _texts(self, pair: int) -> tuple[str, str]:
        """Return both sentences: the original ones if the store has them, else decoded."""
        if self._store.has_text:
            return self._store.text(pair)
        src, tgt = self._store[pair]
        return self._tokenizers.src.decode(src.tolist()), self._tokenizers.tgt.decode(tgt.tolist())


def _is_until(line: str, step: int) -> bool:
    number, *rest = line.split("\t")
    return len(rest) == SKIPPED_HEADER.count("\t") and number.isdigit() and int(number) <= step
