"""What the parts of a training share: its settings and callbacks, its progress, and its time."""

import math
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

from pydantic import Field, Strict

from heedful.errors import StopTraining
from heedful.model.transformer import Transformer
from heedful.settings.parsing import MAX_WHOLE
from heedful.settings.run import Config
from heedful.training.events import Event

_Whole = Annotated[int, Strict(), Field(ge=-1, le=MAX_WHOLE)]
_Number = Annotated[float, Strict(), Field(le=math.inf)]  # not NaN
Scores = dict[str, Annotated[float, Strict()]]
Validator = Callable[[Transformer], Scores]


@dataclass(frozen=True)
class TrainerCallbacks:
    """What a trainer calls to validate, to save, and to log.

    Attributes:
        validators: measure the model; their scores are merged.
        listeners: functions that get every event.
        keep_model: writes a bundle, given "best" or "last", the model, its scores and the step.
        checkpoints: the directory for checkpoints.
        fingerprint: identifies the data and settings that a resumed run must share with the checkpoint.
        validation_set: identifies the validation data; only scores on the same data are compared.
        before_writing: called before each checkpoint; an exception that it raises ends training.
    """

    validators: Sequence[Validator]
    listeners: Sequence[Callable[[Event], None]]
    keep_model: Callable[[str, Transformer, Scores, int], None]
    checkpoints: Path
    fingerprint: str
    validation_set: str = ""
    before_writing: Callable[[], None] = lambda: None


@dataclass
class Progress:
    """The training state besides weights and optimiser.

    Attributes:
        step: optimiser steps done.
        epoch: the epoch of the next micro-batch, counted from 0.
        next_batch: the index of that micro-batch in its epoch.
        seconds: time of training over all resumptions, validation included.
        best_value: the best validation so far (lower is better; scores are negated).
        best_step: the step of that validation; 0 before the first.
        best_scores: all scores of that validation.
        base_scores: all scores of the model before fine-tuning; empty if it is new, or was not validated.
        validated_by: the metric and the validation set of `best_value`.
        stale_validations: validations since the best one.
        validated_step: the step of the last validation; -1 if it was by another metric or set.
        validated_scores: all scores of the last validation.
        validated_at: the seconds at which the last validation ended; 0 before the first.
        rate_factor: multiplies the learning rate; below 1 after a rollback.
        rollbacks: how often training returned to an earlier checkpoint.
        skipped: consecutive steps that were skipped, up to now.
        regular_checkpoints: steps of the newest regular checkpoints, which may be averaged; the others are
            written for safety.
        computed_by: processes and kernels of the last steps (`parallel.choice.describe`); empty if unknown.
    """

    step: _Whole = 0
    epoch: _Whole = 0
    next_batch: _Whole = 0
    seconds: _Number = 0.0
    best_value: _Number = math.inf
    best_step: _Whole = 0
    best_scores: Scores = field(default_factory=dict)
    base_scores: Scores = field(default_factory=dict)
    validated_by: tuple[str, str] = ("", "")
    stale_validations: _Whole = 0
    validated_step: _Whole = 0
    validated_scores: Scores = field(default_factory=dict)
    validated_at: _Number = 0.0
    rate_factor: _Number = 1.0
    rollbacks: _Whole = 0
    skipped: _Whole = 0
    regular_checkpoints: tuple[_Whole, ...] = ()
    computed_by: Annotated[str, Strict()] = ""


@dataclass(frozen=True)
class Moment:
    """A moment of a run: after `seconds` of training; `epoch_length` micro-batches are the current epoch."""

    progress: Progress
    seconds: float
    epoch_length: int

    @property
    def epochs(self) -> float:
        """Passes over the training data so far, with the part of the current one."""
        return self.progress.epoch + self.progress.next_batch / self.epoch_length


class RunState:
    """The state of a run, which all parts of a trainer read and change.

    Attributes:
        config: the settings.
        callbacks: what is called to validate, to save, and to log.
        progress: the part of the state that a checkpoint holds.
        epoch_length: micro-batches of the current epoch.
        gather: brings weights, optimiser state and average here, if a process group holds shards of them.
        is_stopped: whether a listener has stopped the training.
    """

    def __init__(self, config: Config, callbacks: TrainerCallbacks) -> None:
        self.config = config
        self.callbacks = callbacks
        self.progress = Progress()
        self.epoch_length = 1
        self.gather: Callable[[], None] = lambda: None
        self.is_stopped = False
        self._started = 0.0

    @property
    def seconds(self) -> float:
        """Time of training so far, over all resumptions."""
        return time.monotonic() - self._started

    def set_seconds(self, seconds: float) -> None:
        """Set the time of training so far; it runs on from there."""
        self._started = time.monotonic() - seconds

    def now(self) -> Moment:
        """Return the present moment."""
        return Moment(self.progress, self.seconds, self.epoch_length)

    def emit(self, kind: Callable[..., Event], **fields: object) -> None:
        """Give the listeners an event of this step."""
        self.notify([kind(step=self.progress.step, seconds=self.seconds, **fields)])

    def notify(self, events: Iterable[Event]) -> None:
        """Give the listeners some events."""
        for event in events:
            for listener in self.callbacks.listeners:
                try:
                    listener(event)
                except StopTraining:
                    self.is_stopped = True
