"""The adapters of a service by their names: read again, or dropped, when their files change while it runs."""

import logging
from collections.abc import Sequence
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING

from heedful import HeedfulError, InputError
from heedful.serving.access import stamp_of
from heedful.serving.refusals import UnauthorizedError
from heedful.storage.description import ADAPTER_FILE
from heedful.tasks.loading import load_adapter

if TYPE_CHECKING:
    from fastapi import Request

    from heedful import Bundle
    from heedful.storage.adapter import Adapter

# Where the file of an adapter may be: in a run, a bundle or a directory of PEFT; "": it is the path itself.
_FILES = ("", f"best/{ADAPTER_FILE}", f"last/{ADAPTER_FILE}", ADAPTER_FILE, "adapter_model.safetensors")
ADAPTER_OF_KEY = "heedful.adapter"  # in the scope of a request: the name that its key has
_log = logging.getLogger("heedful.serving")
Stamps = tuple[tuple[int, ...] | None, ...]


class AdapterShelf:
    """Where the adapters of a service are: each by its name, or all that are in a directory."""

    def __init__(self, arguments: Sequence[str]) -> None:
        """Take NAME=PATH, or the path of a directory, whose entries are adapters by their names.

        Raises:
            InputError: it is neither.
        """
        self._named: dict[str, Path] = {}
        self._directories: list[Path] = []
        for argument in arguments:
            name, equals, path = argument.partition("=")
            if equals and name and path:
                self._named[name] = Path(path)
            elif Path(argument).is_dir():
                self._directories.append(Path(argument))
            else:
                raise InputError(f"--adapter {argument}: write NAME=RUN, or a directory with adapters")

    def paths(self) -> dict[str, Path]:
        """Return the adapters that there are now, by name."""
        inside = [entry for directory in self._directories for entry in directory.iterdir()]
        entries = {entry.name.removesuffix(".safetensors"): entry for entry in sorted(inside)}
        shown = {name: entry for name, entry in entries.items() if not name.startswith(".")}
        return shown | self._named


class AdaptersOfModel:
    """The adapters of a shelf that change one model, for any thread; only their matrices are in memory."""

    def __init__(self, shelf: AdapterShelf, base: "Bundle") -> None:
        """Read nothing yet."""
        self._shelf, self._base = shelf, base
        self._lock = Lock()
        self._known: dict[str, tuple[Stamps, Adapter | None]] = {}  # None: it is not for this model

    def find(self, name: str) -> "Adapter | None":
        """Return an adapter as its file now is; None: there is none of that name for this model."""
        with self._lock:
            path = self._shelf.paths().get(name)
            if path is None:
                self._known.pop(name, None)
                return None
            stamps = tuple(stamp_of(path / file) for file in _FILES)
            before, adapter = self._known.get(name, (None, None))
            if stamps != before:
                adapter = self._read(name, path, adapter)
                self._known[name] = stamps, adapter
            return adapter

    def names(self) -> list[str]:
        """Return the names of all adapters of this model."""
        return [name for name in self._shelf.paths() if self.find(name) is not None]

    def _read(self, name: str, path: Path, before: "Adapter | None") -> "Adapter | None":
        """Return the adapter of a path; while it cannot be read, the one before."""
        try:
            adapter = load_adapter(path, self._base)
        except HeedfulError as error:
            _log.warning("adapter %s: %s", name, error)
            return before if path.exists() else None
        _log.info("adapter %s: %s layers, %s bytes", name, len(adapter.changes), f"{adapter.num_bytes:,}")
        return adapter


def adapter_of(request: "Request", name: str) -> str:
    """Return the adapter of an authorised request: that of its key, which may name no other; else its own."""
    bound: str = request.scope.get(ADAPTER_OF_KEY, "")
    if bound and name not in ("", bound):
        raise UnauthorizedError(f"This key has the adapter {bound!r} alone")
    return bound or name
