"""Identify the files that a run has written: only those are replaced or removed."""

import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from heedful.bundle import CARD_FILE, CONFIG_FILE, WEIGHTS_FILE
from heedful.durable import ASIDE, WRITING
from heedful.parsing import parse_json
from heedful.text.pair import is_file_of_a_pair
from heedful.training.checkpoint import DAMAGED_PREFIX, FILES
from heedful.workflows.run_names import (
    BUNDLES,
    CHECKPOINTS,
    CONFIG,
    LOCK,
    LOG,
    SKIPPED,
    SKIPPED_HEADER,
    TOKENIZER,
)

_CHECKPOINT = re.compile(
    rf"(\.?|{re.escape(DAMAGED_PREFIX)})step-\d+(-\d+|\.writing|{re.escape(ASIDE)}|\.removed)?"
)
_BUNDLE = re.compile(rf"(best|last)|\.(best|last)({re.escape(WRITING)}|{re.escape(ASIDE)})")
_TEMPORARY = {f".{name}{WRITING}" for name in (CONFIG, LOG, SKIPPED)}


def replaceable(run: Path) -> list[Path]:
    """Return the files and directories that a new run in this directory would replace."""
    names = (LOG, SKIPPED, CHECKPOINTS, TOKENIZER, *BUNDLES)
    return [run / name for name in names if (run / name).exists() or (run / name).is_symlink()]


def holds_weights(run: Path) -> bool:
    """Return whether a directory has checkpoints or bundles."""
    return any((run / name).exists() for name in (CHECKPOINTS, *BUNDLES))


def others_among(paths: Iterable[Path]) -> list[Path]:
    """Return the files and directories, among these and inside them, that no run has written."""
    return sorted(other for path in paths for other in _others(path))


def _others(path: Path) -> Iterator[Path]:
    name = path.name
    if path.is_symlink():
        yield path
    elif name == TOKENIZER and path.is_dir():
        yield from (each for each in path.iterdir() if not (each.is_file() and is_file_of_a_pair(each.name)))
    elif name == CHECKPOINTS and path.is_dir():
        for each in path.iterdir():
            is_ours = _CHECKPOINT.fullmatch(each.name) and each.is_dir()
            yield from (file for file in each.iterdir() if file.name not in FILES) if is_ours else [each]
    elif _BUNDLE.fullmatch(name) and path.is_dir():
        yield from (each for each in path.iterdir() if not _is_of_a_bundle(each))
    elif name == LOG and path.is_file():
        yield from [] if _is_log(path) else [path]
    elif name == SKIPPED and path.is_file():
        yield from [] if _first_line(path) in {"", SKIPPED_HEADER} else [path]
    elif name not in {CONFIG, LOCK, *_TEMPORARY} or not path.is_file():
        yield path


def _is_of_a_bundle(path: Path) -> bool:
    return path.is_file() and (
        path.name in {CONFIG_FILE, WEIGHTS_FILE, CARD_FILE} or is_file_of_a_pair(path.name)
    )


def _is_log(path: Path) -> bool:
    """Return whether the first line is an event, or the file is empty."""
    first = _first_line(path)
    try:
        event = parse_json(first or "null")
    except ValueError:
        return False
    return first == "" or (isinstance(event, dict) and {"event", "step"} <= event.keys())


def _first_line(path: Path) -> str | None:
    """Return the first line, stripped; None if it cannot be read."""
    try:
        with path.open(encoding="utf-8") as file:
            return file.readline().strip()
    except (OSError, ValueError):
        return None
