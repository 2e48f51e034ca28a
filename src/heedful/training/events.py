"""Training events: frozen dataclasses, each a line of `log.jsonl`; and their curves for TensorBoard."""

import dataclasses
import json
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from heedful.errors import needing
from heedful.runtime.durable import named_in_errors, write_atomically
from heedful.settings.parsing import is_whole, parse_json

if TYPE_CHECKING:
    from torch.utils.tensorboard import SummaryWriter

_TRAINING_CURVES = ("loss", "nll", "learning_rate", "gradient_norm", "tokens_per_second")
CUT_OUTPUTS = "cut_outputs"  # counted by a validator, but not a score
_NO_SCORES = ("event", "step", "seconds", "is_best", CUT_OUTPUTS)  # of a validation
_SUFFIX = ".heedful"  # of the files for TensorBoard


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
    epoch: int  # of the next micro-batch, from 0; what is shown counts from 1
    loss: float  # smoothed, per target token
    nll: float  # per target token; perplexity is its exponential
    learning_rate: float
    gradient_norm: float  # L2, of the mean gradient before clipping
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
    cut_outputs: int = 0  # those without an end token: their length limit has ended them


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
    epoch: int  # as in StepEvent
    best_step: int
    steps_taken: int  # since the start or the resumption; 0: there was nothing to do
    warning: str = ""  # what kept the run from learning, and what to do


class EventLog:
    """Appends events to a file, and closes it after each."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __call__(self, event: Event) -> None:
        """Write one event; those that are only shown are not written."""
        if isinstance(event, ProgressEvent):
            return
        with named_in_errors(self.path), self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(event.to_json()) + "\n")

    def drop_after(self, step: int, *, validated_step: int = -1) -> None:
        """Drop the events after the last checkpoint: those steps are about to be taken again.

        The last validation in that checkpoint was at `validated_step`; -1 if unknown.
        """
        if self.path.exists():
            validated = step if validated_step < 0 else validated_step
            lines = self.path.read_text(encoding="utf-8", errors="replace").split("\n")
            retained = [line for line in lines if _is_until(line, step, validated)]
            write_atomically(self.path, "".join(f"{line}\n" for line in retained))


def logged_events(path: Path) -> set[str]:
    """Return the kinds of events in a log; damaged lines are ignored, and a missing log has none."""
    return {str(event["event"]) for event in _events_of(path) if "event" in event}


class TensorBoardLog:
    """Writes the curves of a run for TensorBoard: first from its log, then from each event.

    Files from before a resumption are replaced: they may have steps that are about to be taken again. Times
    are of training alone, without the pause before a resumption. Other files in the folder stay; `seconds` is
    the time of training so far.
    """

    def __init__(self, folder: Path, log: Path, seconds: float) -> None:
        kind = summary_writer()
        for old in folder.glob(f"events.out.tfevents.*{_SUFFIX}"):
            old.unlink()
        # Step 0 makes a TensorBoard that is running forget what it has read.
        self._writer = kind(str(folder), purge_step=0, filename_suffix=_SUFFIX)
        self._start = time.time() - seconds
        for event in _events_of(log):
            self._add(event)

    def __call__(self, event: Event) -> None:
        """Write the curves' values of an event, if it has any."""
        self._add(event.to_json())
        self._writer.flush()

    def close(self) -> None:
        """Write what is left."""
        self._writer.close()

    def _add(self, event: Mapping[str, Any]) -> None:
        for name, value in _curves_of(event):
            self._writer.add_scalar(name, value, event["step"], walltime=self._start + event["seconds"])


def summary_writer() -> "type[SummaryWriter]":
    """Return TensorBoard's own writer."""
    with needing("--track tensorboard needs tensorboard", extra="tensorboard"):
        from torch.utils.tensorboard import SummaryWriter
    return SummaryWriter


def _curves_of(event: Mapping[str, Any]) -> Iterator[tuple[str, float]]:
    """Yield the names and values of an event's points: of means over steps, and of scores."""
    if not all(isinstance(event.get(name), int | float) for name in ("step", "seconds")):
        return
    section, names = {
        StepEvent.kind: ("train", _TRAINING_CURVES),
        ValidationEvent.kind: ("validation", [name for name in event if name not in _NO_SCORES]),
    }.get(str(event.get("event")), ("", ()))
    for name in names:
        if isinstance(value := event.get(name), int | float):
            yield f"{section}/{name}", value


def _events_of(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the events of a log; damaged lines are ignored, and a missing log has none."""
    try:
        lines = path.read_text(encoding="utf-8", errors="replace").split("\n")
    except FileNotFoundError:
        return
    yield from (event for event in map(_event, lines) if event is not None)


def _event(line: str) -> dict[str, object] | None:
    """Return the event of a line, or None if it is damaged or incomplete."""
    try:
        event = parse_json(line)
    except ValueError:
        return None
    return event if isinstance(event, dict) else None


def _is_until(line: str, step: int, validated: int) -> bool:
    """Return whether a line is a complete event up to this step, or a validation up to `validated`."""
    event = _event(line)
    if event is None:
        return False
    is_validation = event.get("event") == ValidationEvent.kind
    return is_whole(event.get("step"), most=validated if is_validation else step)
