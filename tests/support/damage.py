"""Valid files, damaged in every way that comes to mind, and readers that may only say so in one line.

The default number of cases takes a second or two for each reader; `-m slow` adds more, the same each time.
With HEEDFUL_FUZZ_CASES in the environment there are also so many, other ones each time: a search for
faults, and no test that gives the same answer twice.
"""

import argparse
import copy
import io
import itertools
import json
import os
import time
import warnings
import zipfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.numpy
import torch
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from safetensors import safe_open

from heedful.errors import HeedfulError
from heedful.interop.marian_files import MODEL_OPTIONS, parse_options

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

PACKAGES = (".docx", ".pptx", ".xlsx", ".odt", ".ods", ".odp")
# Types of arrays that safetensors can hold.
_SAFE = {np.dtype(each) for each in ("f8", "f4", "f2", "i8", "i4", "i1", "u1", "?")}
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
        elif isinstance(value := container[key], torch.Tensor | np.ndarray) and change.other % 4:
            container[key] = _other_array(value, change.other)
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
        value = vars(value) if isinstance(value, argparse.Namespace) else value
        inner = value if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ()
        waiting += [(value, each) for each in list(inner)[:200]]


def _other_array(array: Any, number: int) -> Any:  # noqa: ANN401
    """What may stand in the place of a tensor, or of an array of numpy."""
    size = number % 97
    if isinstance(array, np.ndarray):
        array = np.atleast_2d(array)
        others: list[Any] = [
            np.zeros(()), np.zeros(0), np.zeros((1, size), np.float32), np.zeros((2**16, 1), np.float32),
            array.T, array[:, :-1], array[:-1], np.concatenate([array, array]), array[None],
            array.astype("f8"), array.astype("f2"), array.astype(">f4"), array.astype("i4"),
            array.astype("c8"), array * np.nan, array.astype("f8") * 1e38, array.astype("i4") * -1,
            np.array([None, 3], object), np.array("text"), array.reshape(-1), np.asfortranarray(array),
            np.full(9, 2**31 - 1, "i4"),
        ]  # fmt: skip
    else:
        others = [
            torch.zeros(()), torch.zeros(0), torch.zeros(0, 5), torch.zeros(size), torch.zeros(size, 1, 2),
            torch.zeros(1).expand(2**20, 2**20), torch.zeros(1, dtype=torch.float16).expand(2**40),
            array.double(), array.half(), array.long(), array.bool(), array.to(torch.complex64), array[None],
            array.reshape(-1)[:-1], torch.cat([array.reshape(-1)] * 2), array * float("nan"), array * 1e38,
            array.to_sparse(), None, size, "text", [array], {"a": array}, array.to("meta"),
            array.to(torch.float8_e4m3fn), torch.zeros(2**16, 1), torch.zeros(1, 2**16), torch.ones(1),
        ]  # fmt: skip
    return others[number % len(others)]


def _repacked(package: bytes, wounds: list[Wound]) -> bytes:
    """A package with another one of its parts."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(package)) as old, zipfile.ZipFile(buffer, "w") as new:
        parts = old.infolist()
        damaged = parts[wounds[0].where % len(parts)]
        for part in parts:
            data = old.read(part)
            new.writestr(part, wounded(data, wounds) if part is damaged else data)
    return buffer.getvalue()


def restructured(file: Path, content: bytes, changes: list[Change], wounds: list[Wound]) -> bytes | None:
    """A file with values changed, by the structure that its ending names; None: it names none."""
    if file.suffix in PACKAGES:
        return _repacked(content, wounds)
    if file.suffix == ".json":
        return json_text(changed(json.loads(content), changes)).encode()
    if file.suffix == ".jsonl":
        documents = changed([json.loads(line) for line in content.splitlines()], changes)
        documents = documents if isinstance(documents, list) else [documents]
        return "".join(json_text(each) + "\n" for each in documents).encode()
    buffer = io.BytesIO()
    if file.suffix == ".pt":
        saved = torch.load(io.BytesIO(content), weights_only=False)
        is_zip = zipfile.is_zipfile(io.BytesIO(content))
        torch.save(changed(saved, changes), buffer, _use_new_zipfile_serialization=is_zip)
    elif file.suffix == ".npz":
        with np.load(io.BytesIO(content)) as loaded:
            arrays = _with_options(dict(loaded), changes)
        with zipfile.ZipFile(buffer, "w") as archive:
            for name, array in arrays.items():
                with archive.open(zipfile.ZipInfo(f"{name}.npy"), "w") as member:
                    np.lib.format.write_array(member, np.asarray(array))
    elif file.suffix == ".safetensors" and not file.name.startswith("model"):
        with safe_open(file, framework="numpy") as opened:
            metadata = {key: json.loads(value) for key, value in (opened.metadata() or {}).items()}
        found = changed({"arrays": safetensors.numpy.load(content), "metadata": metadata}, changes)
        arrays, metadata = (_as_dict(_as_dict(found).get(part)) for part in ("arrays", "metadata"))
        arrays = {str(name): each for name, each in arrays.items() if getattr(each, "dtype", None) in _SAFE}
        return safetensors.numpy.save(arrays, {str(key): json_text(value) for key, value in metadata.items()})
    else:
        return None
    return buffer.getvalue()


def _as_dict(value: Any) -> dict[Any, Any]:  # noqa: ANN401
    return value if isinstance(value, dict) else {}


def _with_options(arrays: dict[str, Any], changes: list[Change]) -> dict[str, Any]:
    """Arrays of Marian with changes, some of them in the options that are one of the arrays."""
    if MODEL_OPTIONS not in arrays or changes[0].other % 2:
        return _as_dict(changed(arrays, changes))
    values = _as_dict(changed(parse_options(arrays[MODEL_OPTIONS].tobytes()), changes))
    lines = [f"{key}: {value}" for key, value in values.items()]
    options = np.frombuffer("\n".join(lines).encode(errors="replace") + b"\0", np.int8)
    return arrays | {MODEL_OPTIONS: options}


def json_text(document: Any) -> str:  # noqa: ANN401
    """As JSON, with what json.dumps does not write: keys that come twice, depth, endless digits."""
    text = json.dumps(document, default=str).replace("@twice@", "")
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


def read_damaged(
    cases: int,
    folder: Path,
    use: Callable[[Path], object],
    *,
    repair: Callable[[Path], tuple[Path, bytes]] | None = None,
) -> None:
    """Use a folder with one file damaged, by its bytes or by its values, in so many ways.

    `repair` returns a file and what it has if its checksums are those of the damaged folder, as somebody
    would write them who wants it to be read.
    """
    contents = {file: file.read_bytes() for file in sorted(folder.rglob("*")) if file.is_file()}

    def read(case: tuple[Path, list[Wound], list[Change], bool, bool]) -> None:
        file, wounds, changes, by_values, is_repaired = case
        damaged = restructured(file, contents[file], changes, wounds) if by_values else None
        damaged = wounded(contents[file], wounds) if damaged is None else damaged
        with replaced(file, damaged), ExitStack() as stack:
            if repair is not None and is_repaired:
                stack.enter_context(replaced(*repair(folder)))
            use(folder)

    read_many(
        cases, st.tuples(st.sampled_from([*contents]), WOUNDS, CHANGES, st.booleans(), st.booleans()), read
    )


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
    names = (f".{file.name}.aside{number}" for number in itertools.count())
    aside = next(path for path in map(file.with_name, names) if not path.exists())
    file.rename(aside)
    try:
        file.write_bytes(content)
        yield
    finally:
        aside.replace(file)
