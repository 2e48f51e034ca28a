"""A run directory: what is where, and when it may be written."""

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
        path: where it is.
        beside: names of other files that may stand in a new one.
    """

    path: Path
    beside: tuple[str, ...] = ()

    @property
    def config_file(self) -> Path:
        """The resolved configuration; where it is, there is a run."""
        return self.path / CONFIG

    @property
    def log_file(self) -> Path:
        """One event a line."""
        return self.path / LOG

    @property
    def skipped_file(self) -> Path:
        """The sentences of steps that were not taken."""
        return self.path / SKIPPED

    @property
    def checkpoints(self) -> Path:
        """The states to resume from."""
        return self.path / CHECKPOINTS

    @property
    def tokenizer(self) -> Path:
        """The tokenizer that the run trained for itself."""
        return self.path / TOKENIZER

    def check(self, *, resume: bool, overwrite: bool) -> None:
        """Refuse to touch a run that the user may want to keep, and to resume one that is not there.

        Raises:
            RunError: as said, or another process trains there.
        """
        self._check_what_is_there(resume=resume, overwrite=overwrite)
        if self._lock_file.exists():
            with self._lock():
                pass

    @contextmanager
    def held(self, *, resume: bool, overwrite: bool) -> Iterator[None]:
        """Be the only process that writes here while the block runs.

        The system gives up the lock of a process that ends, however it ends; its file stays.

        Raises:
            RunError: another process trains there, or has left a run there since `check`.
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
                f"{self.path}: another process is training there; wait for its end, stop it, or give another "
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
        """A directory is taken if it holds a run and one of both is asked for, or nothing to lose.

        Without config.toml that is a directory which is empty, or where a run was ended while it began. With
        --overwrite other files may stand beside a run's own, but not among those that are removed.
        """
        if self.path.exists() and not self.path.is_dir():
            raise RunError(f"{self.path}: is a file; give a directory as --output")
        holds_run = self.config_file.exists()
        if resume and not holds_run:
            raise RunError(f"{self.path}: holds no run to resume; leave --resume out to start one")
        if holds_run and not (resume or overwrite):
            raise RunError(
                f"{self.path}: already holds a run; give --resume to go on with it, --overwrite to replace "
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
                "as --output, or --overwrite to put a run into this one"
            )

    def _check_bundles_are_no_links(self) -> None:
        """Refuse a link where a bundle is: the next bundle would replace the link, not what it points to."""
        for name in BUNDLES:
            if (self.path / name).is_symlink():
                raise RunError(
                    f"{self.path / name}: is a link, which the run's next model would replace; put the "
                    "directory itself there, or move the whole run and link to that"
                )

    def begin(self, config: Config, tokenizers: TokenizerPair) -> None:
        """Clear what an earlier run left there, and nothing else, then write what identifies the new one."""
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
        """Return whether it has come as far as a checkpoint, even if none is left.

        A best model may be older than the first checkpoint; that it is, only the log can say.
        """
        events = logged_events(self.log_file)
        return (
            (self.path / LAST).exists()
            or any(self.checkpoints.glob(f"{DAMAGED_PREFIX}*"))
            or CheckpointEvent.kind in events
            or ((self.path / BEST).exists() and StartEvent.kind not in events)
        )

    def bring_back_bundles(self) -> None:
        """Undo replacements of bundles that a killed process left half-way."""
        for name in BUNDLES:
            bring_back(self.path / name)

    def write_config(self, config: Config) -> None:
        """Write the resolved configuration, whole or not at all."""
        put_text_in_place(self.config_file, to_toml(config))

    def load_tokenizers(self) -> TokenizerPair:
        """Load what `begin` saved.

        Raises:
            RunError: it is not there or damaged.
        """
        try:
            return TokenizerPair.load(self.tokenizer)
        except TokenizerError as error:
            raise RunError(f"{self.path}: the run's tokenizer is damaged ({error}); start anew") from None


def _names(paths: Sequence[Path]) -> str:
    more = f" and {len(paths) - _FEW_NAMES} more" if len(paths) > _FEW_NAMES else ""
    return ", ".join(str(path) for path in paths[:_FEW_NAMES]) + more
