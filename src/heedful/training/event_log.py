"""`log.jsonl`: every event of a run, one JSON object a line."""

import json
from pathlib import Path

from heedful.training.events import Event


class EventLog:
    """Appends events to a file; each line is on its way to the disk before the next step begins."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __call__(self, event: Event) -> None:
        """Write one event."""
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(event.to_json()) + "\n")

    def forget_after(self, step: int) -> None:
        """Drop what a killed run logged after its last checkpoint: those steps are about to happen again."""
        if not self.path.exists():
            return
        kept = []
        for line in self.path.read_text(encoding="utf-8").splitlines(keepends=True):
            try:
                if json.loads(line)["step"] <= step:
                    kept.append(line)
            except (ValueError, KeyError):
                continue  # the line that was being written when the run was killed
        temporary = self.path.with_name(f".{self.path.name}.writing")
        temporary.write_text("".join(kept), encoding="utf-8")
        temporary.replace(self.path)
