"""When training diverges: steps whose loss or gradient is not finite.

Such a step is not taken: one batch may overflow, and the next not. Several in a row come from the weights.
Then the steps since the last checkpoint are taken again, at half the learning rate. The first time may be an
accident: from there the rate grows back to that of the schedule. When it happens again, the rate is taken as
the cause, and stays at half, then a quarter of it.
"""

MOST_SKIPPED = 3  # steps in a row, before training goes back
MOST_SETBACKS = 4  # a run whose rate was halved so often has another reason
RECOVERY_STEPS = 100  # in which the rate doubles again


def recovered(rate_factor: float, *, setbacks: int) -> float:
    """Return the factor of the learning rate after one more step that was taken.

    Args:
        rate_factor: before it, at most 1.
        setbacks: how often training had to go back.
    """
    return min(0.5 ** max(setbacks - 1, 0), rate_factor * 2 ** (1 / RECOVERY_STEPS))


class DivergedError(Exception):
    """So many steps in a row could not be taken."""

    def __init__(self, step: int) -> None:
        super().__init__(
            f"step {step}: the loss is not finite, {MOST_SKIPPED} steps in a row; lower schedule.peak "
            "(schedule.scale) or set optimizer.clip_norm=1, then --resume from the last checkpoint"
        )
        self.step = step
