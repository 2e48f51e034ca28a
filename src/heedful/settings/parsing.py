"""Parse untrusted files within limits of size and depth, and with each key once.

Every problem is a `ValueError` with a phrase; the caller adds the name of the file and a remedy.
"""

import json
import re
import reprlib
import tomllib
from collections import Counter
from collections.abc import Callable
from itertools import chain
from pathlib import Path
from typing import Any, TypeVar

_Value = TypeVar("_Value")
Json = dict[str, Any] | list[Any] | str | float | bool | None

MAX_BYTES = 256 * 2**20  # of a file that is parsed as a whole: the largest tokenizer.json has 34 MB
MAX_DEPTH = 64  # of nested lists and objects
MAX_WHOLE = 2**53 - 1  # the largest whole number that is exact in every JSON parser

_CHUNK = 2**20
_MAX_SHOWN = 60  # characters of a value in a message
_HALF_OF_A_PAIR = re.compile(r"\\u[dD][89a-fA-F]")
PLAIN_NAME = r"[A-Za-z0-9_][A-Za-z0-9_.+-]{0,200}"  # of a file


def read_limited(path: Path, *, max_bytes: int = MAX_BYTES) -> bytes:
    """Return the content of a file.

    Raises:
        OSError: it cannot be read.
        ValueError: it is larger than `max_bytes`, or its name is not valid.
    """
    chunks: list[bytes] = []
    size = 0
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK):
            size += len(chunk)
            if size > max_bytes:
                raise ValueError(f"larger than {max_bytes / 2**20:,.0f} MiB")
            chunks.append(chunk)
    return b"".join(chunks)


def decode_text(content: bytes) -> str:
    """Decode UTF-8, without a byte order mark.

    Raises:
        ValueError: it is not UTF-8.
    """
    try:
        return content.decode("utf-8").removeprefix("\ufeff")
    except UnicodeDecodeError as error:
        raise ValueError(f"not UTF-8 at byte {error.start:,}") from None


def parse_json(content: bytes | str, *, half_pairs: bool = False) -> Json:
    """Parse JSON.

    >>> parse_json(b'{"ids": [1, 2]}')
    {'ids': [1, 2]}

    Args:
        content: a file or a line.
        half_pairs: whether texts may have half of a surrogate pair.

    Raises:
        ValueError: not JSON, a repeated key, nesting deeper than `MAX_DEPTH`, or half of a surrogate pair.
    """
    text = decode_text(content) if isinstance(content, bytes) else content

    def parse(text: str) -> Json:
        value: Json = _DECODER.decode(text)
        if not half_pairs and _HALF_OF_A_PAIR.search(text):
            json.dumps(value, ensure_ascii=False).encode("utf-8")
        return value

    return _parsed(text, parse, "JSON")


def parse_toml(text: str) -> dict[str, Any]:
    """Parse TOML.

    Raises:
        ValueError: not TOML, or nesting deeper than `MAX_DEPTH`.
    """
    return _parsed(text, tomllib.loads, "TOML")


def _parsed(text: str, parse: Callable[[str], _Value], form: str) -> _Value:
    """Return what a parser makes of a text; one ValueError for all that can be wrong with it."""
    try:
        if _is_shallow(value := parse(text)):
            return value
        problem = _TOO_DEEP
    except RecursionError:
        problem = _TOO_DEEP
    except UnicodeEncodeError:
        problem = "half of a surrogate pair in a text; write the whole character"
    except (json.JSONDecodeError, tomllib.TOMLDecodeError) as error:
        problem = f"not valid {form}: {error}"
    except ValueError as error:
        is_of_python = "set_int_max_str_digits" in str(error)
        problem = _TOO_MANY_DIGITS if is_of_python else str(error)
    raise ValueError(problem)


def mistake_of(error: ValueError) -> str:
    """Return a message in one line; of pydantic's, the place and the message of the first mistake."""
    if not hasattr(error, "errors"):
        return str(error)
    first = error.errors()[0]
    place = ".".join(map(str, first["loc"][:2]))
    return f"{shown(place)}: {first['msg']}" if place else first["msg"]


def is_whole(value: object, *, least: int = 0, most: int = MAX_WHOLE) -> bool:
    """Return whether a value is a whole number within these limits; True and 1.0 are not."""
    return type(value) is int and least <= value <= most


def is_plain_name(name: object) -> bool:
    """Return whether a value is a plain file name: no path, no pattern, not hidden.

    >>> is_plain_name("model-00001-of-00002.safetensors"), is_plain_name("../config.json")
    (True, False)
    """
    return isinstance(name, str) and re.fullmatch(PLAIN_NAME, name) is not None


def shown(value: object) -> str:
    """Return a short representation of a value, for a message."""
    return short(_SHORT.repr(value))


def as_json(value: object) -> str:
    """Return a value as short JSON, for a message."""
    try:
        return short(json.dumps(value, default=shown))
    except ValueError:  # a number of thousands of digits
        return shown(value)


def short(text: str) -> str:
    """Return a text for a message: one line, truncated if it is long."""
    text = " ".join(text[: 2 * _MAX_SHOWN].split())
    return text if len(text) <= _MAX_SHOWN else f"{text[: _MAX_SHOWN - 3]}..."


class _ShortRepr(reprlib.Repr):
    def __init__(self) -> None:
        super().__init__()
        self.maxlevel = 2
        self.maxstring = self.maxother = self.maxlong = _MAX_SHOWN

    def repr_int(self, x: int, level: int) -> str:
        """Show the size of large integers, which Python refuses to convert."""
        return repr(x) if abs(x) < 2**128 else f"<a number of {x.bit_length():,} bits>"

    def repr_instance(self, x: object, level: int) -> str:
        """Show only the type: the object may be large."""
        return repr(x) if x is None or isinstance(x, bool | float) else f"<{type(x).__name__}>"


_SHORT = _ShortRepr()
_TOO_DEEP = f"nested more than {MAX_DEPTH} deep"
_TOO_MANY_DIGITS = "a number has too many digits"
_MAX_DIGITS = 400  # the largest float has 309


def _is_shallow(value: object) -> bool:
    level = [value] if isinstance(value, dict | list) else []
    for _ in range(MAX_DEPTH):
        inner = (outer.values() if isinstance(outer, dict) else outer for outer in level)
        level = [value for value in chain.from_iterable(inner) if isinstance(value, dict | list)]
    return not level


def _whole_number(digits: str) -> int:
    if len(digits) > _MAX_DIGITS:
        raise ValueError(_TOO_MANY_DIGITS)
    return int(digits)


def _each_key_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    unique = dict(pairs)
    if len(unique) < len(pairs):
        [(repeated, _)] = Counter(key for key, _ in pairs).most_common(1)
        raise ValueError(f"the key {shown(repeated)} is repeated")
    return unique


_DECODER = json.JSONDecoder(object_pairs_hook=_each_key_once, parse_int=_whole_number)
