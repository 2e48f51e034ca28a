"""When a run is validated, and when it writes a checkpoint that may be averaged."""

from dataclasses import dataclass

from heedful.config import Config


@dataclass(frozen=True)
class Due:
    """The actions due after a step: a validation, a checkpoint that may be averaged."""

    validation: bool
    checkpoint: bool


def goes_by_the_clock(config: Config) -> bool:
    """Return whether both come after fractions of the run: minutes alone limit it.

    How many steps fit into its minutes depends on the machine, so that a count of them may never be reached.
    """
    train = config.train
    return train.max_steps is None and train.max_epochs is None and config.valid.every_fraction is not None


def due_after_step(config: Config, *, step: int, seconds: float, validated_at: float) -> Due:
    """Return what is due after a step.

    By the clock both are due at each multiple of `valid.every_fraction` of the minutes; at least half of that
    fraction lies between the end of a validation and the next one, however long a validation takes.

    Args:
        config: of the run.
        step: the step, counted from 1.
        seconds: of training so far, validation included.
        validated_at: the seconds at which the last validation ended; 0 before the first.
    """
    train, valid = config.train, config.valid
    if not goes_by_the_clock(config):
        return Due(step % valid.every_steps == 0, step % train.checkpoint_every_steps == 0)
    assert train.max_minutes is not None
    assert valid.every_fraction is not None
    interval = 60.0 * train.max_minutes * valid.every_fraction
    is_due = seconds >= (round(validated_at / interval) + 1) * interval
    return Due(is_due, is_due)
