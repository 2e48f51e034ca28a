"""The schedule of a run: its learning rate (5.3), its limits, and what is due after a step."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import cast

from heedful.settings.plugins import checked_function, is_number
from heedful.settings.run import Config, ScheduleConfig
from heedful.training.state import Moment, Progress

# A custom schedule: returns the learning rate of a step, counted from 1, given the fraction of the run that
# is done before it, from 0 to 1, by the nearest limit (steps, epochs, minutes). Only rank 0 calls it.
LearningRate = Callable[[int, float], float]


def own_schedule(function: object, name: str) -> LearningRate:
    """Return a user's schedule, which is tried on the first step, and checks each rate.

    Raises:
        ConfigError: it takes other arguments than (step, fraction_done), fails, or returns no rate; `name`
            says in which setting it is.
    """
    returns = "the learning rate, a number that is not negative"
    rate_of = checked_function(function, name, "step, fraction_done", returns=returns, is_right=_is_rate)
    rate_of(1, 0.0)
    return rate_of


def _is_rate(rate: object, _: object) -> bool:
    return is_number(rate, None) and cast(float, rate) >= 0


RECOVERY_STEPS = 100  # in which the rate doubles again after a rollback
_FIRST = 0.001  # of the peak: the rate of a first step, when no part of the run is done


def learning_rate(config: ScheduleConfig, step: int, *, d_model: int, progress: float = 0.0) -> float:
    """Return the learning rate of an optimiser step.

    - paper: d_model^-0.5 · min(step^-0.5, step · warmup^-1.5), times `scale` (5.3, equation 3).
    - inverse_sqrt: the same shape, with `peak` as its highest value.
    - constant: `peak` after the warm-up.
    - linear, cosine, 1-sqrt: `peak`, then down to `floor · peak` over the last `decay_fraction` of the run,
      in that shape. Where the fraction is below 1, this is called warm-up-stable-decay, WSD (Hu et al.,
      2024, "MiniCPM"); 1-sqrt falls steeply first (Hägele et al., 2024).

    All others warm up linearly, over `warmup_steps` or over the first `warmup_fraction` of the run.

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
    """Return how much of the warm-up is done before a step: 1 at its end, and more than 1 after it."""
    if config.warmup_fraction is not None:
        return max(_FIRST, progress / config.warmup_fraction)
    return step / max(config.warmup_steps, 1)


def recovered_rate(rate_factor: float, *, rollbacks: int) -> float:
    """Return the factor of the learning rate, at most 1, after one more finite step."""
    return min(0.5 ** max(rollbacks - 1, 0), rate_factor * 2 ** (1 / RECOVERY_STEPS))


@dataclass(frozen=True)
class Due:
    """The actions due after a step."""

    validation: bool
    checkpoint: bool


@dataclass(frozen=True)
class Schedule:
    """The schedule that settings describe: it tells for each moment what comes next.

    Attributes:
        config: the settings.
        own: the learning rate of each step, in place of the settings.
    """

    config: Config
    own: LearningRate | None = None

    def learning_rate(self, now: Moment) -> float:
        """Return the learning rate of the next step; after a rollback it is lower for a while."""
        step, width, done = now.progress.step + 1, self.config.model.d_model, self.fraction_done(now)
        if self.own is None:
            rate = learning_rate(self.config.schedule, step, d_model=width, progress=done)
        else:
            rate = float(self.own(step, done))
        return rate * now.progress.rate_factor

    def fraction_done(self, now: Moment) -> float:
        """Return how much of the run is done, 0 to 1, by the limit that is nearest."""
        return max(self._shares_done(now).values())

    def _shares_done(self, now: Moment) -> dict[str, float]:
        """Return how much of each limit is used up, by the name of its setting; it ends training at 1."""
        train = self.config.train
        return {
            "train.max_epochs": now.epochs / (train.max_epochs or math.inf),
            "train.max_steps": now.progress.step / (train.max_steps or math.inf),
            "train.max_minutes": now.seconds / (60.0 * (train.max_minutes or math.inf)),
        }

    def is_time_over(self, seconds: float) -> bool:
        """Return whether `train.max_minutes` minutes of training have passed."""
        return seconds >= 60.0 * (self.config.train.max_minutes or math.inf)

    def epochs_are_over(self, progress: Progress) -> bool:
        """Return whether `train.max_epochs` epochs are done."""
        return progress.epoch >= (self.config.train.max_epochs or math.inf)

    def reached_limit(self, now: Moment) -> str | None:
        """Return the setting that ends training here, such as `train.max_steps`, or None if it continues."""
        shares = self._shares_done(now)
        shares["valid.patience"] = now.progress.stale_validations / (self.config.valid.patience or math.inf)
        return next((limit for limit, share in shares.items() if share >= 1.0), None)

    @property
    def is_time_based(self) -> bool:
        """Whether validation and checkpoints are due after fractions of the run: only minutes limit it.

        The number of steps in those minutes depends on the machine, so a count of steps may never be reached.
        """
        train = self.config.train
        return not (train.max_steps or train.max_epochs or self.config.valid.every_fraction is None)

    def due(self, now: Moment) -> Due:
        """Return what is due after the last step.

        In a time-based run both are due at each multiple of `valid.every_fraction` of the minutes, but at
        least half of that fraction after the end of the last validation.
        """
        train, valid, step = self.config.train, self.config.valid, now.progress.step
        if not self.is_time_based:
            return Due(step % valid.every_steps == 0, step % train.checkpoint_every_steps == 0)
        assert train.max_minutes is not None
        assert valid.every_fraction is not None
        interval = 60.0 * train.max_minutes * valid.every_fraction
        is_due = now.seconds >= (round(now.progress.validated_at / interval) + 1) * interval
        return Due(is_due, is_due)
