"""Texts that a program gives as lists: they become files, which a run names and can read again."""

import hashlib
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from heedful.errors import CorpusError
from heedful.runtime.durable import why_not_written, write_atomically
from heedful.settings.arguments import is_stream

_LINE_ENDS = re.compile(r"[\r\n]+")
_SIDES = ("src", "tgt")
_LINES = (*_SIDES, "mono")


def with_files(values: Mapping[str, Any], run: Path) -> dict[str, Any]:
    """Return settings with a file in place of each list of texts; two files in place of a list of pairs.

    The files are in a folder beside the run directory, which a later start may rename.

    >>> with_files({"data.src": ["A dog."], "data.tgt": "train.de"}, Path("runs/base"))
    {'data.src': 'runs/base.text/src-....txt', 'data.tgt': 'train.de'}

    Args:
        values: the values of settings; the last part of a key says what it is, such as `valid_pairs`.
        run: the run directory.

    Raises:
        CorpusError: an item of a list is no text, or no pair of texts; a list only names a file; a folder
            cannot be made.
    """
    beside = run if run.name not in ("", "..") else run.resolve()
    if not beside.name:
        raise CorpusError(f"{run}: is no place for a run; give another output")
    named, folder = dict(values), beside.with_name(f"{beside.name}.text")
    for key, value in values.items():
        name = key.rpartition(".")[2]
        if name == "corpora" and is_series(value):
            named[key] = [with_files(corpus, run) for corpus in value]
        elif name.endswith(_LINES) and is_series(value):
            named[key] = file_of(value, folder, name)
        elif name.endswith("pairs") and is_series(value):
            del named[key]
            pairs = [_pair(name, number, pair) for number, pair in enumerate(value, start=1)]
            for index, side in enumerate(_SIDES):
                texts = [pair[index] for pair in pairs]
                named[key.removesuffix("pairs") + side] = file_of(texts, folder, name.replace("pairs", side))
    return named


def is_series(value: object) -> bool:
    """Return whether a value holds texts, and does not name a file."""
    return isinstance(value, list | tuple) or is_stream(value)


def file_of(texts: Any, folder: Path, name: str) -> str:  # noqa: ANN401 (what a program gives)
    """Write texts one a line, and return the path; the same texts have the same path."""
    lines = list[str]()
    for number, text in enumerate(texts, start=1):
        if not isinstance(text, str):
            raise CorpusError(f"{name}: number {number:,} is {type(text).__name__}: must be a text")
        lines.append(_LINE_ENDS.sub(" ", text) + "\n")
    if len(lines) == 1 and Path(lines[0].strip()).is_file():
        raise CorpusError(f"{name}: {lines[0].strip()} is a file; give its name without a list")
    content = "".join(lines).encode("utf-8", "surrogatepass")  # which the reader refuses, with the line
    path = folder / f"{name}-{hashlib.sha256(content).hexdigest()[:12]}.txt"
    if not path.exists():
        try:
            folder.mkdir(parents=True, exist_ok=True)
            write_atomically(path, content)
        except OSError as error:
            raise CorpusError(f"{folder}: {why_not_written(error)}") from None
    return str(path)


def _pair(name: str, number: int, pair: object) -> tuple[str, str]:
    if not isinstance(pair, list | tuple) or len(pair) != len(_SIDES):
        raise CorpusError(f"{name}: number {number:,} is {type(pair).__name__}: must be (source, target)")
    source, target = pair
    return source, target
