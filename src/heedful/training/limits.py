"""Limits of a run: steps, epochs, minutes, validations without progress; what fits, and what was missed."""

import math
from collections.abc import Mapping

from heedful.config import Config
from heedful.training.checkpoint import Progress
from heedful.training.schedule import warmup_done

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
