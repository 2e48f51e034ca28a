"""The training loop: steps, and what is due between them."""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from heedful.config import Config
from heedful.data import BatchSource
from heedful.errors import HeedfulError, TrainingError
from heedful.model import Transformer
from heedful.training.averaging import MovingAverage, average_weights, swapped_weights
from heedful.training.checkpoint import (
    Progress,
    Resumable,
    checkpoint_path,
    is_complete,
    latest_checkpoint,
    load_checkpoint,
    prune_checkpoints,
    save_checkpoint,
)
from heedful.training.compilation import uncompiled
from heedful.training.distributed_team import in_team
from heedful.training.divergence import MOST_SETBACKS, MOST_SKIPPED, DivergedError
from heedful.training.events import (
    CheckpointEvent,
    EndEvent,
    Event,
    SkippedEvent,
    StartEvent,
    StepEvent,
    ValidationEvent,
    WarningEvent,
)
from heedful.training.interrupt import signals_noted
from heedful.training.limits import epochs_are_over, fraction_done, reason_to_stop
from heedful.training.milestones import due_after_step, goes_by_the_clock
from heedful.training.optimizer import build_optimizer
from heedful.training.precision import emulation_warning, resolve_precision
from heedful.training.schedule import learning_rate
from heedful.training.step import StepMetrics
from heedful.training.team import StepOrder, Team
from heedful.training.team_choice import describe, gather_team
from heedful.training.trained_weights import num_trained
from heedful.training.validation import Validator

Scores = dict[str, float]


@dataclass(frozen=True)
class Surroundings:
    """What a trainer is given by whoever knows about files, text and screens.

    Attributes:
        validators: each measures the model; their scores are merged.
        listeners: each is told of every event.
        keep_model: called with "best" or "last", the model, its scores and step, to write a bundle.
        checkpoints: the directory for checkpoints.
        fingerprint: of everything that a resumed run must share with the one before.
        validation_set: fingerprint of what the validators measure on; only scores on the same are compared.
    """

    validators: Sequence[Validator]
    listeners: Sequence[Callable[[Event], None]]
    keep_model: Callable[[str, Transformer, Scores, int], None]
    checkpoints: Path
    fingerprint: str
    validation_set: str = ""


class Trainer:
    """Trains one model on one stream of batches, until a limit, a lack of progress, or a signal."""

    def __init__(
        self, model: Transformer, config: Config, source: BatchSource, surroundings: Surroundings
    ) -> None:
        self.model = model
        self.config = config
        self.source = source
        self.surroundings = surroundings
        self.device = next(model.parameters()).device
        self.precision = resolve_precision(config.train.precision, self.device)
        self.optimizer = build_optimizer(model, config.optimizer)
        decay = config.train.ema_decay
        self.average = MovingAverage(model, decay) if decay else None
        self.progress = Progress()
        self._started = 0.0
        self._saved_at = 0.0
        self._epoch_length = 1
        self._rate = 0.0
        self._unlogged: list[tuple[StepMetrics, float]] = []
        self._judged: tuple[int, Scores] = (-1, {})
        self._skipped = 0  # steps in a row

    def resume(self, checkpoint: Path) -> None:
        """Take up where a checkpoint stands.

        Raises:
            CheckpointError: it is damaged, or belongs to another run.
        """
        load_checkpoint(checkpoint, self._resumable())
        progress = self.progress
        metric, validation_set = progress.judged_by
        now = self._judged_by()
        if metric and (metric, validation_set) != now:  # the best so far, by what counts from now on
            scores = progress.best_scores if validation_set == now[1] else {}
            progress.best_value = self._value(scores)
            progress.stale_validations = 0

    def _judged_by(self) -> tuple[str, str]:
        return self.config.valid.metric, self.surroundings.validation_set

    def _value(self, scores: Scores) -> float:
        """What is compared of a validation, lower is better; infinite where the metric was not measured."""
        metric = self.config.valid.metric
        sign = 1.0 if metric == "nll" else -1.0
        return sign * scores.get(metric, sign * float("inf"))

    def fit(self) -> EndEvent:
        """Train to the end.

        Raises:
            TrainingError: the loss is not finite, again and again, or a process that helps has died.
            CheckpointError: a checkpoint cannot be written.
            KeyboardInterrupt: Ctrl-C or a termination signal came; a checkpoint has been written.
        """
        self._started = time.monotonic() - self.progress.seconds
        self._saved_at = self._seconds()
        self._emit_start()
        with signals_noted() as asked_to_stop:
            while True:
                try:
                    with closing(self._team()) as team:
                        reason = self._train(team, asked_to_stop)
                    break
                except DivergedError as error:
                    self._go_back(error)
        return self._finish(reason)

    def _train(self, team: Team, asked_to_stop: Callable[[], bool]) -> str:
        """Take steps until there is a reason to stop; return it."""
        if self._reason_to_stop() is None:
            self._note_who_computes(team)
        if self.config.train.init is not None and self.progress.step == 0:
            self._validate(None)  # how good it is before it learns anything new
        places = self._places()
        self._epoch_length = len(self.source.plan(self.progress.epoch))
        while (reason := self._reason_to_stop()) is None:
            self._step(team, places)
            with self._saved_whatever_happens():
                self._log_if_due()
                self._do_what_is_due()
            if asked_to_stop():
                self._checkpoint()
                self._emit(WarningEvent, message="stopped on request; --resume goes on from here")
                raise KeyboardInterrupt
        return reason

    @contextmanager
    def _saved_whatever_happens(self) -> Iterator[None]:
        """What ends a run between two steps, ends it after a checkpoint, if there is none of this step."""
        try:
            yield
        except BaseException:
            if not is_complete(checkpoint_path(self.surroundings.checkpoints, self.progress.step)):
                with suppress(HeedfulError):  # the first error says what is wrong
                    self._checkpoint()
            raise

    def _team(self) -> Team:
        return gather_team(self.model, self.source, self.config, self.optimizer, self.average)

    def _note_who_computes(self, team: Team) -> None:
        before, now = self.progress.computed_by, describe(team, self.config, self.device)
        if before and before != now:
            self._emit(
                WarningEvent,
                message=f"{before} took the steps so far, {now} will take the next: the result will be as "
                "good, but not the same bit for bit; train.processes, train.threads, train.kernels and "
                "train.compile choose",
            )
        self.progress.computed_by = now

    def _places(self) -> Iterator[tuple[int, int]]:
        """Yield epochs and places in their plans without end, moving the data cursor past each."""
        while True:
            epoch = self.progress.epoch
            self._epoch_length = len(self.source.plan(epoch))
            for place in range(self.progress.next_batch, self._epoch_length):
                self.progress.next_batch = place + 1
                if self.progress.next_batch == self._epoch_length:
                    self.progress.epoch += 1
                    self.progress.next_batch = 0
                yield epoch, place

    def _step(self, team: Team, places: Iterator[tuple[int, int]]) -> None:
        begun = time.monotonic()
        self._rate = self._learning_rate(self.progress.step + 1)  # by what is done before this step
        taken = [next(places)]
        while len(taken) < self.config.batch.accumulation and not epochs_are_over(self.config, self.progress):
            taken.append(next(places))
        self.progress.step += 1
        metrics = team.step(StepOrder(self.progress.step, tuple(taken), self._rate))
        if metrics.is_finite:
            self._skipped = 0
            self._unlogged.append((metrics, time.monotonic() - begun))
        else:
            self._note_skipped(metrics, taken)

    def _note_skipped(self, metrics: StepMetrics, batches: Sequence[tuple[int, int]]) -> None:
        """Say that a step was not taken: its loss or gradient is not finite. The weights are as before."""
        self._skipped += 1
        pairs = [int(pair) for epoch, place in batches for pair in self.source.plan(epoch)[place]]
        self._emit(
            SkippedEvent, loss=metrics.loss, gradient_norm=metrics.gradient_norm, rate=self._rate, pairs=pairs
        )
        if self._skipped == MOST_SKIPPED:
            raise DivergedError(self.progress.step)

    def _go_back(self, error: DivergedError) -> None:
        """Take the steps since the last checkpoint again, at half the learning rate.

        Raises:
            TrainingError: there is no checkpoint, or this has helped too often already.
        """
        checkpoint = latest_checkpoint(self.surroundings.checkpoints)
        if checkpoint is None or self.progress.setbacks == MOST_SETBACKS or in_team():
            raise TrainingError(str(error))
        factor, setbacks = self.progress.rate_factor / 2, self.progress.setbacks + 1
        seconds = self._seconds()
        self.resume(checkpoint)
        self.progress.rate_factor, self.progress.setbacks = factor, setbacks
        self._started = time.monotonic() - seconds  # what was lost has taken its time
        self._skipped, self._unlogged = 0, []
        self._emit(
            WarningEvent,
            message=f"back to {checkpoint.name}, at {factor:g} times the learning rate: {MOST_SKIPPED} steps "
            f"in a row up to step {error.step} had a loss or gradient that is not finite",
        )

    def _learning_rate(self, step: int) -> float:
        rate = learning_rate(
            self.config.schedule, step, d_model=self.config.model.d_model, progress=self._fraction_done()
        )
        return rate * self.progress.rate_factor

    def _fraction_done(self) -> float:
        return fraction_done(
            self.config, self.progress, seconds=self._seconds(), epoch_length=self._epoch_length
        )

    def _reason_to_stop(self) -> str | None:
        return reason_to_stop(self.config, self.progress, seconds=self._seconds())

    def _do_what_is_due(self) -> None:
        due = due_after_step(
            self.config,
            step=self.progress.step,
            seconds=self._seconds(),
            validated_at=self.progress.validated_at,
        )
        if due.validation:
            self._validate(self.average.weights if self.average else None)
        if due.checkpoint or self._safety_checkpoint_is_due():
            self._checkpoint(is_milestone=due.checkpoint)

    def _validate(self, weights: dict[str, Tensor] | None) -> None:
        """Judge the model, with other weights where given, and keep it if it is the best so far."""
        scores: Scores = {}
        with swapped_weights(self.model, weights), uncompiled(self.config.train, self.device):
            for validator in self.surroundings.validators:
                try:
                    scores |= validator(self.model)
                except HeedfulError as error:  # nothing in a validation set ends a run
                    self._emit(WarningEvent, message=f"not validated: {error}")
            value = self._value(scores)
            is_best = value < self.progress.best_value
            self.progress.judged_by = self._judged_by()
            if is_best:
                self.progress.best_value = value
                self.progress.best_step = self.progress.step
                self.progress.best_scores = scores
                self.progress.stale_validations = 0
                self.surroundings.keep_model("best", self.model, scores, self.progress.step)
            else:
                self.progress.stale_validations += 1
        self.progress.validated_at = self._seconds()
        self._emit(ValidationEvent, scores=scores, is_best=is_best)
        self._judged = (self.progress.step, scores)

    def _finish(self, reason: str) -> EndEvent:
        """Judge and keep the final weights: the moving average, or the mean of the last checkpoints."""
        self._log()
        if not is_complete(checkpoint_path(self.surroundings.checkpoints, self.progress.step)):
            self._checkpoint(is_milestone=goes_by_the_clock(self.config))
        mean = None if self.average else self._mean_of_checkpoints()
        weights = self.average.weights if self.average else mean
        if self._judged[0] != self.progress.step or mean is not None:
            self._validate(weights)
            self._save()  # once more: that knows how good the best is now
        with swapped_weights(self.model, weights):
            if self.progress.best_value == float("inf"):  # nothing could be judged
                self.surroundings.keep_model("best", self.model, {}, self.progress.step)
            self.surroundings.keep_model("last", self.model, self._judged[1], self.progress.step)
        end = EndEvent(
            self.progress.step, self._seconds(), reason, self.progress.epoch, self.progress.best_step
        )
        self._tell(end)
        return end

    def _mean_of_checkpoints(self) -> dict[str, Tensor] | None:
        paths = [checkpoint_path(self.surroundings.checkpoints, step) for step in self.progress.milestones]
        averaged = [path for path in paths if is_complete(path)][-self.config.train.average_checkpoints :]
        return average_weights(averaged) if len(averaged) > 1 else None

    def _safety_checkpoint_is_due(self) -> bool:
        minutes = self.config.train.checkpoint_every_minutes
        return minutes is not None and self._seconds() - self._saved_at >= 60.0 * minutes

    def _checkpoint(self, *, is_milestone: bool = False) -> None:
        if is_milestone:
            steps = (*self.progress.milestones, self.progress.step)
            self.progress.milestones = steps[-self.config.train.keep_checkpoints :]
        path = self._save()
        kept = {*self.progress.milestones, self.progress.step}
        prune_checkpoints(self.surroundings.checkpoints, kept=kept)
        self._saved_at = self._seconds()
        self._emit(CheckpointEvent, path=path.name)

    def _save(self) -> Path:
        self.progress.seconds = self._seconds()
        return save_checkpoint(self._resumable(), self.surroundings.checkpoints)

    def _resumable(self) -> Resumable:
        return Resumable(
            self.model, self.optimizer, self.average, self.progress, self.surroundings.fingerprint
        )

    def _log_if_due(self) -> None:
        if self.progress.step % self.config.train.log_every_steps == 0:
            self._log()

    def _log(self) -> None:
        if not self._unlogged:
            return
        num_tokens = sum(metrics.num_tgt_tokens for metrics, _ in self._unlogged)
        self._emit(
            StepEvent,
            epoch=self.progress.epoch,
            loss=sum(metrics.loss * metrics.num_tgt_tokens for metrics, _ in self._unlogged) / num_tokens,
            nll=sum(metrics.nll * metrics.num_tgt_tokens for metrics, _ in self._unlogged) / num_tokens,
            learning_rate=self._rate,
            gradient_norm=sum(metrics.gradient_norm for metrics, _ in self._unlogged) / len(self._unlogged),
            tokens_per_second=num_tokens / sum(seconds for _, seconds in self._unlogged),
            progress=min(1.0, self._fraction_done()),
        )
        self._unlogged = []

    def _emit_start(self) -> None:
        self._emit(
            StartEvent,
            num_parameters=self.model.num_parameters,
            num_trained=num_trained(self.model),
            num_pairs=len(self.source.store),
            precision=self.precision,
            device=str(self.device),
            threads=torch.get_num_threads(),
            max_steps=self.config.train.max_steps,
            max_minutes=self.config.train.max_minutes,
        )
        if warning := emulation_warning(self.precision, self.device):
            self._emit(WarningEvent, message=warning)

    def _emit(self, kind: Callable[..., Event], **fields: object) -> None:
        self._tell(kind(step=self.progress.step, seconds=self._seconds(), **fields))

    def _tell(self, event: Event) -> None:
        for listener in self.surroundings.listeners:
            listener(event)

    def _seconds(self) -> float:
        return time.monotonic() - self._started
