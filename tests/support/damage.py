"""Valid files, damaged in every way that comes to mind, and readers that may only say so in one line.

The default number of cases takes a second or two for each reader; `-m slow` adds more, the same each time.
With HEEDFUL_FUZZ_CASES in the environment there are also so many, other ones each time: a search for
faults, and no test that gives the same answer twice.
"""

import copy
import json
import os
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from heedful.errors import HeedfulError

FEW, SOME, MANY = 12, 60, int(os.environ.get("HEEDFUL_FUZZ_CASES", "2000"))
few_or_many = pytest.mark.parametrize(
    "cases",
    [
        FEW,
        pytest.param(SOME, marks=pytest.mark.slow),
        pytest.param(
            MANY,
            marks=[
                pytest.mark.slow,
                pytest.mark.timeout(0),
                pytest.mark.skipif(
                    "HEEDFUL_FUZZ_CASES" not in os.environ, reason="HEEDFUL_FUZZ_CASES is not set"
                ),
            ],
        ),
    ],
)
_SECONDS = 5.0  # of the CPU, that one case may take
_MEMORY = 4 * 2**30  # of addresses; threads and mapped files are among them

# What json.dumps cannot say: written in place of the marker.
_RAW = {
    "@deep list@": "[" * 100_000 + "]" * 100_000,
    "@deep object@": '{"a":' * 70 + "1" + "}" * 70,
    "@digits@": "9" * 5000,
    "@exponent@": "1e999",
    "@half of a pair@": '"\\ud800"',
}
VALUES: list[Any] = [
    *(None, True, False, 0, 1, -1, 2, 3, 7, 64, 2**31, 2**53, 2**63, -(2**63), 10**30, 10**300),
    *(0.0, -0.5, 0.5, 1e-300, 1e300, float("nan"), float("inf"), -float("inf")),
    *("", "a", "0", "\0", "../x", "/dev/zero", "é" * 50, "x" * 5000, "\n", "true", "<s>", "@"),
    *([], {}, [[]], [None], [0, 0], [-1], ["a", "a"], {"a": {}}, {"": 0}, [[[[[[[]]]]]]], [1] * 5000),
    *_RAW,
]


@dataclass(frozen=True)
class Change:
    """A change of something nested: `where` counts its values, modulo their number."""

    action: str
    where: int
    value: Any
    other: int


@dataclass(frozen=True)
class Wound:
    """A change of bytes: `where` and `size` are taken modulo what there is."""

    action: str
    where: int
    size: int
    content: bytes


CHANGES = st.lists(
    st.builds(
        Change,
        st.sampled_from(["replace", "replace", "replace", "copy", "remove", "rename", "wrap", "twice"]),
        st.integers(0, 2**20),
        st.sampled_from(VALUES) | st.integers() | st.text(max_size=9) | st.floats(),
        st.integers(0, 2**20),
    ),
    min_size=1,
    max_size=3,
)
WOUNDS = st.lists(
    st.builds(
        Wound,
        st.sampled_from(["flip", "flip", "set", "set", "cut", "insert", "end", "again", "number"]),
        st.integers(0, 2**30),
        st.integers(1, 64),
        st.binary(min_size=1, max_size=12),
    ),
    min_size=1,
    max_size=4,
)


def changed(document: Any, changes: list[Change]) -> Any:  # noqa: ANN401
    """A copy with some values replaced, removed, renamed or put elsewhere."""
    root = {"": copy.deepcopy(document)}
    for change in changes:
        places = list(_places(root))
        container, key = places[change.where % len(places)]
        if change.action == "remove" and container is not root:
            del container[key]
        elif change.action in ("rename", "twice") and isinstance(container, dict) and container is not root:
            name = key if change.action == "twice" else str(change.value)
            value = container[key] if change.action == "twice" else container.pop(key)
            container[f"{name}@twice@" if change.action == "twice" else name] = value
        elif change.action == "wrap":
            container[key] = [container[key]] if change.other % 2 else {"a": container[key]}
        elif change.action == "copy":
            other, name = places[change.other % len(places)]
            container[key] = copy.deepcopy(other[name])
        else:
            container[key] = copy.deepcopy(change.value)
    return root[""]


def _places(root: dict[str, Any]) -> Iterator[tuple[Any, Any]]:
    """Every value, by what holds it and its key there; lists and objects before what is in them."""
    waiting: list[tuple[Any, Any]] = [(root, "")]
    while waiting:
        container, key = waiting.pop()
        yield container, key
        value = container[key]
        inner = value if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ()
        waiting += [(value, each) for each in list(inner)[:200]]


def json_text(document: Any) -> str:  # noqa: ANN401
    """As JSON, with what json.dumps does not write: keys that come twice, depth, endless digits."""
    text = json.dumps(document).replace("@twice@", "")
    for marker, raw in _RAW.items():
        text = text.replace(f'"{marker}"', raw)
    return text


def wounded(content: bytes, wounds: list[Wound]) -> bytes:
    """A copy with bytes flipped, set, cut out, put in or repeated, or without its end."""
    found = bytearray(content)
    for wound in wounds:
        start = wound.where % (len(found) + 1)
        end = min(len(found), start + wound.size)
        match wound.action:
            case "flip" if start < len(found):
                found[start] ^= 1 << wound.size % 8
            case "set":
                found[start:end] = bytes([wound.content[0]]) * (end - start)
            case "cut":
                del found[start:end]
            case "insert":
                found[start:start] = wound.content
            case "end":
                del found[start:]
            case "again":
                found[start:start] = found[start:end]
            case "number":
                found[start : start + 8] = (2 ** (wound.size % 64)).to_bytes(8, "little")
    return bytes(found)


def read_many(cases: int, damage: st.SearchStrategy[Any], read: Callable[[Any], object]) -> None:
    """Let a reader read so many damaged inputs; it may raise a HeedfulError of one line, and nothing else."""

    def check(case: Any) -> None:  # noqa: ANN401
        begun = time.process_time()
        try:
            with limited_memory(), warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")  # an error would be taken for one of the file
                read(case)
        except HeedfulError as error:
            assert "\n" not in str(error)
            assert len(str(error)) < 2000, f"a message of {len(str(error)):,} characters"
        assert not caught, caught[0].message
        assert time.process_time() - begun < _SECONDS

    several = settings(
        max_examples=cases,
        derandomize="HEEDFUL_FUZZ_CASES" not in os.environ,
        database=None,
        suppress_health_check=list(HealthCheck),
        phases=[Phase.generate, Phase.shrink],
    )
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # several would wait for each other, for matrices of a few numbers
    try:
        several(given(damage)(check))()
    finally:
        torch.set_num_threads(threads)


@contextmanager
def limited_memory(limit: int = _MEMORY) -> Iterator[None]:
    """No more addresses than that beyond those that are in use, where the system can count them."""
    pages = Path("/proc/self/statm")
    if not pages.is_file():
        yield
        return
    import resource

    in_use = int(pages.read_text(encoding="ascii").split()[0]) * resource.getpagesize()
    before = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (in_use + limit, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)


@contextmanager
def replaced(file: Path, content: bytes) -> Iterator[None]:
    """Another content of a file, inside of the block; as another file, for the first may be mapped."""
    aside = file.with_name(f".{file.name}.aside")
    file.rename(aside)
    try:
        file.write_bytes(content)
        yield
    finally:
        aside.replace(file)
