"""Limits of a run: steps, epochs, minutes, and validations without progress."""

from heedful.config import Config
from heedful.training.checkpoint import Progress


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


def reason_to_stop(config: Config, progress: Progress, *, seconds: float) -> str | None:
    """Return why training ends here, or None if it continues."""
    limits, valid = config.train, config.valid
    if epochs_are_over(config, progress):
        return f"{limits.max_epochs} epochs done"
    if limits.max_steps is not None and progress.step >= limits.max_steps:
        return f"{limits.max_steps:,} steps done"
    if limits.max_minutes is not None and seconds >= 60.0 * limits.max_minutes:
        return f"{limits.max_minutes:g} minutes are over"
    if valid.patience and progress.stale_validations >= valid.patience:
        return f"{valid.patience} validations without a better {valid.metric}"
    return None
