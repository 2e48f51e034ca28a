"""When a run validates, and when it writes a regular checkpoint (one that may be averaged)."""

from dataclasses import dataclass

from heedful.config import Config


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
