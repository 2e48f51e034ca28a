"""The state that all tests of a process share: a test leaves it as it was, or fails.

A thread count, a default type or a variable of the environment that one test leaves behind changes what the
next ones compute, and a program that uses heedful would see the same. What a fixture of a module or a session
changes belongs to its scope and is not compared. pytest itself restores the filters of warnings.
"""

import os
import signal
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

_SIGNALS = tuple(each for each in (signal.SIGINT, signal.SIGTERM, getattr(signal, "SIGHUP", None)) if each)
_SMALLEST = sys.float_info.min  # of the normal numbers: a quarter of it is lost if denormals are flushed
# Variables that pytest sets for each test, and torch, scikit-learn and Ray when they are imported.
_OF_OTHERS = ("PYTEST_", "TORCHINDUCTOR_", "_TORCHINDUCTOR_", "TRITON_", "KMP_", "RAY_")


def process_state() -> dict[str, Any]:
    """Return the settings of this process that decide what is computed; torch's if it is imported."""
    mask = os.umask(0o22)
    os.umask(mask)
    state: dict[str, Any] = {
        "environment": {name: value for name, value in os.environ.items() if not name.startswith(_OF_OTHERS)},
        "working directory": Path.cwd(),
        "umask": mask,
        "warning format": warnings.formatwarning,
        "signal handlers": [signal.getsignal(each) for each in _SIGNALS],
        "denormals": _SMALLEST / 4 > 0,
    }
    threads = sys.modules.get("heedful.runtime.threads")
    if threads is not None:
        state["threads"] = threads.num_threads()
    return state | _of_torch() | _of_numpy()


def _of_torch() -> dict[str, Any]:
    torch = sys.modules.get("torch")
    if not hasattr(torch, "backends"):  # not imported
        return {}
    mkldnn = torch.backends.mkldnn
    return {
        "torch threads": torch.get_num_threads(),
        "torch default dtype": torch.get_default_dtype(),
        "torch float32 products": torch.get_float32_matmul_precision(),
        "torch float32 products of libraries": [
            getattr(getattr(each, "matmul", None), "fp32_precision", None)
            for each in (torch.backends.cuda, mkldnn)
        ],
        "torch mkldnn": (mkldnn.enabled, mkldnn.deterministic),
        "torch deterministic": torch.are_deterministic_algorithms_enabled(),
        "torch gradients": torch.is_grad_enabled(),
        "torch function modes": torch._C._len_torch_function_stack(),
    }


def _of_numpy() -> dict[str, Any]:
    numpy = sys.modules.get("numpy")
    return {"numpy errors": numpy.geterr()} if hasattr(numpy, "geterr") else {}


def changes(before: dict[str, Any], after: dict[str, Any]) -> list[str]:
    """Return a line for each setting that changed; settings of a library imported meanwhile do not count."""
    found = []
    for name, value in before.items():
        now = after.get(name, value)
        if now == value:
            continue
        if isinstance(value, dict):
            keys = sorted(key for key in {*value, *now} if value.get(key) != now.get(key))
            found += [f"{name}: {key}: {value.get(key)!r} -> {now.get(key)!r}" for key in keys]
        else:
            found.append(f"{name}: {value!r} -> {now!r}")
    return found


@pytest.fixture(autouse=True)
def unchanged_process_state(request: pytest.FixtureRequest) -> Iterator[None]:
    """Fail a test that leaves the state of the process changed."""
    before = process_state()
    yield
    if left := changes(before, process_state()):
        pytest.fail(f"{request.node.nodeid} leaves behind: {'; '.join(left)}", pytrace=False)
