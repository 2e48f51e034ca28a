"""Training events: frozen dataclasses, each a line of `log.jsonl`."""

import dataclasses
from dataclasses import dataclass
from typing import Any, ClassVar


@dataclass(frozen=True)
class Event:
    """The base of all training events."""

    kind: ClassVar[str]
    step: int
    seconds: float  # of training so far, over all resumptions

    def to_json(self) -> dict[str, Any]:
        """Return the event as one flat object."""
        fields = dataclasses.asdict(self)
        scores: dict[str, float] = fields.pop("scores", {})
        return {"event": self.kind} | fields | scores


@dataclass(frozen=True)
class StartEvent(Event):
    """Training starts or resumes."""

    kind: ClassVar[str] = "start"
    num_parameters: int
    num_trained: int  # parameters that are not frozen
    num_pairs: int
    precision: str
    device: str
    threads: int
    max_steps: int | None
    max_minutes: float | None


@dataclass(frozen=True)
class StepEvent(Event):
    """Means over the steps since the last event of this kind."""

    kind: ClassVar[str] = "step"
    epoch: int
    loss: float  # smoothed, per target token
    nll: float  # per target token; perplexity is its exponential
    learning_rate: float
    gradient_norm: float
    tokens_per_second: float  # real target tokens, over the time of the steps alone
    progress: float


@dataclass(frozen=True)
class ProgressEvent(StepEvent):
    """Means since the last `StepEvent`, between two of them: shown, and not in the log."""

    kind: ClassVar[str] = "progress"


@dataclass(frozen=True)
class ValidationEvent(Event):
    """Scores on the validation set."""

    kind: ClassVar[str] = "validation"
    scores: dict[str, float]
    is_best: bool


@dataclass(frozen=True)
class SkippedEvent(Event):
    """A step was skipped: its loss or its gradient is not finite."""

    kind: ClassVar[str] = "skipped"
    loss: float
    gradient_norm: float
    rate: float
    pairs: list[int]  # indices into the stored training text: the sentence pairs of its batches
    sentences: str = ""  # the file that shows those sentences, if there is one


@dataclass(frozen=True)
class CheckpointEvent(Event):
    """A checkpoint was written."""

    kind: ClassVar[str] = "checkpoint"
    path: str


@dataclass(frozen=True)
class NoticeEvent(Event):
    """A message: what is being done, or was measured."""

    kind: ClassVar[str] = "notice"
    message: str


@dataclass(frozen=True)
class WarningEvent(Event):
    """Something that the user should know and that does not stop training."""

    kind: ClassVar[str] = "warning"
    message: str


@dataclass(frozen=True)
class EndEvent(Event):
    """Training is over."""

    kind: ClassVar[str] = "end"
    reason: str
    epoch: int
    best_step: int
    steps_taken: int  # since the start or the resumption; 0: there was nothing to do
    warning: str = ""  # what kept the run from learning, and what to do
