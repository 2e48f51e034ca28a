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

import itertools
import json
import math
import re
import shutil
from collections.abc import Collection
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, ClassVar, Protocol

import torch
from safetensors import SafetensorError
from safetensors.torch import save_file

from heedful.errors import CheckpointError
from heedful.model.transformer import Transformer
from heedful.runtime.durable import ASIDE, put_in_place, restore_backup, why_not_written
from heedful.settings.parsing import is_whole, parse_json, read_limited, shown
from heedful.storage.description import WEIGHTS_FILE, file_sha256
from heedful.storage.torch_weights import (
    check_tensors,
    check_weights,
    load_weights,
    read_pickled,
    read_safetensors,
    unique_weights,
)
from heedful.training.averaging import MovingAverage
from heedful.training.optimizer import is_plugged, load_optimizer_state


class Dataclass(Protocol):
    """Any object with fields."""

    __dataclass_fields__: ClassVar[dict[str, Any]]


@dataclass(frozen=True)
class CheckpointState:
    """The content of state.pt; the optimiser's part is checked by `optimizer_state`."""

    fingerprint: str
    progress: dict[str, Any]
    optimizer: object


def read_state(path: Path, *, like: Dataclass) -> CheckpointState:
    """Read state.pt.

    Args:
        path: of the file.
        like: an example of the progress, for the fields and their types.

    Raises:
        ValueError: the file holds something else.
    """
    state = read_pickled(path)
    if not isinstance(state, dict):
        raise ValueError("holds no training state")
    fingerprint, progress = state.get("fingerprint"), state.get("progress")
    if not isinstance(fingerprint, str) or not isinstance(progress, dict):
        raise ValueError("holds no training progress")
    if progress.keys() != {field.name for field in fields(like)}:
        raise ValueError("holds other fields of progress")
    for name, value in progress.items():
        if not _is_like(value, getattr(like, name)):
            raise ValueError(f"progress.{name} is {shown(value)}")
    return CheckpointState(fingerprint, progress, state.get("optimizer"))


def optimizer_state(saved: object, optimizer: torch.optim.Optimizer) -> dict[str, Any]:
    """Return the state dict for `optimizer.load_state_dict`: saved moments and rates, its own settings.

    Raises:
        ValueError: the saved state is of another optimiser, or of other weights.
    """
    saved = saved if isinstance(saved, dict) else {}
    groups, state = saved.get("param_groups"), saved.get("state")
    if not isinstance(state, dict) or not isinstance(groups, list):
        raise ValueError("holds no state of an optimiser")
    if len(groups) != len(optimizer.param_groups):
        raise ValueError("holds the state of another optimiser")
    checked: list[dict[str, Any]] = []
    first = 0
    for group, own in zip(groups, optimizer.param_groups, strict=True):
        numbers = [*range(first, first + len(own["params"]))]
        first += len(numbers)
        rate, of_group = (group.get(key) for key in ("lr", "params")) if isinstance(group, dict) else (0, 0)
        if not (isinstance(rate, float | int) and _are_whole(of_group) and of_group == numbers):
            raise ValueError("holds the state of an optimiser of other weights")
        for i, weight in zip(numbers, own["params"], strict=True):
            if i in state and not is_plugged(optimizer):
                _check_moments(i, state[i], weight, is_adam="betas" in own)
        checked.append(own | {"params": numbers, "lr": rate})
    if not state.keys() <= {*range(first)}:
        raise ValueError("holds the state of an optimiser of more weights")
    return {"param_groups": checked, "state": state}


def _is_like(value: object, example: object) -> bool:
    """Return whether a value has the type of the example and is not NaN or below -1."""
    match example:
        case int():
            return is_whole(value, least=-1)
        case float():
            return isinstance(value, float | int) and not math.isnan(value)
        case str():
            return isinstance(value, str)
        case dict():
            return isinstance(value, dict) and all(
                isinstance(name, str) and isinstance(score, float | int) for name, score in value.items()
            )
        case tuple():
            return isinstance(value, tuple) and (
                _are_whole([*value]) or all(isinstance(each, str) for each in value)
            )
    return False


def _are_whole(value: object) -> bool:
    return isinstance(value, list) and all(is_whole(each) for each in value)


def _check_moments(i: int, moments: object, weight: torch.Tensor, *, is_adam: bool) -> None:
    """Check that the saved moments of a weight are this optimiser's, with the right shapes."""
    shapes = dict.fromkeys(("exp_avg", "exp_avg_sq") if is_adam else ("momentum_buffer",), weight.shape)
    if is_adam:
        shapes["step"] = torch.Size()
    if not isinstance(moments, dict) or moments.keys() != shapes.keys():
        raise ValueError(f"the optimiser state of weight {i} is {shown(moments)}")
    check_tensors(moments)
    for name, tensor in moments.items():
        if tensor.shape != shapes[name] or not tensor.is_floating_point():
            raise ValueError(f"the optimiser state of weight {i} has {name} of shape {tuple(tensor.shape)}")


AVERAGE_FILE = "average.safetensors"
STATE_FILE = "state.pt"
CHECKSUMS_FILE = "checksums.json"
FILES = (WEIGHTS_FILE, AVERAGE_FILE, STATE_FILE, CHECKSUMS_FILE)
DAMAGED_PREFIX = "damaged-"
_STEP = re.compile(r"step-[0-9]{1,15}")
_MIN_INTACT = 2  # checkpoints: if the newest is damaged later, there is another
_REMOVED = ".removed"


@dataclass
class Progress:
    """The training state besides weights and optimiser.

    Attributes:
        step: optimiser steps done.
        epoch: the epoch of the next micro-batch, counted from 0.
        next_batch: the index of that micro-batch in its epoch.
        seconds: of training, validation included, over all resumptions.
        best_value: the best validation so far (lower is better; scores are negated).
        best_step: the step of that validation; 0 before the first.
        best_scores: all scores of that validation.
        base_scores: all scores of the model before fine-tuning; empty if it is new, or was not validated.
        validated_by: the metric and the validation set of `best_value` (see `Trainer.resume`).
        stale_validations: validations since the best one.
        validated_step: the step of the last validation; -1 if it was by another metric or set.
        validated_scores: all scores of the last validation.
        validated_at: the seconds at which the last validation ended; 0 before the first.
        rate_factor: multiplies the learning rate; below 1 after a rollback (`Trainer.fit`).
        rollbacks: how often training returned to an earlier checkpoint.
        skipped: consecutive steps that were skipped, up to now.
        regular_checkpoints: steps of the newest regular checkpoints, which may be averaged; the others are
            written for safety.
        computed_by: processes and kernels of the last steps (`parallel.choice.describe`); empty if unknown.
    """

    step: int = 0
    epoch: int = 0
    next_batch: int = 0
    seconds: float = 0.0
    best_value: float = float("inf")
    best_step: int = 0
    best_scores: dict[str, float] = field(default_factory=dict)
    base_scores: dict[str, float] = field(default_factory=dict)
    validated_by: tuple[str, str] = ("", "")
    stale_validations: int = 0
    validated_step: int = 0
    validated_scores: dict[str, float] = field(default_factory=dict)
    validated_at: float = 0.0
    rate_factor: float = 1.0
    rollbacks: int = 0
    skipped: int = 0
    regular_checkpoints: tuple[int, ...] = ()
    computed_by: str = ""


@dataclass(frozen=True)
class Resumable:
    """The objects that a checkpoint holds, and that loading one fills."""

    model: Transformer
    optimizer: torch.optim.Optimizer
    average: MovingAverage | None
    progress: Progress
    fingerprint: str  # of the data and settings that must be the same for the run to be the same


def save_checkpoint(resumable: Resumable, root: Path) -> Path:
    """Write `root/step-N` and return it.

    Raises:
        CheckpointError: the disk is full or cannot be written; earlier checkpoints are untouched.
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
        put_in_place(temporary, path)
    except (OSError, RuntimeError, SafetensorError) as error:
        shutil.rmtree(temporary, ignore_errors=True)
        why = why_not_written(error, remedy="mend that")
        raise CheckpointError(f"{path}: cannot be written: {why}, then --resume") from error
    return path


def load_checkpoint(path: Path, resumable: Resumable) -> None:
    """Restore model, optimiser, average and progress from a checkpoint.

    Raises:
        CheckpointError: it is incomplete, altered, or from a run on other data or settings.
    """
    if not is_complete(path):
        raise CheckpointError(
            f"{path}: truncated or altered (checksum differs); remove it to resume an earlier one"
        )
    try:
        state = read_state(path / STATE_FILE, like=resumable.progress)
        if state.fingerprint != resumable.fingerprint:
            raise CheckpointError(
                f"{path}: belongs to other data or another model; give the run's own files, or a new --output"
            )
        of_optimizer = optimizer_state(state.optimizer, resumable.optimizer)
        weights = read_safetensors(path / WEIGHTS_FILE)
        has_average = (path / AVERAGE_FILE).exists()
        average = read_safetensors(path / AVERAGE_FILE) if has_average else weights
    except ValueError as error:
        raise CheckpointError(f"{path}: damaged ({error}); remove it to resume an earlier one") from error
    if resumable.average is not None:  # a checkpoint without one: the average starts from the weights
        check_weights(resumable.model, average, path / AVERAGE_FILE)
        resumable.average.load(average)
    load_weights(resumable.model, weights, path / WEIGHTS_FILE)
    load_optimizer_state(resumable.optimizer, of_optimizer)
    for name, value in state.progress.items():
        setattr(resumable.progress, name, value)


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

    Raises:
        CheckpointError: one cannot be renamed.
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
    numbered = (path.with_name(f"{path.name}-{number}") for number in itertools.count(2))
    return next(each for each in itertools.chain([path], numbered) if not each.exists())


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
    """Remove checkpoints older than the two newest intact ones, except those of the `retained` steps."""
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
