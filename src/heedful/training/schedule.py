"""Learning rate schedules (5.3)."""

import math

from heedful.config import ScheduleConfig

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
