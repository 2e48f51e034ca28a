"""What every test may use: the modules of tests/support and of tools, and real corpora where they are."""

import gc
import itertools
import os
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

if TYPE_CHECKING:
    from machine_class import LevelsHere

    from heedful.settings.options import Precision

# The same examples every time, with no limit of time; what searches for new ones says so (tests/property,
# HEEDFUL_FUZZ_CASES).
settings.register_profile("the same every time", derandomize=True, deadline=None)
settings.load_profile("the same every time")

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "tests" / "support"), str(ROOT / "tools")]
pytest_plugins = ["process_state"]

from machine_class import fix_class  # noqa: E402

# Before any test, or the conftest of a folder, imports a library that chooses by the CPU.
fix_class()


@pytest.fixture(scope="session")
def real_data() -> Path:
    """The folder of real corpora: $HEEDFUL_DATA, else shared/data beside the repository; skips without it."""
    folder = Path(os.environ.get("HEEDFUL_DATA") or ROOT.parent / "shared" / "data")
    if not folder.is_dir():
        pytest.skip(f"no real corpora in {folder}; set HEEDFUL_DATA")
    return folder


@pytest.fixture
def here(request: pytest.FixtureRequest) -> "LevelsHere":
    """Return the levels that a loop in a test can run here; the others are counted."""
    from machine_class import LevelsHere

    return LevelsHere(request.node)


@pytest.fixture
def use_engine() -> "Iterator[Callable[[Precision], None]]":
    """Return a function: it sets a level with an engine of a precision, or skips the test."""
    from machine_class import as_class, level_with

    with ExitStack() as until_the_end:
        yield lambda precision: until_the_end.enter_context(as_class(level=level_with(precision)))


def pytest_configure(config: pytest.Config) -> None:
    """Hide a GPU from tests that are not about it, and collect no garbage until the tests are found."""
    gc.disable()  # imported modules live as long as the process
    chosen = str(config.getoption("-m"))
    if "gpu" not in chosen or "not gpu" in chosen:
        os.environ["CUDA_VISIBLE_DEVICES"] = ""


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the cases of a test slow after the first ones, as many as its marker `representatives` says."""
    seen: Counter[str] = Counter()
    for item in items:
        if (mark := item.get_closest_marker("representatives")) is not None:
            name = item.nodeid.partition("[")[0]
            seen[name] += 1
            if seen[name] > mark.args[0]:
                item.add_marker(pytest.mark.slow)


def pytest_collection_finish() -> None:
    """Collect garbage again, but leave out the imported modules, which would be visited each time."""
    gc.freeze()
    gc.enable()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print the class of machine that the tests ran as, and how many cases this machine could not execute."""
    from machine_class import count_not_executed, describe_class

    reports = itertools.chain.from_iterable(terminalreporter.stats.values())
    counts = count_not_executed(reports)
    each = ", ".join(f"{count} {name}" for name, count in counts.most_common())
    terminalreporter.line(describe_class())
    terminalreporter.line(f"{counts.total()} cases not executed on this machine{': ' + each if each else ''}")
