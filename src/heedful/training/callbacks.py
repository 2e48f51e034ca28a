"""Trainer callbacks: the trainer validates, logs and saves through them and knows no files or decoding."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from heedful.model import Transformer
from heedful.training.events import Event
from heedful.training.validation import Validator

Scores = dict[str, float]


@dataclass(frozen=True)
class TrainerCallbacks:
    """Trainer callbacks: saving, validation, logging.

    Attributes:
        validators: each measures the model; their scores are merged.
        listeners: each is called with every event.
        keep_model: called with "best" or "last", the model, its scores and step, to write a bundle.
        checkpoints: the directory for checkpoints.
        fingerprint: of the data and settings that a resumed run must share with the checkpoint.
        before_writing: called before each checkpoint; an exception that it raises ends training.
        validation_set: fingerprint of the validation data; scores are compared only if it is the same.
    """

    validators: Sequence[Validator]
    listeners: Sequence[Callable[[Event], None]]
    keep_model: Callable[[str, Transformer, Scores, int], None]
    checkpoints: Path
    fingerprint: str
    validation_set: str = ""
    before_writing: Callable[[], None] = lambda: None
