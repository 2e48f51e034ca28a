"""From batches to a trained model: loss, schedule, optimiser, step, loop, checkpoints."""

from heedful.training.loss import Loss
from heedful.training.schedule import LearningRate
from heedful.training.step import LossFunction

__all__ = ["LearningRate", "Loss", "LossFunction"]
