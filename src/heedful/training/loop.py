"""The training loop: steps, and after a step the validations and checkpoints that are due.

`Trainer.fit` recovers from divergence around the loop, which is `Trainer._train`.
"""

from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from signal import SIGTERM, Signals

from torch import get_num_threads

from heedful.data.batches import BatchSource
from heedful.errors import Terminated, TrainingError
from heedful.model.transformer import Transformer
from heedful.settings.run import Config
from heedful.training.averaging import MovingAverage
from heedful.training.checkpoint import MAX_SKIPPED, Checkpointer, DivergedError
from heedful.training.events import EndEvent, SkippedEvent, StartEvent, WarningEvent
from heedful.training.execution import Execution, emulation_warning
from heedful.training.interrupt import caught_signals
from heedful.training.optimizer import build_optimizer, num_trained
from heedful.training.parallel.choice import check_processes, describe, start_process_group
from heedful.training.parallel.process_group import ProcessGroup, StepPlan
from heedful.training.reporting import (
    BY_CALLBACK,
    StepLog,
    accumulation_warning,
    end_reason,
    no_step_finished,
    shortfall,
)
from heedful.training.schedule import LearningRate, Schedule, recovered_rate
from heedful.training.state import RunState, TrainerCallbacks
from heedful.training.step import LossFunction, StepInterruptedError, StepMetrics
from heedful.training.validation import Validation


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
        """Build the optimiser and the moving average of a model; check that other processes can get it."""
        check_processes(model, config, loss)
        self.model = model
        self.config = config
        self.source = source
        self.execution = execution
        self.loss = loss
        self.schedule = Schedule(config, schedule)
        self.optimizer = build_optimizer(model, config.optimizer, precision=execution.precision)
        decay = config.train.ema_decay
        self.average = MovingAverage(model, decay) if decay else None
        self.run = RunState(config, callbacks)
        self.checkpointer = Checkpointer(self.run, model, self.optimizer, self.average)
        self.validation = Validation(self.run, model, self.average, execution)
        self._steps = StepLog(config, self.schedule, on_cpu=execution.device.type == "cpu")
        self._stop_request: Callable[[], Signals | None] = lambda: None

    def resume(self, checkpoint: Path) -> None:
        """Continue from a checkpoint."""
        self.checkpointer.load(checkpoint)
        self.validation.forget_incomparable_scores()

    def fit(self) -> EndEvent:
        """Train to the end; after a divergence, again from the last checkpoint.

        Raises:
            TrainingError: the loss is not finite even after rollbacks, or at the end; a worker has died; or
                the time was too short for one step.
            CheckpointError: a checkpoint cannot be written.
            Terminated: SIGTERM arrived; a checkpoint has been written.
            KeyboardInterrupt: SIGINT arrived, and a checkpoint has been written; or a second signal arrived.
        """
        run = self.run
        run.set_seconds(run.progress.seconds)
        self.checkpointer.saved_at = self._steps.shown_at = run.seconds
        run.emit(
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
            run.emit(WarningEvent, message=warning)
        with caught_signals() as self._stop_request:
            while True:
                group = start_process_group(
                    self.model, self.source, self.config, self.execution, self.optimizer, self.average,
                    loss=self.loss, is_interrupted=self._is_interrupted,
                )  # fmt: skip
                try:
                    with closing(group):
                        run.gather = group.gather
                        limit = self._train(group)
                    run.gather = lambda: None
                    return self._finish(limit)
                except DivergedError as error:
                    self.checkpointer.roll_back(error)
                    self._steps.discard()

    def _train(self, group: ProcessGroup) -> str:
        """Take steps until a limit is reached; return the name of its setting, such as "train.max_steps"."""
        run = self.run
        run.epoch_length = len(self.source.plan(run.progress.epoch))
        self._begin(group)
        plans = step_plans(run, self.source, self.schedule, self._is_interrupted)
        while (limit := BY_CALLBACK if run.is_stopped else self.schedule.reached_limit(run.now())) is None:
            started, before = run.seconds, replace(run.progress)
            try:
                plan = next(plans)
                metrics = group.step(plan)
            except StepInterruptedError:
                run.progress = before
                run.epoch_length = len(self.source.plan(before.epoch))
                self._stop_if_asked()
                continue  # the time is over, which is a limit
            with self.checkpointer.saved_on_error():
                self._record(plan, metrics, run.seconds - started)
                self._log_validate_save()
            self._stop_if_asked()
        if run.progress.step == 0:  # no weight has changed, so none may be saved as trained
            raise TrainingError(no_step_finished(self.config))
        return limit

    def _begin(self, group: ProcessGroup) -> None:
        """Report how the run is computed, and do what the run has not done yet when it ended."""
        run, progress = self.run, self.run.progress
        if self.schedule.reached_limit(run.now()) is None:
            before, now = progress.computed_by, describe(group, self.execution)
            progress.computed_by = now
            if before and before != now:
                run.emit(
                    WarningEvent,
                    message=f"resuming with {now} after {before}: the result will be as good, but not the "
                    "same bit for bit; train.processes, train.threads, train.kernels, train.compile and "
                    "HEEDFUL_ISA choose",
                )
            message = accumulation_warning(self.config, run.epoch_length)
            if message and not progress.rollbacks:
                run.emit(WarningEvent, message=message)
        if self.config.train.init is not None and progress.step == 0:
            self._steps.validation_seconds = self.validation.validate_base_model()
        if progress.step > 0 and not self.schedule.is_time_based:
            due = self.schedule.due(run.now())
            if due.validation and 0 <= progress.validated_step < progress.step:
                self.validation.validate_latest()
            if due.checkpoint and progress.step not in progress.regular_checkpoints and not progress.skipped:
                self.checkpointer.save(is_regular=True)

    def _is_interrupted(self) -> bool:
        return self._stop_request() is not None or self.schedule.is_time_over(self.run.seconds)

    def _record(self, plan: StepPlan, metrics: StepMetrics, seconds: float) -> None:
        """Record a step for the log, or report that it was skipped."""
        run, progress = self.run, self.run.progress
        run.notify(self._steps.add(metrics, plan.learning_rate, seconds, run.now()))
        if metrics.is_finite:
            progress.skipped = 0
            progress.rate_factor = recovered_rate(progress.rate_factor, rollbacks=progress.rollbacks)
            return
        pairs = [int(pair) for epoch, index in plan.batches for pair in self.source.plan(epoch)[index]]
        loss, norm = metrics.loss, metrics.gradient_norm
        run.emit(SkippedEvent, loss=loss, gradient_norm=norm, rate=plan.learning_rate, pairs=pairs)
        progress.skipped += 1
        if progress.skipped == MAX_SKIPPED:
            raise DivergedError(plan.step)

    def _log_validate_save(self) -> None:
        """Log, validate and save what is due after a step."""
        self.run.notify(self._steps.due(self.run.now()))
        due = self.schedule.due(self.run.now())
        if due.validation:
            self.validation.validate_latest()
        if (due.checkpoint or self.checkpointer.is_due) and not self.run.progress.skipped:
            self.checkpointer.save(is_regular=due.checkpoint)

    def _stop_if_asked(self) -> None:
        """Save a checkpoint and end the run if there was a signal."""
        signal, step = self._stop_request(), self.run.progress.step
        if signal is not None:
            self.checkpointer.save_once()
            where = f"after step {step:,}, which is saved" if step else "before the first step was finished"
            message = f"stopped by {signal.name} {where}; --resume continues from there"
            self.run.emit(WarningEvent, message=message)
            raise Terminated if signal == SIGTERM else KeyboardInterrupt

    def _finish(self, limit: str) -> EndEvent:
        """Validate and save the final weights: the moving average, or the mean of the last checkpoints."""
        run, now = self.run, self.run.now()
        run.notify(self._steps.flush(now))
        done = self.schedule.fraction_done(now)
        self.checkpointer.save_once(is_regular=self.schedule.is_time_based)
        self._stop_if_asked()
        mean = None if self.average else self.checkpointer.mean()
        weights = self.average.weights if self.average else mean
        progress = run.progress
        if progress.validated_step != progress.step or mean is not None:
            self.validation.validate(weights)
            self.checkpointer.write()  # again, with these scores
        self.validation.keep_last(weights)
        steps_taken, has_warmup = self._steps.steps_taken, self.schedule.own is None
        end = EndEvent(
            progress.step,
            run.seconds,
            end_reason(self.config, limit, step=progress.step, steps_taken=steps_taken),
            progress.epoch,
            progress.best_step,
            steps_taken,
            shortfall(
                self.config,
                progress,
                limit=limit,
                done=done,
                seen=now.epochs,
                has_warmup=has_warmup,
                has_diverged=self._steps.has_diverged,
            ),
        )
        run.notify([end])
        return end


def step_plans(
    run: RunState, source: BatchSource, schedule: Schedule, is_interrupted: Callable[[], bool]
) -> Iterator[StepPlan]:
    """Plan steps without end, and advance the progress past each; its learning rate is by the time before.

    An interruption inside a step of very many micro-batches is a StepInterruptedError.
    """
    positions = _positions(run, source)
    while True:
        rate = schedule.learning_rate(run.now())
        batches = [next(positions)]
        while len(batches) < run.config.batch.accumulation and not schedule.epochs_are_over(run.progress):
            if is_interrupted():
                raise StepInterruptedError
            batches.append(next(positions))
        run.progress.step += 1
        yield StepPlan(run.progress.step, tuple(batches), rate)


def _positions(run: RunState, source: BatchSource) -> Iterator[tuple[int, int]]:
    """Yield the epoch and index of each micro-batch, without end, and advance the progress past each."""
    progress = run.progress
    while True:
        epoch = progress.epoch
        run.epoch_length = len(source.plan(epoch))
        for index in range(progress.next_batch, run.epoch_length):
            progress.next_batch = index + 1
            if progress.next_batch == run.epoch_length:
                progress.epoch, progress.next_batch = epoch + 1, 0
            yield epoch, index
