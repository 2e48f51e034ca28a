"""A checkpoint: everything needed to continue bit for bit. Only this package knows it.

    checkpoints/step-1500/
      model.safetensors      the weights
      average.safetensors    their moving average, where there is one
      state.pt               optimiser, counters, data cursor, early stopping
      checksums.json

Random generators have no place in it: what a step draws follows from seed, step and rank (`team.py`).
It is written under a temporary name, synced, then renamed: a directory called `step-N` is always complete.
"""

import itertools
import json
import shutil
from collections.abc import Collection
from dataclasses import asdict, dataclass, field
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

from heedful.bundle import WEIGHTS_FILE, file_sha256, load_weights, unique_weights
from heedful.durable import bring_back, put_in_place
from heedful.errors import CheckpointError
from heedful.model import Transformer
from heedful.training.averaging import MovingAverage
from heedful.training.optimizer import load_optimizer_state

AVERAGE_FILE = "average.safetensors"
STATE_FILE = "state.pt"
CHECKSUMS_FILE = "checksums.json"
FILES = (WEIGHTS_FILE, AVERAGE_FILE, STATE_FILE, CHECKSUMS_FILE)
DAMAGED_PREFIX = "damaged-"
_KEPT_AT_LEAST = 2  # checkpoints: where the newest is damaged, there is another


@dataclass
class Progress:
    """Where training stands: what changes from step to step besides weights and optimiser.

    Attributes:
        step: optimiser steps done.
        epoch: the epoch that the next micro-batch comes from, counted from 0.
        next_batch: the number of that micro-batch in its epoch.
        seconds: of training, validation included, over all resumptions.
        best_value: the best validation so far (lower is better; scores are negated).
        best_step: the step of that validation; 0 before the first.
        best_scores: all scores of that validation.
        judged_by: what that value is: the metric, and the validation set (see `Trainer.resume`).
        stale_validations: validations since then.
        validated_at: the seconds at which the last validation ended; 0 before the first.
        rate_factor: of the learning rate; halved where training had to go back (`divergence.py`).
        setbacks: how often it had to.
        milestones: steps of the newest checkpoints that may be averaged.
        computed_by: what took the last steps (see `team_choice.describe`); empty where that is not known.
    """

    step: int = 0
    epoch: int = 0
    next_batch: int = 0
    seconds: float = 0.0
    best_value: float = float("inf")
    best_step: int = 0
    best_scores: dict[str, float] = field(default_factory=dict)
    judged_by: tuple[str, str] = ("", "")
    stale_validations: int = 0
    validated_at: float = 0.0
    rate_factor: float = 1.0
    setbacks: int = 0
    milestones: tuple[int, ...] = ()
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
        torch.save(state, temporary / STATE_FILE)
        checksums = {file.name: file_sha256(file) for file in sorted(temporary.iterdir())}
        (temporary / CHECKSUMS_FILE).write_text(json.dumps(checksums), encoding="utf-8")
        put_in_place(temporary, path)
    except (OSError, RuntimeError, SafetensorError) as error:
        shutil.rmtree(temporary, ignore_errors=True)
        raise CheckpointError(
            f"{path}: cannot be written ({error}); free some space, then --resume"
        ) from error
    return path


def load_checkpoint(path: Path, resumable: Resumable) -> None:
    """Put everything back as it was when the checkpoint was written.

    Raises:
        CheckpointError: it is incomplete, altered, or of a run on other data or settings.
    """
    if not is_complete(path):
        raise CheckpointError(
            f"{path}: truncated or altered (checksum differs); remove it to resume an earlier one"
        )
    state = torch.load(path / STATE_FILE, map_location="cpu", weights_only=True)
    if state["fingerprint"] != resumable.fingerprint:
        raise CheckpointError(
            f"{path}: belongs to other data or another model; give the run's own files, or a new --output"
        )
    load_weights(resumable.model, load_file(path / WEIGHTS_FILE), path / WEIGHTS_FILE)
    if resumable.average is not None:  # one that is new begins with the weights as they are now
        latest = load_file(path / (AVERAGE_FILE if (path / AVERAGE_FILE).exists() else WEIGHTS_FILE))
        resumable.average.weights = latest
    load_optimizer_state(resumable.optimizer, state["optimizer"])
    for name, value in state["progress"].items():
        setattr(resumable.progress, name, value)


def checkpoint_path(root: Path, step: int) -> Path:
    """Return where the checkpoint of a step is, or would be."""
    return root / f"step-{step}"


def list_checkpoints(root: Path) -> list[Path]:
    """Return the checkpoints under a run's `checkpoints/`, oldest first."""
    found = [path for path in root.glob("step-*") if path.name.removeprefix("step-").isdigit()]
    return sorted(found, key=checkpoint_step)


def latest_checkpoint(root: Path) -> Path | None:
    """Return the newest checkpoint that is complete and unaltered, or None."""
    return next((path for path in reversed(list_checkpoints(root)) if is_complete(path)), None)


def set_damaged_aside(root: Path) -> list[Path]:
    """Rename checkpoints newer than the latest intact one, which cannot be resumed; returns their new paths.

    So they do not stand in the way of the steps that are taken again, and nothing of them is lost.

    Raises:
        CheckpointError: one cannot be renamed.
    """
    for aside in root.glob(".step-*.old"):
        bring_back(aside.with_name(aside.name[1:].removesuffix(".old")))
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
    """Return a path that nothing has yet."""
    numbered = (path.with_name(f"{path.name}-{number}") for number in itertools.count(2))
    return next(each for each in itertools.chain([path], numbered) if not each.exists())


def checkpoint_step(path: Path) -> int:
    """Return the N of `step-N`."""
    return int(path.name.removeprefix("step-"))


def is_complete(path: Path) -> bool:
    """Whether every file that the checksums name is there and unaltered."""
    try:
        checksums = json.loads((path / CHECKSUMS_FILE).read_text(encoding="utf-8"))
        return (
            isinstance(checksums, dict)
            and {WEIGHTS_FILE, STATE_FILE} <= checksums.keys()
            and all(file_sha256(path / name) == expected for name, expected in checksums.items())
        )
    except (OSError, ValueError):
        return False


def prune_checkpoints(root: Path, *, kept: Collection[int]) -> None:
    """Remove all checkpoints but those of these steps and the newest ones."""
    for path in list_checkpoints(root)[:-_KEPT_AT_LEAST]:
        if checkpoint_step(path) not in kept:
            shutil.rmtree(path)
