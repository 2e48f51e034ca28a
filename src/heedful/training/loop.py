"""The training loop: steps, and after each what is due: lines, validations, checkpoints.

`Trainer.fit` recovers from divergence around the loop, which is `Trainer._train`.
"""

import math
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from signal import SIGTERM, Signals

from torch import Tensor, get_num_threads

from heedful.data.batches import BatchSource
from heedful.errors import ConfigError, HeedfulError, StopTraining, Terminated, TrainingError
from heedful.model.transformer import Transformer
from heedful.settings.run import Config
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
from heedful.training.events import (
    CUT_OUTPUTS,
    CheckpointEvent,
    EndEvent,
    Event,
    SkippedEvent,
    StartEvent,
    ValidationEvent,
    WarningEvent,
)
from heedful.training.execution import Execution, emulation_warning
from heedful.training.interrupt import caught_signals
from heedful.training.optimizer import build_optimizer, num_trained
from heedful.training.parallel.choice import check_processes, describe, start_process_group
from heedful.training.parallel.distributed import is_under_torchrun
from heedful.training.parallel.process_group import ProcessGroup, StepPlan
from heedful.training.reporting import (
    BY_CALLBACK,
    StepLog,
    accumulation_warning,
    end_reason,
    no_step_finished,
    rate_advice,
    shortfall,
)
from heedful.training.schedule import LearningRate, Moment, Schedule, recovered_rate
from heedful.training.step import LossFunction, StepInterruptedError, StepMetrics

Scores = dict[str, float]
Validator = Callable[[Transformer], Scores]


@dataclass(frozen=True)
class TrainerCallbacks:
    """Trainer callbacks: saving, validation, logging.

    Attributes:
        validators: each measures the model; their scores are merged.
        listeners: each is called with every event.
        keep_model: called with "best" or "last", the model, its scores and step, to write a bundle.
        checkpoints: the directory for checkpoints.
        fingerprint: of the data and settings that a resumed run must share with the checkpoint.
        before_writing: called before each checkpoint; an exception that it raises ends training.
        validation_set: fingerprint of the validation data; scores are compared only if it is the same.
    """

    validators: Sequence[Validator]
    listeners: Sequence[Callable[[Event], None]]
    keep_model: Callable[[str, Transformer, Scores, int], None]
    checkpoints: Path
    fingerprint: str
    validation_set: str = ""
    before_writing: Callable[[], None] = lambda: None


MAX_SKIPPED = 3  # steps in a row, before a rollback
MAX_ROLLBACKS = 4  # if halving the rate this often does not help, the learning rate is not the cause


class DivergedError(Exception):
    """`MAX_SKIPPED` steps in a row were not finite."""

    def __init__(self, step: int) -> None:
        super().__init__(f"step {step}: the loss or its gradient is not finite, {MAX_SKIPPED} steps in a row")
        self.step = step


Position = tuple[int, int]  # an epoch, and the index of a batch in its plan
StopRequest = Callable[[], Signals | None]


class Trainer:
    """Trains a model until a limit is reached, validation stops improving, or a signal arrives."""

    def __init__(
        self,
        model: Transformer,
        config: Config,
        source: BatchSource,
        callbacks: TrainerCallbacks,
        execution: Execution,
        *,
        loss: LossFunction | None = None,
        schedule: LearningRate | None = None,
    ) -> None:
        """Build the optimiser and the moving average of a model.

        Args:
            model: to which `execution` has been applied; all processes train this model, with its classes.
            config: of the run.
            source: of the batches.
            callbacks: saving, validation, logging.
            execution: of this process.
            loss: a loss function, instead of `batch_loss`.
            schedule: the learning rate of each step, instead of that of the configuration.

        Raises:
            ConfigError: the other processes of this training cannot import the loss or a class of the model.
        """
        check_processes(model, config, loss)
        self.model = model
        self.config = config
        self.source = source
        self.callbacks = callbacks
        self.execution = execution
        self.loss = loss
        self.schedule = Schedule(config, schedule)
        self.optimizer = build_optimizer(model, config.optimizer, precision=execution.precision)
        decay = config.train.ema_decay
        self.average = MovingAverage(model, decay) if decay else None
        self.progress = Progress()
        self._group: ProcessGroup | None = None
        self._stop_request: StopRequest = lambda: None
        self._stopped_by: str | None = None
        self._steps = StepLog(config, self.schedule, on_cpu=execution.device.type == "cpu")
        self._started = 0.0
        self._saved_at = 0.0
        self._epoch_length = 1

    def resume(self, checkpoint: Path) -> None:
        """Continue from a checkpoint.

        Raises:
            CheckpointError: it is damaged, or belongs to another run.
        """
        load_checkpoint(checkpoint, self._resumable())
        progress = self.progress
        metric, validation_set = progress.validated_by
        if metric and (metric, validation_set) != self._validated_by():  # compare by the new ones
            if validation_set != self.callbacks.validation_set:
                progress.best_scores = progress.base_scores = {}
            progress.best_value = self._value(progress.best_scores)
            progress.stale_validations = 0
            progress.validated_step = -1

    def fit(self) -> EndEvent:
        """Train to the end; after a divergence, again from the last checkpoint.

        Raises:
            TrainingError: the loss is not finite even after rollbacks, or at the end; a worker has died; or
                the time was too short for one step.
            CheckpointError: a checkpoint cannot be written.
            Terminated: SIGTERM; a checkpoint has been written.
            KeyboardInterrupt: SIGINT, and a checkpoint has been written; or a second signal.
        """
        self._started = time.monotonic() - self.progress.seconds
        self._saved_at = self._seconds()
        self._steps.start(self._saved_at)
        self._emit_start()
        with caught_signals() as self._stop_request:
            while True:
                try:
                    with closing(self._process_group()) as group:
                        self._group = group
                        limit = self._train(group)
                    self._group = None
                    return self._finish(limit)
                except DivergedError as error:
                    self._roll_back(error)

    def _train(self, group: ProcessGroup) -> str:
        """Take steps until a limit is reached; return the name of its setting, such as "train.max_steps".

        Raises:
            DivergedError: too many steps in a row were not finite.
            TrainingError: the time was too short for one step.
        """
        self._before_the_first_step(group)
        positions = self._positions()
        while (limit := self._stopped_by or self.schedule.reached_limit(self._now())) is None:
            started, before = time.monotonic(), replace(self.progress)
            try:
                plan = self._plan(positions)
                metrics = group.step(plan)
            except StepInterruptedError:
                self.progress = before
                self._epoch_length = len(self.source.plan(before.epoch))
                self._stop_if_asked()
                continue  # the time is over, which is a limit
            with self._saved_on_error():
                self._record(plan, metrics, time.monotonic() - started)
                self._run_due()
            self._stop_if_asked()
        if self.progress.step == 0:  # no weight has changed, so none may be saved as trained
            raise TrainingError(no_step_finished(self.config))
        return limit

    def _before_the_first_step(self, group: ProcessGroup) -> None:
        """Note how the run is computed, and do what was due when it ended or begins."""
        self._epoch_length = len(self.source.plan(self.progress.epoch))
        if self.schedule.reached_limit(self._now()) is None:
            self._note_computed_by(group)
            message = accumulation_warning(self.config, self._epoch_length)
            if message and not self.progress.rollbacks:
                self._emit(WarningEvent, message=message)
        if self.config.train.init is not None and self.progress.step == 0:
            self._validate_base_model()
        if self.progress.step > 0 and not self.schedule.is_time_based:
            self._run_overdue()

    def _process_group(self) -> ProcessGroup:
        return start_process_group(
            self.model, self.source, self.config, self.execution, self.optimizer, self.average,
            loss=self.loss, is_interrupted=self._is_interrupted,
        )  # fmt: skip

    def _is_interrupted(self) -> bool:
        return self._stop_request() is not None or self.schedule.is_time_over(self._seconds())

    def _plan(self, positions: Iterator[Position]) -> StepPlan:
        """Plan the next step; the learning rate is by the progress before it.

        Raises:
            StepInterruptedError: a step of very many micro-batches is interrupted before it begins.
        """
        rate = self.schedule.learning_rate(self._now())
        batches = [next(positions)]
        while len(batches) < self.config.batch.accumulation and not self.schedule.epochs_are_over(
            self.progress
        ):
            if self._is_interrupted():
                raise StepInterruptedError
            batches.append(next(positions))
        self.progress.step += 1
        return StepPlan(self.progress.step, tuple(batches), rate)

    def _positions(self) -> Iterator[Position]:
        """Yield the positions of micro-batches without end, advancing the data cursor past each."""
        while True:
            epoch = self.progress.epoch
            self._epoch_length = len(self.source.plan(epoch))
            for index in range(self.progress.next_batch, self._epoch_length):
                self.progress.next_batch = index + 1
                if self.progress.next_batch == self._epoch_length:
                    self.progress.epoch += 1
                    self.progress.next_batch = 0
                yield epoch, index

    def _record(self, plan: StepPlan, metrics: StepMetrics, seconds: float) -> None:
        """Record a step for the log, or report that it was skipped.

        Raises:
            DivergedError: too many in a row were.
        """
        progress = self.progress
        self._notify(self._steps.add(metrics, plan.learning_rate, seconds, self._now()))
        if metrics.is_finite:
            progress.skipped = 0
            progress.rate_factor = recovered_rate(progress.rate_factor, rollbacks=progress.rollbacks)
            return
        pairs = [int(pair) for epoch, index in plan.batches for pair in self.source.plan(epoch)[index]]
        loss, norm = metrics.loss, metrics.gradient_norm
        self._emit(SkippedEvent, loss=loss, gradient_norm=norm, rate=plan.learning_rate, pairs=pairs)
        progress.skipped += 1
        if progress.skipped == MAX_SKIPPED:
            raise DivergedError(plan.step)

    def _run_due(self) -> None:
        """Log, validate and save what is due after a step."""
        self._notify(self._steps.due(self._now()))
        due = self.schedule.due(self._now())
        if due.validation:
            self._validate_latest()
        if (due.checkpoint or self._safety_checkpoint_is_due()) and not self.progress.skipped:
            self._checkpoint(is_regular=due.checkpoint)

    def _run_overdue(self) -> None:
        """After a resumption, do the validation and checkpoint of its step if the run ended before them."""
        progress, due = self.progress, self.schedule.due(self._now())
        if due.validation and 0 <= progress.validated_step < progress.step:
            self._validate_latest()
        if due.checkpoint and progress.step not in progress.regular_checkpoints and not progress.skipped:
            self._checkpoint(is_regular=True)

    def _roll_back(self, error: DivergedError) -> None:
        """Return to the last checkpoint, with half the learning rate.

        Raises:
            TrainingError: there is no checkpoint, or there were too many rollbacks.
        """
        checkpoint = latest_checkpoint(self.callbacks.checkpoints)
        if checkpoint is None or self.progress.rollbacks == MAX_ROLLBACKS or is_under_torchrun():
            again = "start anew" if checkpoint is None else "--resume from the last checkpoint"
            raise TrainingError(f"{error}; {rate_advice(self.config)}, then {again}")
        factor, rollbacks = self.progress.rate_factor / 2, self.progress.rollbacks + 1
        seconds, was = self._seconds(), replace(self.progress)
        self.resume(checkpoint)
        self.progress.rate_factor, self.progress.rollbacks = factor, rollbacks
        self.progress.best_value, self.progress.best_step = was.best_value, was.best_step  # as best/ has it
        self.progress.best_scores = was.best_scores
        self._started = time.monotonic() - seconds  # lost steps count towards the time
        self.progress.skipped = 0
        self._steps.discard()
        self._emit(
            WarningEvent,
            message=f"back to {checkpoint.name}, at {factor:g} times the learning rate: {MAX_SKIPPED} steps "
            f"in a row up to step {error.step} had a loss or gradient that is not finite",
        )

    def _stop_if_asked(self) -> None:
        """Save a checkpoint and end the run if there was a signal.

        Raises:
            Terminated: it was SIGTERM.
            KeyboardInterrupt: it was Ctrl-C.
        """
        signal, step = self._stop_request(), self.progress.step
        if signal is not None:
            self._save_this_step()
            where = f"after step {step:,}, which is saved" if step else "before the first step was finished"
            message = f"stopped by {signal.name} {where}; --resume continues from there"
            self._emit(WarningEvent, message=message)
            raise Terminated if signal == SIGTERM else KeyboardInterrupt

    @contextmanager
    def _saved_on_error(self) -> Iterator[None]:
        """Save a checkpoint before an error ends the run between steps, except for a second signal."""
        try:
            yield
        except (KeyboardInterrupt, DivergedError):
            raise
        except BaseException:
            with suppress(HeedfulError, OSError):  # the first error is the one to report
                self._save_this_step()
            raise

    def _validate_latest(self) -> None:
        self._gather()
        self._validate(self.average.weights if self.average else None)

    def _validate(self, weights: dict[str, Tensor] | None) -> None:
        """Validate the model, with `weights` unless None, and save it if it is the best so far."""
        scores: Scores = {}
        with swapped_weights(self.model, weights), self.execution.eagerly():
            for validator in self.callbacks.validators:
                try:
                    scores |= validator(self.model)
                except ConfigError:  # of a plugin that is no validator
                    raise
                except HeedfulError as error:  # a faulty validation set does not end a run
                    self._emit(WarningEvent, message=f"not validated: {error}")
            cut_outputs = int(scores.pop(CUT_OUTPUTS, 0))
            progress, value = self.progress, self._value(scores)
            is_best = self._is_better(scores) and not _is_damaged(scores)
            if is_best:
                self.callbacks.keep_model("best", self.model, scores, progress.step)
        self._emit(ValidationEvent, scores=scores, is_best=is_best, cut_outputs=cut_outputs)
        if math.inf > value > (before := self._value(progress.base_scores)):
            metric = self.config.valid.metric
            message = f"{metric} is {abs(value):.2f}, and was {abs(before):.2f} before fine-tuning"
            self._emit(WarningEvent, message=message)
        progress.validated_by, progress.validated_at = self._validated_by(), self._seconds()
        progress.validated_step, progress.validated_scores = progress.step, scores
        if is_best:
            progress.best_value, progress.best_step, progress.best_scores = value, progress.step, scores
            progress.stale_validations = 0
        else:
            progress.stale_validations += 1

    def _validate_base_model(self) -> None:
        """Validate the model as it came; this is no part of the time that the schedule divides."""
        before = self._seconds()
        self._validate(None)
        self.progress.base_scores = self.progress.validated_scores
        self._steps.validation_seconds = self._seconds() - before
        self._started += self._steps.validation_seconds
        self.progress.validated_at = before

    def _validated_by(self) -> tuple[str, str]:
        return self.config.valid.metric, self.callbacks.validation_set

    def _is_better(self, scores: Scores) -> bool:
        """Return whether scores are better than the best so far: of equal values, those of the lower nll."""
        value, best = self._value(scores), self.progress.best_value
        if value != best:
            return value < best
        nlls = [each.get("nll", math.inf) for each in (scores, self.progress.best_scores)]
        return math.isfinite(value) and nlls[0] < nlls[1]

    def _value(self, scores: Scores) -> float:
        """Return the value that validations are compared by: lower is better, infinite if not measured."""
        metric = self.config.valid.metric
        sign = 1.0 if metric == "nll" else -1.0
        return sign * scores.get(metric, sign * float("inf"))

    def _safety_checkpoint_is_due(self) -> bool:
        minutes = self.config.train.checkpoint_every_minutes
        return minutes is not None and self._seconds() - self._saved_at >= 60.0 * minutes

    def _checkpoint(self, *, is_regular: bool = False) -> None:
        if is_regular:
            steps = (*self.progress.regular_checkpoints, self.progress.step)
            self.progress.regular_checkpoints = steps[-self.config.train.keep_checkpoints :]
        path = self._save()
        retained = {*self.progress.regular_checkpoints, self.progress.step}
        prune_checkpoints(self.callbacks.checkpoints, retained=retained)
        self._saved_at = self._seconds()
        self._emit(CheckpointEvent, path=path.name)

    def _save_this_step(self, *, is_regular: bool = False) -> None:
        if not is_complete(checkpoint_path(self.callbacks.checkpoints, self.progress.step)):
            self._checkpoint(is_regular=is_regular)

    def _save(self) -> Path:
        self.callbacks.before_writing()
        self._gather()
        self.progress.seconds = self._seconds()
        return save_checkpoint(self._resumable(), self.callbacks.checkpoints)

    def _gather(self) -> None:
        """Have weights, optimiser state and average here, of which the process group may hold shards."""
        if self._group is not None:
            self._group.gather()

    def _resumable(self) -> Resumable:
        return Resumable(self.model, self.optimizer, self.average, self.progress, self.callbacks.fingerprint)

    def _finish(self, limit: str) -> EndEvent:
        """Validate and save the final weights: the moving average, or the mean of the last checkpoints.

        Raises:
            TrainingError: their loss is not finite, and no weights were kept whose loss is.
        """
        now = self._now()
        self._notify(self._steps.flush(now))
        done = self.schedule.fraction_done(now)
        self._save_this_step(is_regular=self.schedule.is_time_based)
        self._stop_if_asked()
        mean = None if self.average else self._mean_of_checkpoints()
        weights = self.average.weights if self.average else mean
        if self.progress.validated_step != self.progress.step or mean is not None:
            self._validate(weights)
            self._save()  # again, with these scores
        self._check_loss()
        with swapped_weights(self.model, weights):
            if self.progress.best_value == float("inf"):  # no validation succeeded
                self.callbacks.keep_model("best", self.model, {}, self.progress.step)
            self.callbacks.keep_model("last", self.model, self.progress.validated_scores, self.progress.step)
        steps_taken = self._steps.steps_taken
        end = EndEvent(
            self.progress.step,
            self._seconds(),
            end_reason(self.config, limit, step=self.progress.step, steps_taken=steps_taken),
            self.progress.epoch,
            self.progress.best_step,
            steps_taken,
            shortfall(
                self.config,
                self.progress,
                limit=limit,
                done=done,
                seen=now.epochs,
                has_warmup=self.schedule.own is None,
            ),
        )
        self._notify([end])
        return end

    def _check_loss(self) -> None:
        """Warn if the final weights are damaged and the best ones are not.

        Raises:
            TrainingError: none were kept that are not damaged.
        """
        progress = self.progress
        has_best = progress.best_value < float("inf")
        if not _is_damaged(progress.validated_scores) and (has_best or not progress.skipped):
            return
        message = f"step {progress.step}: the loss is not finite; {rate_advice(self.config)}"
        if not has_best:
            raise TrainingError(f"{message}, then start anew")
        self._emit(
            WarningEvent, message=f"{message}; last/ is damaged, best/ is from step {progress.best_step}"
        )

    def _mean_of_checkpoints(self) -> dict[str, Tensor] | None:
        paths = [
            checkpoint_path(self.callbacks.checkpoints, step) for step in self.progress.regular_checkpoints
        ]
        averaged = [path for path in paths if is_complete(path)][-self.config.train.average_checkpoints :]
        return average_weights(averaged) if len(averaged) > 1 else None

    def _note_computed_by(self, group: ProcessGroup) -> None:
        before, now = self.progress.computed_by, describe(group, self.execution)
        if before and before != now:
            self._emit(
                WarningEvent,
                message=f"resuming with {now} after {before}: the result will be as good, but not the same "
                "bit for bit; train.processes, train.threads, train.kernels, train.compile and HEEDFUL_ISA "
                "choose",
            )
        self.progress.computed_by = now

    def _emit_start(self) -> None:
        self._emit(
            StartEvent,
            num_parameters=self.model.num_parameters,
            num_trained=num_trained(self.model),
            num_pairs=len(self.source.store),
            precision=self.execution.precision,
            device=str(next(self.model.parameters()).device),
            threads=get_num_threads(),
            max_steps=self.config.train.max_steps,
            max_minutes=self.config.train.max_minutes,
        )
        if warning := emulation_warning(self.execution.precision, self.execution.device):
            self._emit(WarningEvent, message=warning)

    def _emit(self, kind: Callable[..., Event], **fields: object) -> None:
        self._notify([kind(step=self.progress.step, seconds=self._seconds(), **fields)])

    def _notify(self, events: Iterable[Event]) -> None:
        for event in events:
            for listener in self.callbacks.listeners:
                try:
                    listener(event)
                except StopTraining:
                    self._stopped_by = BY_CALLBACK

    def _now(self) -> Moment:
        return Moment(self.progress, self._seconds(), self._epoch_length)

    def _seconds(self) -> float:
        return time.monotonic() - self._started


def _is_damaged(scores: Scores) -> bool:
    """Return whether a validation found weights whose loss is not a finite number."""
    return not math.isfinite(scores.get("nll", 0.0))
