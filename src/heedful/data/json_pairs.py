"""Sentence pairs in JSON: an object for each pair, on a line or in a list."""

import re
from collections.abc import Sequence
from itertools import chain

from heedful.errors import CorpusError
from heedful.settings.parsing import Json, parse_json, shown

_NO_TEXT = re.compile("[\0\ud800-\udfff]")  # NUL, and halves of surrogate pairs
_MISSING = object()


def paths_of_key(key: str) -> tuple[list[str], ...]:
    """Return where the text of a key may be, as keys within keys; the first that exists counts.

    Data sets of the hub have an object or a struct `translation`, of the texts by their languages.

    >>> paths_of_key("en")
    (['en'], ['translation', 'en'])
    """
    return ([key], ["translation", key], *[key.split(".")] * ("." in key))


def pair_in(name: str, number: int, line: str, keys: tuple[str, str]) -> tuple[str, str]:
    """Return source and target of a line in JSON: see `pair_of`."""
    try:
        record, problem = parse_json(line, half_pairs=True), "not a JSON object"
    except ValueError as error:
        record, problem = None, f"not JSON ({str(error).removeprefix('not valid JSON: ')})"
    return pair_of(name, number, record, keys, problem=problem)


def pair_of(
    name: str, number: int, record: Json, keys: tuple[str, str], *, problem: str = "not a JSON object"
) -> tuple[str, str]:
    """Return source and target of a JSON object; null is an empty text. CorpusError if it lacks one.

    `problem` is what is wrong if it is no object.
    """
    if not isinstance(record, dict):
        raise CorpusError(
            f"{name}: line {number:,}: {problem}; each line must be one object, with the keys {keys[0]!r} "
            f"and {keys[1]!r}"
        )
    src, tgt = (_json_text(f"{name}: line {number:,}", record, key) for key in keys)
    return src, tgt


def _json_text(where: str, record: dict[str, object], key: str) -> str:
    text, *_ = [*chain.from_iterable(_values(record, path) for path in paths_of_key(key)), _MISSING]
    if text is None:
        return ""
    if isinstance(text, str) and not _NO_TEXT.search(text):
        return text.replace("\n", " ")
    if text is _MISSING:
        inner = record.get("translation")
        has = ", ".join(map(shown, [*(inner if isinstance(inner, dict) else record)][:5])) or "none"
        problem = f"no key {key!r} (it has {has}); set data.src_key and data.tgt_key"
    elif not isinstance(text, str):
        remedy = "name a key in it" if isinstance(text, dict) else "it must be one sentence"
        problem = f"the value of {key!r} is not a string; {remedy}"
    elif "\0" in text:
        problem = f"NUL character in the value of {key!r}; remove it"
    else:
        problem = f"half of a surrogate pair in the value of {key!r}; write the whole character"
    raise CorpusError(f"{where}: {problem}")


def _values(value: object, path: Sequence[str]) -> list[object]:
    """Return the value at a path of keys, or none; what is inside null is null."""
    for key in path:
        if value is None:
            break
        if not isinstance(value, dict) or key not in value:
            return []
        value = value[key]
    return [value]


def listed_objects(name: str, text: str) -> list[Json]:
    """Return the objects of a list in JSON; CorpusError if it is not JSON, or has no objects."""
    problem = "the list is empty"
    try:
        objects = parse_json(text, half_pairs=True)
        if objects and isinstance(objects, list):
            return objects
    except ValueError as error:
        problem = str(error)
    raise CorpusError(f"{name}: {problem}; it must be a list of objects, or have one a line")
