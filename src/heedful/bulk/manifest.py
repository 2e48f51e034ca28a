"""What is done of a job: a file of its settings and its finished parts.

    {"format_version": 1, "settings": {NAME: VALUE}, "parts": {PART: {"source": ..., "output": ..., ...}}}

A part is a shard, a document, the synthetic text of a run, or the first lines of a file. It is done if its
source and its output have the checksums in its record. What else the record has is for people.
"""

import json
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any

from heedful.bulk.folders import Folder
from heedful.errors import RunError
from heedful.settings.parsing import parse_json

MANIFEST = "manifest.json"
_FORMAT_VERSION = 1

Settings = Mapping[str, str]
Record = Mapping[str, Any]  # of a part that is done


# Shows progress: takes a function that returns the share that is read, and as `items` and `size` the words of
# what is counted, such as lines and tokens; yields a function that is told how many there are.
Display = Callable[..., AbstractContextManager[Callable[[int, int], None]]]


def no_display(
    share_read: Callable[[], float | None], **words: str
) -> AbstractContextManager[Callable[[int, int], None]]:
    """Show nothing."""
    return nullcontext(lambda items, size: None)


@dataclass(frozen=True)
class Done:
    """What a manifest holds: the settings that the parts were made with, and the record of each part."""

    settings: Settings = field(default_factory=dict)
    parts: Mapping[str, Record] = field(default_factory=dict)

    def has(self, part: str, *, source: object, output: object) -> bool:
        """Return whether a part is done: made of this source, with this output."""
        record = self.parts.get(part)
        return record is not None and (record["source"], record["output"]) == (source, output)


@dataclass(frozen=True)
class Manifest:
    """The manifest of a job: a file in its directory."""

    folder: Folder
    name: str = MANIFEST

    def read(self) -> Done:
        """Return what is done; nothing without a file."""
        if not self.folder.has(self.name):
            return Done()
        with self.folder.open(self.name) as file:
            content = file.read()
        try:
            match parse_json(content):
                case {"format_version": 1, "settings": dict(settings), "parts": dict(parts)} if all(
                    isinstance(record, dict) and {"source", "output"} <= record.keys()
                    for record in parts.values()
                ):
                    return Done(settings, parts)
        except ValueError:
            pass
        raise RunError(
            f"{self.folder.of_file(self.name)}: damaged, or of a newer heedful; give another --output"
        )

    def write(self, settings: Settings, parts: Mapping[str, Record]) -> None:
        """Replace all that it holds."""
        content = {"format_version": _FORMAT_VERSION, "settings": dict(settings), "parts": dict(parts)}
        self.folder.put(self.name, json.dumps(content, indent=1, ensure_ascii=False).encode() + b"\n")

    def add(self, part: str, record: Record, settings: Settings) -> None:
        """Add a part that is done; other processes may add theirs at the same time."""
        with self.folder.locked(self.name):
            self.write(settings, {**self.read().parts, part: record})


def check_settings(where: str, before: Settings, now: Settings, *, remedy: str) -> None:
    """Check that an output can be continued; a RunError names the first setting that has changed.

    `remedy` is what else to do than to give the same settings, for the message.
    """
    for name in {**before, **now}:
        if before.get(name) != now.get(name):
            what = "another model" if name == "model" else f"{name}={before.get(name)}, not {now.get(name)}"
            raise RunError(f"{where}: was written with {what}; give the same model and options, {remedy}")
