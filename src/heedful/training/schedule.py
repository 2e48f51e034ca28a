"""Learning rate schedules (5.3)."""

import math
from collections.abc import Mapping
from dataclasses import dataclass

from heedful.settings.run import Config, ScheduleConfig
from heedful.training.checkpoint import Progress

_FIRST = 0.001  # of the peak: the rate of a first step, when no part of the run is done


def learning_rate(config: ScheduleConfig, step: int, *, d_model: int, progress: float = 0.0) -> float:
    """Return the learning rate of an optimiser step.

    - paper: d_model^-0.5 · min(step^-0.5, step · warmup^-1.5), times `scale` (5.3, equation 3).
    - inverse_sqrt: the same shape, with `peak` as its highest value.
    - constant: `peak` after the warm-up.
    - linear, cosine, 1-sqrt: `peak`, then down to `floor · peak` over the last `decay_fraction` of the run,
      in that shape. Where the fraction is below 1, this is called warm-up-stable-decay, WSD (Hu et al.,
      2024, "MiniCPM"); 1-sqrt falls steeply first (Hägele et al., 2024).

    All but the paper's rise in a line, over `warmup_steps` or over the first `warmup_fraction` of the run.

    Args:
        config: the schedule.
        step: counted from 1.
        d_model: the model's width, for the paper's schedule.
        progress: how much of the run is done before this step, 0 to 1, by the nearest limit (steps, epochs,
            minutes).
    """
    if config.name == "paper":
        rising, falling = step * math.pow(config.warmup_steps, -1.5), math.pow(step, -0.5)
        return config.scale * math.pow(d_model, -0.5) * min(rising, falling)
    peak = config.peak or 0.0
    risen = warmup_done(config, step, progress=progress)
    if risen < 1.0:
        return peak * risen
    if config.name == "inverse_sqrt":
        return peak / math.sqrt(risen)
    if config.name == "constant":
        return peak
    decayed = min(1.0, max(0.0, (progress - 1.0) / config.decay_fraction + 1.0))
    if config.name == "cosine":
        decayed = 0.5 - 0.5 * math.cos(math.pi * decayed)
    elif config.name == "1-sqrt":
        decayed = math.sqrt(decayed)
    return peak * (1.0 - decayed * (1.0 - config.floor))


def warmup_done(config: ScheduleConfig, step: int, *, progress: float) -> float:
    """Return how much of the warm-up is done: 1 at its end, and more than 1 after it.

    Args:
        config: the schedule.
        step: counted from 1.
        progress: how much of the run is done before this step.
    """
    if config.warmup_fraction is not None:
        return max(_FIRST, progress / config.warmup_fraction)
    return step / max(config.warmup_steps, 1)


@dataclass(frozen=True)
class Due:
    """The actions due after a step."""

    validation: bool
    checkpoint: bool


def is_time_based(config: Config) -> bool:
    """Return whether both are due after fractions of the run, because only minutes limit it.

    The number of steps in those minutes depends on the machine, so a count of steps may never be reached.
    """
    train = config.train
    return train.max_steps is None and train.max_epochs is None and config.valid.every_fraction is not None


def due_after_step(config: Config, *, step: int, seconds: float, validated_at: float) -> Due:
    """Return what is due after a step.

    In a time-based run both are due at each multiple of `valid.every_fraction` of the minutes, but at least
    half of that fraction after the end of the last validation.

    Args:
        config: of the run.
        step: the step, counted from 1.
        seconds: of training so far, validation included.
        validated_at: the seconds at which the last validation ended; 0 before the first.
    """
    train, valid = config.train, config.valid
    if not is_time_based(config):
        return Due(step % valid.every_steps == 0, step % train.checkpoint_every_steps == 0)
    assert train.max_minutes is not None
    assert valid.every_fraction is not None
    interval = 60.0 * train.max_minutes * valid.every_fraction
    is_due = seconds >= (round(validated_at / interval) + 1) * interval
    return Due(is_due, is_due)


_TRANSLATES = 1.0  # BLEU; below it, outputs have next to nothing in common with the references


def fraction_done(config: Config, progress: Progress, *, seconds: float, epoch_length: int) -> float:
    """Return how much of the run is done, 0 to 1, by the limit that is nearest.

    Args:
        config: of the run.
        progress: of training.
        seconds: of training so far.
        epoch_length: micro-batches of the current epoch.
    """
    limits = config.train
    done = [0.0]
    if limits.max_steps:
        done.append(progress.step / limits.max_steps)
    if limits.max_epochs:
        done.append((progress.epoch + progress.next_batch / epoch_length) / limits.max_epochs)
    if limits.max_minutes:
        done.append(seconds / (60.0 * limits.max_minutes))
    return max(done)


def epochs_are_over(config: Config, progress: Progress) -> bool:
    """Return whether `train.max_epochs` epochs are done."""
    limit = config.train.max_epochs
    return limit is not None and progress.epoch >= limit


def reached_limit(config: Config, progress: Progress, *, seconds: float) -> str | None:
    """Return the setting that ends training here, such as `train.max_steps`, or None if it continues."""
    limits, valid = config.train, config.valid
    if epochs_are_over(config, progress):
        return "train.max_epochs"
    if limits.max_steps is not None and progress.step >= limits.max_steps:
        return "train.max_steps"
    if limits.max_minutes is not None and seconds >= 60.0 * limits.max_minutes:
        return "train.max_minutes"
    if valid.patience and progress.stale_validations >= valid.patience:
        return "valid.patience"
    return None


def end_reason(config: Config, limit: str, *, step: int, steps_taken: int) -> str:
    """Return why training ended.

    Args:
        config: of the run.
        limit: that it reached, from `reached_limit`.
        step: the last one.
        steps_taken: since it was started or resumed.
    """
    section, _, key = limit.partition(".")
    value = getattr(getattr(config, section), key)
    if not steps_taken:
        return f"{step:,} steps done, {limit}={value}"
    if limit == "train.max_steps":
        return f"reached the limit of {value:,} steps"
    if limit == "valid.patience":
        return f"{value} validations without a better {config.valid.metric} after {step:,} steps"
    return f"reached the limit of {_short(value)} {key.removeprefix('max_')} after {step:,} steps"


def has_learned(scores: Mapping[str, float]) -> bool:
    """Return whether a model with these scores translates at all, as far as they tell."""
    return scores.get("bleu", _TRANSLATES) >= _TRANSLATES


def pace_message(config: Config, step: int, *, seconds: float, pace: float, epoch_steps: float) -> str:
    """Return how many steps fit into the run, or how long they take, and the warm-up.

    Args:
        config: of the run.
        step: the last one.
        seconds: of training so far.
        pace: seconds of a step.
        epoch_steps: steps of an epoch.
    """
    limits, schedule = config.train, config.schedule
    asked = min(limits.max_steps or math.inf, (limits.max_epochs or math.inf) * epoch_steps)
    fitting = math.inf
    if limits.max_minutes:
        fitting = step + max(0.0, 60.0 * limits.max_minutes - seconds) / pace
    steps = math.ceil(min(asked, fitting))
    what = f"about {steps:,} steps ({steps / epoch_steps:.2g} epochs)"
    if fitting < asked:
        said = f"{what} fit into {_short(limits.max_minutes or 0.0)} minutes"
    else:
        said = f"{what} take {(seconds + (steps - step) * pace) / 60.0:.2g} minutes"
    if schedule.warmup_fraction is not None:
        return f"{said}, {pace:.2g} s each; warm-up: the first {schedule.warmup_fraction:.0%}"
    is_longer = ", more than there are" if schedule.warmup_steps > steps else ""
    return f"{said}, {pace:.2g} s each; warm-up: the first {schedule.warmup_steps:,}{is_longer}"


def shortfall(config: Config, progress: Progress, *, limit: str, done: float, seen: float) -> str:
    """Return what kept a run that has ended from learning, and what to do; empty if nothing did.

    Args:
        config: of the run.
        progress: at its end.
        limit: that it reached, from `reached_limit`.
        done: the fraction of the run at its end.
        seen: how often the training text was passed.
    """
    scores, schedule = progress.best_scores, config.schedule
    in_warmup = warmup_done(schedule, progress.step, progress=done) < 1.0
    causes = ["ended inside its warm-up"] if in_warmup else []
    causes += [f"saw {seen:.0%} of its text"] if seen < 1.0 else []
    problems = (
        [] if has_learned(scores) else [f"the model does not translate yet (BLEU {scores['bleu']:.2f})"]
    )
    problems += [f"training {' and '.join(causes)}"] if causes else []
    if not problems:
        return ""
    remedies = ["train for longer" if limit == "valid.patience" else f"raise {limit}"]
    remedies += ["lower schedule.warmup_steps"] if in_warmup and schedule.warmup_fraction is None else []
    return f"{': '.join(problems)}; {', '.join(remedies)}, or take a smaller preset"


def _short(value: float) -> str:
    """Return a number with three digits, or more where it is whole."""
    return f"{value:.3g}" if value < 100 else f"{value:,.0f}"
