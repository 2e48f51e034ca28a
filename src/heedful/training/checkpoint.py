"""Checkpoints: everything needed to continue bit for bit.

    checkpoints/step-1500/
      model.safetensors      the weights
      average.safetensors    their moving average, if there is one
      state.pt               optimiser, counters, data cursor, early stopping
      checksums.json

The states of random generators are not stored: each step seeds them from seed, step and rank
(`parallel/process_group.py`). A checkpoint is written under a temporary name, synced, then renamed, and
renamed again before it is removed: a directory called `step-N` is always complete.
"""

import json
import re
import shutil
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import torch
from pydantic import Strict, TypeAdapter, ValidationError
from safetensors import SafetensorError
from safetensors.torch import save_file
from torch import Tensor
from typing_extensions import TypedDict

from heedful.errors import CheckpointError, HeedfulError, TrainingError
from heedful.model.transformer import Transformer
from heedful.runtime.durable import ASIDE, replace_directory, restore_backup, why_not_written
from heedful.settings.parsing import parse_json, read_limited, shown
from heedful.storage.description import WEIGHTS_FILE, file_sha256
from heedful.storage.torch_weights import (
    check_tensors,
    check_weights,
    load_weights,
    read_pickled,
    read_safetensors,
    unique_weights,
)
from heedful.training.averaging import MovingAverage, average_weights
from heedful.training.events import CheckpointEvent, WarningEvent
from heedful.training.optimizer import (
    is_plugged,
    load_optimizer_state,
    optimized_weights,
    state_shapes,
)
from heedful.training.parallel.torchrun import is_under_torchrun
from heedful.training.reporting import rate_advice
from heedful.training.state import Progress, RunState

AVERAGE_FILE = "average.safetensors"
STATE_FILE = "state.pt"
CHECKSUMS_FILE = "checksums.json"
FILES = (WEIGHTS_FILE, AVERAGE_FILE, STATE_FILE, CHECKSUMS_FILE)
DAMAGED_PREFIX = "damaged-"
_STEP = re.compile(r"step-[0-9]{1,15}")
_MIN_INTACT = 2  # checkpoints: if the newest is damaged later, there is another
_REMOVED = ".removed"


class _SavedGroup(TypedDict):
    params: Annotated[list[int], Strict()]
    lr: Annotated[float, Strict()]


class _SavedOptimizer(TypedDict):
    param_groups: list[_SavedGroup]
    state: Annotated[dict[int, Any], Strict()]


@dataclass(frozen=True)
class TrainingState:
    """The objects that a checkpoint holds, and that loading one fills."""

    model: Transformer
    optimizer: torch.optim.Optimizer
    average: MovingAverage | None
    progress: Progress
    fingerprint: str  # of the data and settings that must be the same for the run to be the same


def save_checkpoint(resumable: TrainingState, root: Path) -> Path:
    """Write `root/step-N` and return it.

    Earlier checkpoints are untouched if it cannot be written (CheckpointError).
    """
    path = checkpoint_path(root, resumable.progress.step)
    temporary = root / f".{path.name}.writing"
    shutil.rmtree(temporary, ignore_errors=True)
    try:
        temporary.mkdir(parents=True)
        save_file(unique_weights(resumable.model), temporary / WEIGHTS_FILE)
        if resumable.average is not None:
            save_file(resumable.average.weights, temporary / AVERAGE_FILE)
        state = {
            "fingerprint": resumable.fingerprint,
            "progress": asdict(resumable.progress),
            "optimizer": resumable.optimizer.state_dict(),
        }
        with (temporary / STATE_FILE).open("wb") as file:
            torch.save(state, file)
        checksums = {file.name: file_sha256(file) for file in sorted(temporary.iterdir())}
        (temporary / CHECKSUMS_FILE).write_text(json.dumps(checksums), encoding="utf-8")
        replace_directory(path, temporary)
    except (OSError, RuntimeError, SafetensorError) as error:
        shutil.rmtree(temporary, ignore_errors=True)
        why = why_not_written(error, remedy="mend that")
        raise CheckpointError(f"{path}: cannot be written: {why}, then --resume") from error
    return path


def load_checkpoint(path: Path, resumable: TrainingState) -> None:
    """Restore model, optimiser, average and progress from a checkpoint."""
    if not is_complete(path):
        raise CheckpointError(
            f"{path}: truncated or altered (checksum differs); remove it to resume an earlier one"
        )
    try:
        fingerprint, progress, optimizer = read_state(path / STATE_FILE)
        if fingerprint != resumable.fingerprint:
            raise CheckpointError(
                f"{path}: belongs to other data or another model; give the run's own files, or a new --output"
            )
        of_optimizer = optimizer_state(optimizer, resumable.optimizer)
        weights = read_safetensors(path / WEIGHTS_FILE)
        has_average = (path / AVERAGE_FILE).exists()
        average = read_safetensors(path / AVERAGE_FILE) if has_average else weights
    except ValueError as error:
        raise CheckpointError(
            f"{path}: damaged ({_reason(error)}); remove it to resume an earlier one"
        ) from error
    if resumable.average is not None:  # a checkpoint without one: the average starts from the weights
        check_weights(resumable.model, average, path / AVERAGE_FILE)
        resumable.average.load(average)
    load_weights(resumable.model, weights, path / WEIGHTS_FILE)
    load_optimizer_state(resumable.optimizer, of_optimizer)
    for name, value in vars(progress).items():
        setattr(resumable.progress, name, value)


def _reason(error: ValueError) -> str:
    if not isinstance(error, ValidationError):
        return str(error)
    first = error.errors()[0]
    return f"progress.{'.'.join(map(str, first['loc']))}: {first['msg']}"


def checkpoint_path(root: Path, step: int) -> Path:
    """Return the path of a step's checkpoint."""
    return root / f"step-{step}"


def list_checkpoints(root: Path) -> list[Path]:
    """Return the checkpoints under a run's `checkpoints/`, oldest first."""
    checkpoints = [path for path in root.glob("step-*") if _STEP.fullmatch(path.name)]
    return sorted(checkpoints, key=checkpoint_step)


def latest_checkpoint(root: Path) -> Path | None:
    """Return the newest checkpoint that is complete and unaltered, or None."""
    return next((path for path in reversed(list_checkpoints(root)) if is_complete(path)), None)


def set_damaged_aside(root: Path) -> list[Path]:
    """Rename damaged checkpoints newer than the latest intact one; return their new paths.

    Their names are then free for the steps that are taken again. Leftovers of a killed process are removed.
    """
    for aside in root.glob(f".step-*{ASIDE}"):
        restore_backup(aside.with_name(aside.name[1:].removesuffix(ASIDE)))
    for suffix in (".writing", _REMOVED):
        for unfinished in root.glob(f".step-*{suffix}"):
            shutil.rmtree(unfinished, ignore_errors=True)
    latest, damaged = latest_checkpoint(root), []
    for path in list_checkpoints(root):
        if latest is None or checkpoint_step(path) > checkpoint_step(latest):
            aside = _free(path.with_name(DAMAGED_PREFIX + path.name))
            try:
                path.rename(aside)
            except OSError as error:
                raise CheckpointError(
                    f"{path}: damaged, and cannot be renamed ({error.strerror}); move it away, then --resume"
                ) from error
            damaged.append(aside)
    return damaged


def _free(path: Path) -> Path:
    """Return the path, numbered if it exists."""
    free, number = path, 2
    while free.exists():
        free, number = path.with_name(f"{path.name}-{number}"), number + 1
    return free


def checkpoint_step(path: Path) -> int:
    """Return the N of `step-N`."""
    return int(path.name.removeprefix("step-"))


def is_complete(path: Path) -> bool:
    """Return whether all files match their checksums and the list of checksums itself is intact."""
    try:
        text = read_limited(path / CHECKSUMS_FILE).decode("utf-8")
        checksums = parse_json(text)
        return (
            isinstance(checksums, dict)
            and json.dumps(checksums) == text
            and {WEIGHTS_FILE, STATE_FILE} <= checksums.keys() <= {*FILES}
            and all(file_sha256(path / name) == expected for name, expected in checksums.items())
        )
    except (OSError, ValueError):
        return False


def prune_checkpoints(root: Path, *, retained: Collection[int]) -> None:
    """Remove checkpoints older than the two newest intact ones, except for the `retained` steps."""
    newest_first = list_checkpoints(root)[::-1]
    if all(checkpoint_step(path) in retained for path in newest_first[_MIN_INTACT:]):
        return  # nothing to remove, so no checksums to verify
    num_intact = 0
    for path in newest_first:
        if num_intact < _MIN_INTACT:
            num_intact += is_complete(path)
        elif checkpoint_step(path) not in retained:
            removed = path.with_name(f".{path.name}{_REMOVED}")
            shutil.rmtree(removed, ignore_errors=True)
            path.rename(removed)
            shutil.rmtree(removed, ignore_errors=True)


MAX_SKIPPED = 3  # steps in a row, before a rollback
MAX_ROLLBACKS = 4  # if halving the rate this often does not help, the learning rate is not the cause


class DivergedError(Exception):
    """`MAX_SKIPPED` steps in a row were not finite."""

    def __init__(self, step: int) -> None:
        super().__init__(f"step {step}: the loss or its gradient is not finite, {MAX_SKIPPED} steps in a row")
        self.step = step


class Checkpointer:
    """Writes the checkpoints of a run, removes old ones, and returns to the last one after a divergence.

    Attributes:
        saved_at: the seconds of training at the last checkpoint, or at the start.
    """

    def __init__(
        self,
        run: RunState,
        model: Transformer,
        optimizer: torch.optim.Optimizer,
        average: MovingAverage | None,
    ) -> None:
        self._run = run
        self._parts = model, optimizer, average
        self._root = run.callbacks.checkpoints
        self.saved_at = 0.0

    def load(self, checkpoint: Path) -> None:
        """Continue from a checkpoint."""
        load_checkpoint(checkpoint, self._training_state())

    @property
    def is_due(self) -> bool:
        """Whether a checkpoint is due for safety: `train.checkpoint_every_minutes` after the last one."""
        minutes = self._run.config.train.checkpoint_every_minutes
        return minutes is not None and self._run.seconds - self.saved_at >= 60.0 * minutes

    def save(self, *, is_regular: bool = False) -> None:
        """Write a checkpoint, and remove those that are not needed any more.

        A regular one may be averaged at the end, and stays until `train.keep_checkpoints` newer ones exist.
        """
        progress = self._run.progress
        if is_regular:
            steps = (*progress.regular_checkpoints, progress.step)
            progress.regular_checkpoints = steps[-self._run.config.train.keep_checkpoints :]
        path = self.write()
        prune_checkpoints(self._root, retained={*progress.regular_checkpoints, progress.step})
        self.saved_at = self._run.seconds
        self._run.emit(CheckpointEvent, path=path.name)

    def save_once(self, *, is_regular: bool = False) -> None:
        """Write a checkpoint unless this step has one."""
        if not is_complete(checkpoint_path(self._root, self._run.progress.step)):
            self.save(is_regular=is_regular)

    def write(self) -> Path:
        """Write the checkpoint of this step, in place of one that it has."""
        self._run.callbacks.before_writing()
        self._run.gather()
        self._run.progress.seconds = self._run.seconds
        return save_checkpoint(self._training_state(), self._root)

    @contextmanager
    def saved_on_error(self) -> Iterator[None]:
        """Save a checkpoint before an error ends the run between steps, except for a second signal."""
        try:
            yield
        except (KeyboardInterrupt, DivergedError):
            raise
        except BaseException:
            with suppress(HeedfulError, OSError):  # the first error is the one to report
                self.save_once()
            raise

    def roll_back(self, error: DivergedError) -> None:
        """Return to the last checkpoint, with half the learning rate.

        Without a checkpoint, or after too many rollbacks, training ends (TrainingError).
        """
        run, was = self._run, replace(self._run.progress)
        checkpoint = latest_checkpoint(self._root)
        if checkpoint is None or was.rollbacks == MAX_ROLLBACKS or is_under_torchrun():
            again = "start anew" if checkpoint is None else "--resume from the last checkpoint"
            raise TrainingError(f"{error}; {rate_advice(run.config)}, then {again}")
        self.load(checkpoint)  # the time of the lost steps counts
        progress = run.progress
        progress.rate_factor, progress.rollbacks, progress.skipped = was.rate_factor / 2, was.rollbacks + 1, 0
        progress.best_value, progress.best_step = was.best_value, was.best_step  # best/ stays as it is
        progress.best_scores = was.best_scores
        run.emit(
            WarningEvent,
            message=f"back to {checkpoint.name}, at {progress.rate_factor:g} times the learning rate: "
            f"{MAX_SKIPPED} steps in a row up to step {error.step} had a loss or gradient that is not finite",
        )

    def mean(self) -> dict[str, Tensor] | None:
        """Return the mean of the last regular checkpoints, if there are several."""
        paths = [checkpoint_path(self._root, step) for step in self._run.progress.regular_checkpoints]
        number = self._run.config.train.average_checkpoints
        averaged = [path for path in paths if is_complete(path)][-number:]
        return average_weights(averaged) if len(averaged) > 1 else None

    def _training_state(self) -> TrainingState:
        return TrainingState(*self._parts, self._run.progress, self._run.callbacks.fingerprint)


def read_state(path: Path) -> tuple[str, Progress, object]:
    """Return what state.pt holds: the fingerprint, the progress, and the optimiser's state.

    A ValueError says what else the file holds.
    """
    state = read_pickled(path)
    match state:
        case {"fingerprint": str() as fingerprint, "progress": dict() as progress, "optimizer": optimizer}:
            if progress.keys() == vars(Progress()).keys():
                return fingerprint, TypeAdapter(Progress).validate_python(progress), optimizer
    raise ValueError("holds no training progress")


def optimizer_state(saved: object, optimizer: torch.optim.Optimizer) -> dict[str, Any]:
    """Return the state dict for `optimizer.load_state_dict`: saved moments and rates, its own settings.

    A ValueError says that it is of another optimiser, or of other weights.
    """
    groups = optimizer.state_dict()["param_groups"]
    weights = optimized_weights(optimizer)
    try:
        read = TypeAdapter(_SavedOptimizer).validate_python(saved)
    except ValidationError:
        read = None
    if (
        read is None
        or [group["params"] for group in read["param_groups"]] != [group["params"] for group in groups]
        or not read["state"].keys() <= {*range(len(weights))}
    ):
        raise ValueError("holds no state of this optimiser, or the state of other weights")
    if not is_plugged(optimizer):
        shapes = [state_shapes(weight, group) for weight, group in weights.items()]
        for i, moments in read["state"].items():
            _check_moments(i, moments, shapes[i])
    for group, saved_group in zip(groups, read["param_groups"], strict=True):
        group["lr"] = saved_group["lr"]
    return {"param_groups": groups, "state": read["state"]}


def _check_moments(i: int, moments: object, shapes: Mapping[str, torch.Size]) -> None:
    """Check that the saved moments of a weight are this optimiser's, with the right shapes."""
    if isinstance(moments, dict) and moments.keys() == shapes.keys():
        check_tensors(moments)
        if all(each.shape == shapes[name] and each.is_floating_point() for name, each in moments.items()):
            return
    raise ValueError(f"the optimiser state of weight {i} is {shown(moments)}")
