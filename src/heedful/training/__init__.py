"""From batches to a trained model: loss, schedule, optimiser, step, loop, checkpoints."""

from heedful.training.checkpoint import latest_checkpoint
from heedful.training.events import (
    CheckpointEvent,
    EndEvent,
    Event,
    EventLog,
    NoticeEvent,
    SkippedEvent,
    StartEvent,
    StepEvent,
    TensorBoardLog,
    ValidationEvent,
    WarningEvent,
    summary_writer,
)
from heedful.training.loop import Scores, Trainer, TrainerCallbacks, Validator
from heedful.training.loss import Loss
from heedful.training.schedule import LearningRate
from heedful.training.step import LossFunction, measure_nll

__all__ = [
    "CheckpointEvent",
    "EndEvent",
    "Event",
    "EventLog",
    "LearningRate",
    "Loss",
    "LossFunction",
    "NoticeEvent",
    "Scores",
    "SkippedEvent",
    "StartEvent",
    "StepEvent",
    "TensorBoardLog",
    "Trainer",
    "TrainerCallbacks",
    "ValidationEvent",
    "Validator",
    "WarningEvent",
    "latest_checkpoint",
    "measure_nll",
    "summary_writer",
]
