"""A run directory: its files, its lock, and when it may be overwritten."""

import os
import re
import shutil
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import filelock

from heedful.errors import ConfigError, CorpusError, RunError, TokenizerError
from heedful.runtime.durable import ASIDE, WRITING, named_in_errors, put_text_in_place, restore_backup, sync
from heedful.settings.loading import load_config, to_toml
from heedful.settings.parsing import parse_json
from heedful.settings.presets import PRESETS
from heedful.settings.run import Config
from heedful.storage.bundle import CARD_FILE, CONFIG_FILE, WEIGHTS_FILE
from heedful.text import TokenizerPair
from heedful.text.pair import is_file_of_a_pair
from heedful.training.checkpoint import DAMAGED_PREFIX, FILES
from heedful.training.events import CheckpointEvent, StartEvent, logged_events

CONFIG, LOG, LOCK = "config.toml", "log.jsonl", ".lock"
SKIPPED, SKIPPED_HEADER = "skipped.tsv", "step\tpair\tsource\ttarget"
CHECKPOINTS, TOKENIZER = "checkpoints", "tokenizer"
BUNDLES = BEST, LAST = ("best", "last")


_CHECKPOINT = re.compile(
    rf"(\.?|{re.escape(DAMAGED_PREFIX)})step-\d+(-\d+|\.writing|{re.escape(ASIDE)}|\.removed)?"
)
_BUNDLE = re.compile(rf"(best|last)|\.(best|last)({re.escape(WRITING)}|{re.escape(ASIDE)})")
_TEMPORARY = {f".{name}{WRITING}" for name in (CONFIG, LOG, SKIPPED)}


def replaceable(run: Path) -> list[Path]:
    """Return the files and directories that a new run in this directory would replace."""
    names = (LOG, SKIPPED, CHECKPOINTS, TOKENIZER, *BUNDLES)
    return [run / name for name in names if (run / name).exists() or (run / name).is_symlink()]


def holds_weights(run: Path) -> bool:
    """Return whether a directory has checkpoints or bundles."""
    return any((run / name).exists() for name in (CHECKPOINTS, *BUNDLES))


def others_among(paths: Iterable[Path]) -> list[Path]:
    """Return the files and directories, among these and inside them, that no run has written."""
    return sorted(other for path in paths for other in _others(path))


def _others(path: Path) -> Iterator[Path]:
    name = path.name
    if path.is_symlink():
        yield path
    elif name == TOKENIZER and path.is_dir():
        yield from (each for each in path.iterdir() if not (each.is_file() and is_file_of_a_pair(each.name)))
    elif name == CHECKPOINTS and path.is_dir():
        for each in path.iterdir():
            is_ours = _CHECKPOINT.fullmatch(each.name) and each.is_dir()
            yield from (file for file in each.iterdir() if file.name not in FILES) if is_ours else [each]
    elif _BUNDLE.fullmatch(name) and path.is_dir():
        yield from (each for each in path.iterdir() if not _is_of_a_bundle(each))
    elif name == LOG and path.is_file():
        yield from [] if _is_log(path) else [path]
    elif name == SKIPPED and path.is_file():
        yield from [] if _first_line(path) in {"", SKIPPED_HEADER} else [path]
    elif name not in {CONFIG, LOCK, *_TEMPORARY} or not path.is_file():
        yield path


def _is_of_a_bundle(path: Path) -> bool:
    return path.is_file() and (
        path.name in {CONFIG_FILE, WEIGHTS_FILE, CARD_FILE} or is_file_of_a_pair(path.name)
    )


def _is_log(path: Path) -> bool:
    """Return whether the first line is an event, or the file is empty."""
    first = _first_line(path)
    try:
        event = parse_json(first or "null")
    except ValueError:
        return False
    return first == "" or (isinstance(event, dict) and {"event", "step"} <= event.keys())


def _first_line(path: Path) -> str | None:
    """Return the first line, stripped; None if it cannot be read."""
    try:
        with path.open(encoding="utf-8") as file:
            return file.readline().strip()
    except (OSError, ValueError):
        return None


class DirectoryGuard:
    """Checks that the directory at a path is still the one that training started in."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._original: os.stat_result | None = None

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Compare with the current directory until the block ends.

        It is kept open: some network file systems change the inode of a directory that nobody has open.
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
        """Check that the directory is the same.

        Raises:
            RunError: it is gone, or another one has its path.
        """
        if self._original is None:
            return
        try:
            is_there = os.path.samestat(self.path.stat(), self._original)
        except FileNotFoundError:
            is_there = False
        if not is_there:
            raise RunError(
                f"{self.path}: was moved or removed during training, and nothing is written there any more; "
                "continue from its last checkpoint with --resume --output and its new path"
            )


# Sections, or single settings, that define a run: with others it would be another one. The text is compared
# by its fingerprint (`Material.fingerprint`).
FIXED = (
    "model",
    "tokenizer",
    "data.max_length",
    "batch",
    "optimizer.name",
    "train.seed",
    "train.freeze",
    "lora",
    "languages",
)
_TEXTS = ("src", "tgt", "pairs", "valid_src", "valid_tgt", "valid_pairs")
_RESOLVED = {"src_vocab_size", "tgt_vocab_size", "src_pad_id", "tgt_pad_id", "tokens"}  # when a run starts


def check_resumable(before: Config, now: Config) -> None:
    """Check that the fixed settings of a run are unchanged; all others apply from now on.

    Raises:
        ConfigError: a fixed setting has another value.
    """
    was, after = before.model_dump(), now.model_dump()
    for section, settings in after.items():
        for key, value in settings.items():
            name = f"{section}.{key}"
            if {section, name} & set(FIXED) and value != was[section][key]:
                raise ConfigError(
                    f"{name}={value!r}: the run has {was[section][key]!r}, which cannot change at --resume; "
                    "leave it out, or give another --output for a new run"
                )


def check_files_are_there(run: Path, now: Config) -> None:
    """Check that the text files in a run's configuration still exist.

    Raises:
        CorpusError: one does not exist; files named on the command line are checked when they are read.
    """
    before = load_config(run / CONFIG).data
    for key in _TEXTS:
        name = getattr(now.data, key)
        if name is not None and name == getattr(before, key) and not Path(name).exists():
            relative = "" if Path(name).is_absolute() else f", relative to the directory {Path.cwd()}"
            option = "--" + key.replace("_", "-")
            raise CorpusError(
                f"{name}: no such file; {run / CONFIG} names it (data.{key}){relative}; set it with {option}"
            )


def check_preset(run: Path, preset: str, overridden: Collection[str]) -> None:
    """Check that a preset named at --resume agrees with the run's fixed settings.

    Args:
        run: the run directory.
        preset: its name.
        overridden: keys of settings on the command line.

    Raises:
        ConfigError: there is no such preset, or it has another value for a fixed setting.
    """
    has, after = (config.model_dump() for config in (load_config(run / CONFIG), load_config(preset=preset)))
    said = PRESETS[preset] | {"model": after["model"]}
    for section, settings in said.items():
        for key in settings:
            name, value = f"{section}.{key}", after[section][key]
            is_fixed = bool({section, name} & set(FIXED)) and key not in _RESOLVED
            if is_fixed and name not in overridden and value != has[section][key]:
                raise ConfigError(
                    f"--preset {preset}: {name}={value!r}, but the run has {has[section][key]!r}, which "
                    "cannot change at --resume; leave --preset out, or give another --output for a new run"
                )


_FEW_NAMES = 3


@dataclass(frozen=True)
class RunDirectory:
    """runs/NAME: config.toml, log.jsonl, skipped.tsv, tokenizer/, checkpoints/, best/, last/.

    Attributes:
        path: of the directory.
        beside: names of other files that a new one may have.
    """

    path: Path
    beside: tuple[str, ...] = ()

    @property
    def config_file(self) -> Path:
        """The resolved configuration; it exists if there is a run."""
        return self.path / CONFIG

    @property
    def log_file(self) -> Path:
        """One event a line."""
        return self.path / LOG

    @property
    def skipped_file(self) -> Path:
        """The sentences of skipped steps."""
        return self.path / SKIPPED

    @property
    def checkpoints(self) -> Path:
        """The directory of checkpoints."""
        return self.path / CHECKPOINTS

    @property
    def tokenizer(self) -> Path:
        """The directory of the run's tokenizer."""
        return self.path / TOKENIZER

    def check(self, *, resume: bool, overwrite: bool) -> None:
        """Refuse to replace an existing run without `overwrite`, and to resume a missing one.

        Raises:
            RunError: one of these, or another process trains there.
        """
        self._check_what_is_there(resume=resume, overwrite=overwrite)
        if self._lock_file.exists():
            with self._lock():
                pass

    @contextmanager
    def locked(self, *, resume: bool, overwrite: bool) -> Iterator[None]:
        """Lock the directory while the block runs.

        The system releases the lock when the process ends, however it ends; the lock file stays.

        Raises:
            RunError: another process trains there, or has created a run there since `check`.
        """
        self.path.mkdir(parents=True, exist_ok=True)
        with self._lock():
            self._check_what_is_there(resume=resume, overwrite=overwrite)
            yield

    @contextmanager
    def _lock(self) -> Iterator[None]:
        lock = filelock.FileLock(self._lock_file)
        try:
            lock.acquire(timeout=0)
        except filelock.Timeout:
            raise RunError(
                f"{self.path}: another process is training there; wait for it, stop it, or give another "
                "--output"
            ) from None
        except OSError as error:
            raise RunError(f"{self._lock_file}: cannot be locked ({error}); give another --output") from error
        try:
            yield
        finally:
            lock.release()

    @property
    def _lock_file(self) -> Path:
        return self.path / LOCK

    def _check_what_is_there(self, *, resume: bool, overwrite: bool) -> None:
        """Check that the directory has a run to resume or overwrite, or nothing to lose.

        Without config.toml it must be empty, or left by a run that was killed while it started. With
        --overwrite, other files may be next to those of a run, but not among those that are removed.
        """
        if self.path.exists() and not self.path.is_dir():
            raise RunError(f"{self.path}: is a file; give a directory as --output")
        holds_run = self.config_file.exists()
        if resume and not holds_run:
            raise RunError(f"{self.path}: has no run to resume; leave --resume out to start one")
        if holds_run and not (resume or overwrite):
            raise RunError(
                f"{self.path}: already has a run; give --resume to continue it, --overwrite to replace "
                "it, or another --output"
            )
        if resume:
            self._check_bundles_are_no_links()
        if not self.path.exists() or resume:
            return
        there = (path for path in self.path.iterdir() if path.name not in self.beside)
        others = others_among(replaceable(self.path) if overwrite else there)
        if others and overwrite:
            raise RunError(
                f"{_names(others)}: not written by a run, and --overwrite would remove it; move it away, or "
                "give another --output"
            )
        if not overwrite and (others or (not holds_run and holds_weights(self.path))):
            raise RunError(
                f"{self.path}: not empty ({_names(others or replaceable(self.path))}); give a new directory "
                "as --output, or --overwrite to train in this one"
            )

    def _check_bundles_are_no_links(self) -> None:
        """Refuse a link in place of a bundle: the next bundle would replace the link, not its target."""
        for name in BUNDLES:
            if (self.path / name).is_symlink():
                raise RunError(
                    f"{self.path / name}: is a link, which the run's next model would replace; put the "
                    "directory itself there, or move the whole run and link to that"
                )

    def start(self, config: Config, tokenizers: TokenizerPair) -> None:
        """Remove the files of an earlier run, and write the new one's tokenizers and configuration."""
        self.config_file.unlink(missing_ok=True)
        for path in replaceable(self.path):
            shutil.rmtree(path) if path.is_dir() else path.unlink()
        self.tokenizer.mkdir(parents=True)
        with named_in_errors(self.tokenizer):
            tokenizers.save(self.tokenizer)
        for path in (*self.tokenizer.iterdir(), self.tokenizer):
            sync(path)
        self.write_config(config)

    def has_had_checkpoints(self) -> bool:
        """Return whether the run has ever written a checkpoint, even if none is left.

        A best model may be older than the first checkpoint; only the log shows that.
        """
        events = logged_events(self.log_file)
        return (
            (self.path / LAST).exists()
            or any(self.checkpoints.glob(f"{DAMAGED_PREFIX}*"))
            or CheckpointEvent.kind in events
            or ((self.path / BEST).exists() and StartEvent.kind not in events)
        )

    def bring_back_bundles(self) -> None:
        """Undo incomplete replacements of bundles by a killed process."""
        for name in BUNDLES:
            restore_backup(self.path / name)

    def write_config(self, config: Config) -> None:
        """Write the resolved configuration, atomically."""
        put_text_in_place(self.config_file, to_toml(config))

    def load_tokenizers(self) -> TokenizerPair:
        """Load the run's tokenizers.

        Raises:
            RunError: they are missing or damaged.
        """
        try:
            return TokenizerPair.load(self.tokenizer)
        except TokenizerError as error:
            raise RunError(
                f"{self.path}: the run's tokenizer is damaged ({error}); start a new run"
            ) from None


def _names(paths: Sequence[Path]) -> str:
    more = f" and {len(paths) - _FEW_NAMES} more" if len(paths) > _FEW_NAMES else ""
    return ", ".join(str(path) for path in paths[:_FEW_NAMES]) + more
