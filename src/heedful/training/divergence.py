"""Divergence: steps whose loss or gradient is not finite.

Such a step is skipped: one batch may overflow and the next may not. Several in a row mean that the weights
are bad: training rolls back to the last checkpoint and continues at half the learning rate. After the first
rollback, which may be an accident, the rate grows back to that of the schedule; after further ones it stays
at half, then at a quarter of it.
"""

MAX_SKIPPED = 3  # steps in a row, before a rollback
MAX_ROLLBACKS = 4  # if halving the rate this often does not help, the cause is another
RECOVERY_STEPS = 100  # in which the rate doubles again


def recovered_rate(rate_factor: float, *, rollbacks: int) -> float:
    """Return the factor of the learning rate after one more finite step.

    Args:
        rate_factor: before it, at most 1.
        rollbacks: how often training was rolled back.
    """
    return min(0.5 ** max(rollbacks - 1, 0), rate_factor * 2 ** (1 / RECOVERY_STEPS))


class DivergedError(Exception):
    """`MAX_SKIPPED` steps in a row were not finite."""

    def __init__(self, step: int) -> None:
        super().__init__(
            f"step {step}: the loss is not finite, {MAX_SKIPPED} steps in a row; lower schedule.peak "
            "(schedule.scale) or set optimizer.clip_norm=1, then --resume from the last checkpoint"
        )
        self.step = step
