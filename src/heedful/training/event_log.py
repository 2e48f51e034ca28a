"""`log.jsonl`: every event of a run, one JSON object a line."""

import json
from pathlib import Path

from heedful.durable import named_in_errors, put_text_in_place
from heedful.parsing import is_whole, parse_json
from heedful.training.events import Event, ValidationEvent


class EventLog:
    """Appends events to a file; each line is on its way to the disk before the next step begins."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __call__(self, event: Event) -> None:
        """Write one event."""
        with named_in_errors(self.path), self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(event.to_json()) + "\n")

    def forget_after(self, step: int, *, judged: int = -1) -> None:
        """Drop what a killed run logged after its last checkpoint: that is about to happen again.

        Args:
            step: of that checkpoint.
            judged: of the last validation that it knows; -1 where it does not say.
        """
        if self.path.exists():
            validated = step if judged < 0 else judged
            lines = self.path.read_text(encoding="utf-8", errors="replace").split("\n")
            kept = [line for line in lines if _is_until(line, step, validated)]
            put_text_in_place(self.path, "".join(f"{line}\n" for line in kept))


def logged_events(path: Path) -> set[str]:
    """Return the kinds of events in a log, without those of damaged lines; none where there is no log."""
    try:
        lines = path.read_text(encoding="utf-8", errors="replace").split("\n")
    except FileNotFoundError:
        return set()
    return {str(event["event"]) for event in map(_event, lines) if event is not None and "event" in event}


def _event(line: str) -> dict[str, object] | None:
    """Return the event of a line, or None for one that is damaged or half written."""
    try:
        event = parse_json(line)
    except ValueError:
        return None
    return event if isinstance(event, dict) else None


def _is_until(line: str, step: int, validated: int) -> bool:
    """Whether a line is an event of these steps or an earlier one, and not damaged or half written."""
    event = _event(line)
    if event is None:
        return False
    is_validation = event.get("event") == ValidationEvent.kind
    return is_whole(event.get("step"), most=validated if is_validation else step)
