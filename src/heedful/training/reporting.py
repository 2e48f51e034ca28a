"""Messages about a run: the lines of its steps, how much fits into it, and why it ended."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from statistics import median

from heedful.settings.presets import PRESETS
from heedful.settings.run import Config
from heedful.training.events import Event, NoticeEvent, ProgressEvent, StepEvent, WarningEvent
from heedful.training.schedule import Schedule, warmup_done
from heedful.training.state import Moment, Progress
from heedful.training.step import StepMetrics

_DIVERGED = 10.0  # times the loss of guessing
# Below both, outputs have next to nothing in common with the references. BLEU alone does not tell: outputs of
# fewer than four words have none.
_TRANSLATES = {"bleu": 1.0, "chrf": 20.0}
BY_CALLBACK = "stopped by a callback"  # instead of the limit that was reached
_TIMED_STEPS = 5  # before the first line; or two in half of these seconds, or one
_TIMED_SECONDS = 8.0
_SILENCE = 30.0  # seconds after which a line is shown even before train.log_every_steps steps


class StepLog:
    """The steps since the last line of the log, and the events that report them.

    `has_diverged` says whether the loss of a line was far above that of guessing, `validation_seconds` is the
    time of one validation, and `shown_at` the seconds of training at the last line.
    """

    def __init__(self, config: Config, schedule: Schedule, *, on_cpu: bool) -> None:
        self.steps_taken = 0
        self.validation_seconds: float | None = None
        self._config = config
        self._schedule = schedule
        self._on_cpu = on_cpu  # a GPU's first steps are slow
        self._unlogged: list[tuple[StepMetrics, float]] = []
        self._rate = 0.0
        self._has_shown_pace = False
        self._has_halved = False  # a batch
        self.has_diverged = False
        self.shown_at = 0.0

    def add(self, metrics: StepMetrics, rate: float, seconds: float, now: Moment) -> Iterator[Event]:
        """Add a step, with its learning rate and its seconds; it has no line if it was skipped."""
        self.steps_taken += 1
        self._rate = rate
        if metrics.is_finite:
            self._unlogged.append((metrics, seconds))
        if metrics.num_halvings and not self._has_halved:
            self._has_halved = True
            tokens = self._config.batch.tokens // 2
            yield WarningEvent(
                now.progress.step,
                now.seconds,
                "a batch did not fit into memory; it was split in two, with the same gradient, and "
                f"others will be too; a new run would save time with batch.tokens={tokens}",
            )

    def discard(self) -> None:
        """Discard the steps since the last line: they are taken again."""
        self._unlogged = []

    def due(self, now: Moment) -> Iterator[Event]:
        """Yield what is to be shown after a step."""
        is_first = not self._has_shown_pace and self._is_timed()
        if is_first:
            self._has_shown_pace = True
            pace = median(seconds for _, seconds in self._unlogged[1:] or self._unlogged)
            message = pace_message(
                self._config,
                now,
                pace=pace,
                validation=self.validation_seconds,
                has_warmup=self._schedule.own is None,
            )
            yield NoticeEvent(now.progress.step, now.seconds, message)
        if now.progress.step % self._config.train.log_every_steps == 0:
            yield from self.flush(now)
        elif is_first or now.seconds - self.shown_at >= _SILENCE:
            yield from self._means(now, ProgressEvent)

    def flush(self, now: Moment) -> Iterator[Event]:
        """Yield the means over the steps since the last event of this kind, if there are any."""
        guessing = math.log(self._config.model.tgt_vocab_size)
        for event in self._means(now, StepEvent):
            yield event
            if event.nll > _DIVERGED * guessing and not self.has_diverged:
                self.has_diverged = True
                yield WarningEvent(
                    event.step,
                    event.seconds,
                    f"the loss is {event.nll:,.0f} per token, and that of guessing {guessing:.1f}: training "
                    f"diverges; {rate_advice(self._config)}",
                )
        self._unlogged = []

    def _is_timed(self) -> bool:
        """Return whether enough steps were taken to say how long one takes."""
        if not self._unlogged:
            return False
        taken = sum(seconds for _, seconds in self._unlogged)
        is_slow = self._on_cpu and taken >= _TIMED_SECONDS / min(len(self._unlogged), 2)
        return is_slow or self.steps_taken >= _TIMED_STEPS

    def _means(self, now: Moment, kind: type[StepEvent]) -> Iterator[StepEvent]:
        """Yield the means over the steps, if there are any; all tokens count the same."""
        steps = self._unlogged
        if not steps:
            return
        self.shown_at = now.seconds
        num_tokens = sum(metrics.num_tgt_tokens for metrics, _ in steps)
        yield kind(
            now.progress.step,
            now.seconds,
            epoch=now.progress.epoch,
            loss=sum(metrics.loss * metrics.num_tgt_tokens for metrics, _ in steps) / num_tokens,
            nll=sum(metrics.nll * metrics.num_tgt_tokens for metrics, _ in steps) / num_tokens,
            learning_rate=self._rate,
            gradient_norm=sum(metrics.gradient_norm for metrics, _ in steps) / len(steps),
            tokens_per_second=num_tokens / sum(seconds for _, seconds in steps),
            progress=min(1.0, self._schedule.fraction_done(now)),
        )


def accumulation_warning(config: Config, epoch_length: int) -> str:
    """Return a warning about steps that pass the training text more than once; else an empty string."""
    number = config.batch.accumulation
    passes = min(number / epoch_length, config.train.max_epochs or math.inf)
    if passes <= 1.0:
        return ""
    return (
        f"each step passes the training text {_about(passes)} times: it has {epoch_length:,} micro-batches, "
        f"and batch.accumulation={number}; lower it"
    )


def no_step_finished(config: Config) -> str:
    """Return the error of a run that had no time for one step."""
    number = config.batch.accumulation
    lower = f", or lower batch.accumulation={number}" if number > 1 else ""
    return f"no step was finished within train.max_minutes={config.train.max_minutes:g}; raise it{lower}"


def rate_advice(config: Config) -> str:
    """Return what to do if the weights change too much in a step."""
    schedule = config.schedule
    name = "scale" if schedule.name == "paper" else "peak"
    clip = "" if config.optimizer.clip_norm else " or set optimizer.clip_norm=1"
    return f"lower schedule.{name}={getattr(schedule, name):g}{clip}"


def end_reason(config: Config, limit: str, *, step: int, steps_taken: int) -> str:
    """Return why training ended at a limit: a setting, or `BY_CALLBACK`."""
    if limit == BY_CALLBACK:
        return f"{limit} after {_count(step, 'step')}"
    section, _, key = limit.partition(".")
    value, steps = getattr(getattr(config, section), key), _count(step, "step")
    if not steps_taken:
        return f"{steps} done, {limit}={value}"
    if limit == "train.max_steps":
        return f"reached the limit of {_count(value, 'step')}"
    if limit == "valid.patience":
        return f"{_count(value, 'validation')} without a better {config.valid.metric} after {steps}"
    reached = _duration(60.0 * value) if limit == "train.max_minutes" else _count(value, "epoch")
    return f"reached the limit of {reached} after {steps}"


def has_learned(scores: Mapping[str, float]) -> bool:
    """Return whether a model with these scores translates at all, as far as they tell."""
    known = scores.keys() & _TRANSLATES.keys()
    return not known or any(scores[name] >= _TRANSLATES[name] for name in known)


def pace_message(
    config: Config, now: Moment, *, pace: float, validation: float | None = None, has_warmup: bool = True
) -> str:
    """Return how many steps of `pace` seconds fit into the run, or how long they take, and the warm-up.

    `validation` are the seconds of one, which the steps do not contain; None: not known yet. `has_warmup`:
    the settings give the learning rate.
    """
    limits, schedule, step, seconds = config.train, config.schedule, now.progress.step, now.seconds
    epoch_steps = now.epoch_length / config.batch.accumulation
    asked = min(limits.max_steps or math.inf, (limits.max_epochs or math.inf) * epoch_steps)
    fitting = step + max(0.0, 60.0 * (limits.max_minutes or math.inf) - seconds) / pace
    steps = math.ceil(min(asked, fitting))
    epochs = steps / epoch_steps
    what = f"about {_count(steps, 'step')} ({_count(epochs, 'epoch')}) of {_about(pace)} s"
    verb_end = "s" if steps == 1 else ""
    if fitting < asked:
        said = f"{what} fit{verb_end} into {_duration(60.0 * (limits.max_minutes or 0.0))}"
    else:
        said = f"{what} take{verb_end} {_duration(seconds + (steps - step) * pace, show=_about)}"
    every = config.valid.every_fraction if Schedule(config).is_time_based else None
    if steps > config.valid.every_steps if every is None else every < 1.0:
        said += " without validations" + (f" ({_about(validation)} s each)" if validation else "")
    if has_warmup and schedule.warmup_fraction is not None:
        said += f"; warm-up: the first {schedule.warmup_fraction:.0%}"
    elif has_warmup:
        is_longer = ", more than there are" if schedule.warmup_steps > steps else ""
        said += f"; warm-up: the first {schedule.warmup_steps:,}{is_longer}"
    if fitting < asked and epochs <= 1.0:
        said += f"; to learn more, {_or(['raise train.max_minutes', *_smaller_models(config)])}"
    return said


def shortfall(
    config: Config,
    progress: Progress,
    *,
    limit: str,
    done: float,
    seen: float,
    has_warmup: bool = True,
    has_diverged: bool = False,
) -> str:
    """Return what kept a run that has ended from learning, and what to do; empty if nothing did.

    At the `limit`, the fraction `done` of the run was over, and `seen` passes over the training text. After a
    divergence, more of the same does not help.
    """
    scores, schedule = progress.best_scores, config.schedule
    in_warmup = has_warmup and warmup_done(schedule, progress.step, progress=done) < 1.0
    causes = _true({"ended inside its warm-up": in_warmup, f"saw {seen:.0%} of its text": seen < 1.0})
    shown = ", ".join(f"{name} {scores[name]:.2f}" for name in _TRANSLATES if name in scores)
    is_base = bool(progress.base_scores) and progress.best_step == 0
    has_diverged = has_diverged or progress.rollbacks > 0 or progress.skipped > 0
    problems = {
        "training diverged": has_diverged,
        f"the model does not translate yet ({shown})": not has_learned(scores),
        f"training {' and '.join(causes)}": causes,
        "no validation was better than that before fine-tuning: best/ is the model as it came": is_base,
    }
    remedies = {
        "train for longer" if limit in ("valid.patience", BY_CALLBACK) else f"raise {limit}": True,
        f"lower schedule.peak={schedule.peak or 0.0:g}": is_base and schedule.peak,
        "lower schedule.warmup_steps": in_warmup and schedule.warmup_fraction is None,
    }
    if not any(problems.values()):
        return ""
    if has_diverged:
        return f"{': '.join(_true(problems))}; {rate_advice(config)}"
    return f"{': '.join(_true(problems))}; {_or([*_true(remedies), *_smaller_models(config)])}"


def _true(conditions: Mapping[str, object]) -> list[str]:
    """Return the texts that have a true condition."""
    return [text for text, applies in conditions.items() if applies]


def _smaller_models(config: Config) -> list[str]:
    """Return the advice to train a smaller model, if a preset for small data has one."""
    if config.train.init is None:
        for name in ("small", "tiny"):
            if PRESETS[name]["model"]["d_model"] < config.model.d_model:
                return [f"take a smaller model (--preset {name})"]
    return []


def _or(remedies: Sequence[str]) -> str:
    """Return what to do, as a list with "or" before its last item."""
    *others, last = remedies
    return f"{', '.join(others)}, or {last}" if others else last


def _count(number: float, noun: str) -> str:
    """Return a number rounded to two digits, or whole, and a noun in the singular or plural."""
    shown = f"{number:,}" if isinstance(number, int) else _about(number)
    return f"{shown} {noun}{'' if shown == '1' else 's'}"


def _short(value: float) -> str:
    """Return a number with three digits, or more if it is whole."""
    return f"{value:.3g}" if value < 100 else f"{value:,.0f}"


def _about(value: float) -> str:
    """Return a number rounded to two digits."""
    return _short(float(f"{value:.2g}"))


def _duration(seconds: float, *, show: Callable[[float], str] = _short) -> str:
    """Return a time in seconds below a minute, in minutes from there on."""
    number, unit = (seconds, "second") if seconds < 59.5 else (seconds / 60.0, "minute")
    shown = show(number)
    return f"{shown} {unit}{'' if shown == '1' else 's'}"
