"""When training diverges: steps whose loss or gradient is not finite.

Such a step is not taken: one batch may overflow, and the next not. Several in a row come from the weights.
Then the steps since the last checkpoint are taken again, at half the learning rate.
"""

MOST_SKIPPED = 3  # steps in a row, before training goes back
MOST_SETBACKS = 4  # a run whose rate was halved so often has another reason


class DivergedError(Exception):
    """So many steps in a row could not be taken."""

    def __init__(self, step: int) -> None:
        super().__init__(
            f"step {step}: the loss is not finite, {MOST_SKIPPED} steps in a row; lower schedule.peak "
            "(schedule.scale) or set optimizer.clip_norm=1, then --resume from the last checkpoint"
        )
        self.step = step
