"""The class of machine that a test runs as: forced, so that a test has the same outcome on every machine.

heedful chooses by class: the level of the native library, whether the CPU multiplies bfloat16, and the
number of threads, from which the number of processes follows. torch, oneDNN, MKL, CTranslate2 and OpenBLAS
choose by the CPU, too. `fix_class` sets what the environment leaves open, for all tests and their processes;
`as_class` sets another class of heedful inside a block. A case that this machine cannot execute is skipped
(`skip_here`) or left out of a loop (`LevelsHere`), and counted by name at the end.
"""

import os
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import pytest

from heedful.runtime.native import BF16_VARIABLE, VARIABLE, functions_of, native
from heedful.settings.options import Precision
from machine_classes import held_down_to

THREADS_VARIABLE = "OMP_NUM_THREADS"
COMMON = "avx2"  # the level of tests that choose none; the slowest on a machine that cannot run it
PRECISIONS: tuple[Precision, ...] = ("float32", "bf16", "int8")  # of the engine, in the order of `groups`

_NOT_HERE = "not executed on this machine: "
_LEFT_OUT = "left out of a loop"


def every_level() -> list[str]:
    """Return the library's levels, also those that this machine cannot run; one name without a library."""
    return [level.name for level in native().levels] or ["a native library"]


def every_computation() -> list[tuple[str, Precision]]:
    """Return each level with each precision that its engine has."""
    if native().level is None:
        return [(level, "float32") for level in every_level()]
    return [(level, each) for level in every_level() for each in PRECISIONS if _has(level, each)]


def why_not_here(level: str) -> str | None:
    """Return why this machine cannot run a level of `every_level`; None where it can."""
    return {each.name: each.why_not for each in native().levels}.get(level, native().why_not)


def skip_here(name: str) -> None:
    """Skip the test because this machine lacks what it needs; it is counted under that name."""
    pytest.skip(_NOT_HERE + name)


def need_level(level: str) -> None:
    """Skip the test if this machine cannot run that level."""
    if why_not_here(level) is not None:
        skip_here(level)


def need_native() -> None:
    """Skip the test if there is no native library."""
    if native().level is None:
        skip_here(every_level()[0])


def level_with(precision: Precision) -> str:
    """Return a level whose engine has a precision, the one in use if possible; skip the test without one."""
    need_native()
    in_use = str(native().level)
    here = [level for level in every_level() if why_not_here(level) is None and _has(level, precision)]
    if not here:
        skip_here(f"{precision} of the native engine")
    return in_use if in_use in here else here[0]


@contextmanager
def as_class(
    *, level: str | None = None, bf16: bool | None = None, threads: int | None = None
) -> Iterator[None]:
    """Run the block as on such a machine, in this process and in those that it starts."""
    chosen = {
        VARIABLE: level,
        BF16_VARIABLE: None if bf16 is None else ("on" if bf16 else "off"),
        THREADS_VARIABLE: None if threads is None else str(threads),
    }
    before = native()
    with pytest.MonkeyPatch.context() as patch:
        for name, value in chosen.items():
            if value is not None:
                patch.setenv(name, value)
        try:
            native.cache_clear()
            with _threads_of_torch(threads):
                yield
        finally:
            patch.undo()
            native.cache_clear()
            assert native().level == before.level


@contextmanager
def _threads_of_torch(count: int | None) -> Iterator[None]:
    if count is None:
        yield
        return
    from heedful.runtime.threads import using_threads

    with using_threads(count):
        yield


@contextmanager
def case(*names: object) -> Iterator[None]:
    """Name the case of a loop in the report of what fails inside the block."""
    try:
        yield
    except Exception as error:
        error.add_note(f"in the case {', '.join(map(str, names))}")
        raise


class LevelsHere:
    """The cases of a loop that this machine can execute; the others are counted with the test."""

    def __init__(self, node: pytest.Item) -> None:
        self._node = node

    def levels(self) -> list[str]:
        """Return the levels that this machine can run."""
        return [level for level in every_level() if self._is_here(level)]

    def computations(self) -> list[tuple[str, Precision]]:
        """Return the levels that this machine can run, each with the precisions of its engine."""
        return [(level, each) for level, each in every_computation() if self._is_here(level)]

    def _is_here(self, level: str) -> bool:
        if why_not_here(level) is None:
            return True
        self._node.user_properties.append((_LEFT_OUT, level))
        return False


def fix_class() -> None:
    """Choose what the environment leaves open: a class that nearly every machine can run as.

    No library that chooses by the CPU may be imported before: each reads its variable once.
    """
    if early := {"torch", "numpy", "ctranslate2"} & set(sys.modules):
        pytest.exit(
            f"a plugin of pytest imported {', '.join(sorted(early))} before the tests could hold it to a "
            "class of machine; run `PYTEST_DISABLE_PLUGIN_AUTOLOAD=1 pytest -p xdist -p pytest_timeout`"
        )
    os.environ.setdefault(BF16_VARIABLE, "off")
    os.environ.setdefault(THREADS_VARIABLE, "1")
    if not os.environ[THREADS_VARIABLE]:  # this machine's own class; OpenMP takes no empty value
        os.environ[THREADS_VARIABLE] = str(os.cpu_count() or 1)
    here = [level for level in every_level() if why_not_here(level) is None]
    if VARIABLE not in os.environ and here:
        os.environ[VARIABLE] = COMMON if COMMON in here else here[0]
    native.cache_clear()
    for name, value in held_down_to(os.environ.get(VARIABLE, "")).items():
        if name == "OPENBLAS_CORETYPE":  # set on some systems for the whole machine
            os.environ[name] = value
        else:
            os.environ.setdefault(name, value)


def describe_class() -> str:
    """Say in a line what class the tests ran as."""
    bf16 = os.environ.get(BF16_VARIABLE) or "as the CPU has it"
    threads = os.environ.get(THREADS_VARIABLE) or "all"
    return f"ran with {native().describe()}, bf16 {bf16}, threads {threads}"


def count_not_executed(reports: Iterable[object]) -> Counter[str]:
    """Return how many cases were not executed on this machine, by the name of what they need."""
    found: Counter[str] = Counter()
    for report in reports:
        reason = getattr(report, "longrepr", None)
        if getattr(report, "skipped", False) and isinstance(reason, tuple):
            found[str(reason[2]).removeprefix("Skipped: ").removeprefix(_NOT_HERE)] += 1
        if getattr(report, "when", None) == "call":
            properties = getattr(report, "user_properties", ())
            found.update(str(value) for name, value in properties if name == _LEFT_OUT)
    return found


def _has(level: str, precision: Precision) -> bool:
    return bool(functions_of(level).groups[PRECISIONS.index(precision)])
