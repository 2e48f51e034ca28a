"""A run directory: its files, its lock, and when it may be overwritten."""

import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import filelock

from heedful.config import Config, to_toml
from heedful.durable import bring_back, named_in_errors, put_text_in_place, sync
from heedful.errors import RunError, TokenizerError
from heedful.text import TokenizerPair
from heedful.training.checkpoint import DAMAGED_PREFIX
from heedful.training.event_log import logged_events
from heedful.training.events import CheckpointEvent, StartEvent
from heedful.workflows.run_files import holds_weights, others_among, replaceable
from heedful.workflows.run_names import (
    BEST,
    BUNDLES,
    CHECKPOINTS,
    CONFIG,
    LAST,
    LOCK,
    LOG,
    SKIPPED,
    TOKENIZER,
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
            bring_back(self.path / name)

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
