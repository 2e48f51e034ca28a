"""`log.jsonl`: every event of a run, one JSON object a line."""

import json
from pathlib import Path

from heedful.durable import named_in_errors, put_text_in_place
from heedful.parsing import is_whole, parse_json
from heedful.training.events import Event, ProgressEvent, ValidationEvent


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

        Args:
            step: of that checkpoint.
            validated_step: of the last validation in that checkpoint; -1 if unknown.
        """
        if self.path.exists():
            validated = step if validated_step < 0 else validated_step
            lines = self.path.read_text(encoding="utf-8", errors="replace").split("\n")
            retained = [line for line in lines if _is_until(line, step, validated)]
            put_text_in_place(self.path, "".join(f"{line}\n" for line in retained))


def logged_events(path: Path) -> set[str]:
    """Return the kinds of events in a log; damaged lines are ignored, and a missing log has none."""
    try:
        lines = path.read_text(encoding="utf-8", errors="replace").split("\n")
    except FileNotFoundError:
        return set()
    return {str(event["event"]) for event in map(_event, lines) if event is not None and "event" in event}


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
