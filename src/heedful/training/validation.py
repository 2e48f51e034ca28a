"""Validation during training: scores of the model, and the choice of the best one."""

import math

from torch import Tensor

from heedful.errors import HeedfulError, TrainingError
from heedful.model.transformer import Transformer
from heedful.training.averaging import MovingAverage, swapped_weights
from heedful.training.events import CUT_OUTPUTS, ValidationEvent, WarningEvent
from heedful.training.execution import Execution
from heedful.training.reporting import rate_advice
from heedful.training.state import RunState, Scores


class Validation:
    """Validates the model of a run, and keeps the best one."""

    def __init__(
        self, run: RunState, model: Transformer, average: MovingAverage | None, execution: Execution
    ) -> None:
        self._run = run
        self._model = model
        self._average = average
        self._execution = execution

    def validate_latest(self) -> None:
        """Validate the moving average, or the model without one."""
        self._run.gather()
        self.validate(self._average.weights if self._average else None)

    def validate(self, weights: dict[str, Tensor] | None) -> None:
        """Validate the model, with `weights` unless None, and save it if it is the best so far."""
        run, progress, scores = self._run, self._run.progress, Scores()
        with swapped_weights(self._model, weights), self._execution.eagerly():
            for validator in run.callbacks.validators:
                try:
                    scores |= validator(self._model)
                except HeedfulError as error:  # a faulty validation set or part does not end a run
                    run.emit(WarningEvent, message=f"not validated: {error}")
            cut_outputs = int(scores.pop(CUT_OUTPUTS, 0))
            is_best = self._is_better(scores) and not _is_damaged(scores)
            if is_best:
                run.callbacks.keep_model("best", self._model, scores, progress.step)
        run.emit(ValidationEvent, scores=scores, is_best=is_best, cut_outputs=cut_outputs)
        value, base = self._value(scores), self._value(progress.base_scores)
        if math.inf > value > base:
            metric = run.config.valid.metric
            message = f"{metric} is {abs(value):.2f}, and was {abs(base):.2f} before fine-tuning"
            run.emit(WarningEvent, message=message)
        progress.validated_by, progress.validated_at = self._validated_by, run.seconds
        progress.validated_step, progress.validated_scores = progress.step, scores
        progress.stale_validations += 1
        if is_best:
            progress.best_value, progress.best_step, progress.best_scores = value, progress.step, scores
            progress.stale_validations = 0

    def validate_base_model(self) -> float:
        """Validate before step 1, not counted by the schedule; return the seconds that it took."""
        before = self._run.seconds
        self.validate(None)
        taken = self._run.seconds - before
        self._run.set_seconds(before)
        self._run.progress.base_scores = self._run.progress.validated_scores
        self._run.progress.validated_at = before
        return taken

    def forget_incomparable_scores(self) -> None:
        """After a resumption with another metric or validation set, forget what cannot be compared."""
        progress = self._run.progress
        metric, validation_set = progress.validated_by
        if metric and progress.validated_by != self._validated_by:
            if validation_set != self._run.callbacks.validation_set:
                progress.best_scores = progress.base_scores = {}
            progress.best_value = self._value(progress.best_scores)
            progress.stale_validations = 0
            progress.validated_step = -1

    def keep_last(self, weights: dict[str, Tensor] | None) -> None:
        """Save the final model, with `weights` unless None; it is the best too if none was validated."""
        progress, keep = self._run.progress, self._run.callbacks.keep_model
        has_best = progress.best_value < math.inf
        if _is_damaged(progress.validated_scores) or (progress.skipped and not has_best):
            message = f"step {progress.step}: the loss is not finite; {rate_advice(self._run.config)}"
            if not has_best:
                raise TrainingError(f"{message}, then start anew")
            damaged = f"{message}; last/ is damaged, best/ is from step {progress.best_step}"
            self._run.emit(WarningEvent, message=damaged)
        with swapped_weights(self._model, weights):
            if not has_best:
                keep("best", self._model, {}, progress.step)
            keep("last", self._model, progress.validated_scores, progress.step)

    @property
    def _validated_by(self) -> tuple[str, str]:
        return self._run.config.valid.metric, self._run.callbacks.validation_set

    def _is_better(self, scores: Scores) -> bool:
        """Return whether scores are better than the best so far; the nll decides between equal values."""
        progress, value = self._run.progress, self._value(scores)
        if value != progress.best_value:
            return value < progress.best_value
        nll = scores.get("nll", math.inf)
        return math.isfinite(value) and nll < progress.best_scores.get("nll", math.inf)

    def _value(self, scores: Scores) -> float:
        """Return the value to compare validations by: lower is better, infinite if not measured."""
        metric = self._run.config.valid.metric
        sign = 1.0 if metric == "nll" else -1.0
        return sign * scores.get(metric, sign * math.inf)


def _is_damaged(scores: Scores) -> bool:
    """Return whether a validation found weights with a loss that is not finite."""
    return not math.isfinite(scores.get("nll", 0.0))
