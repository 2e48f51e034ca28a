"""The number of threads and processes that compute, and whether there may be a GPU."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

from heedful.errors import ConfigError

_ALWAYS_ALLOWED = 64  # on any machine; more than it has cores only wait for each other
_chosen: int | None = None  # until torch, which keeps it itself, is imported and has been told


def num_threads() -> int:
    """Return how many threads compute: the number that was set, else one for each core."""
    if _chosen is not None:
        return _chosen
    # Another thread may be importing torch just now: then it has no such function yet.
    of_torch = getattr(sys.modules.get("torch"), "get_num_threads", None)
    return of_torch() if of_torch is not None else _cores()


def set_threads(name: str, count: int) -> None:
    """Set the number of threads that compute, in torch too.

    `name` is the setting, for the message of `check_workers`.
    """
    check_workers(name, count)
    _set(count)


def apply_threads() -> None:
    """Give torch, once it is imported, the number of threads that was set before; later calls do nothing."""
    if _chosen is not None:
        _set(_chosen)


def check_workers(name: str, count: int) -> None:
    """Refuse numbers of threads or processes that are far beyond the cores of this machine."""
    cores = os.cpu_count() or 1
    limit = max(_ALWAYS_ALLOWED, 4 * cores)
    if count > limit:
        raise ConfigError(f"{name}={count}: this machine has {cores} cores; give at most {limit}")


def may_have_gpu() -> bool:
    """Return whether torch may find a GPU; False only if there surely is none, without importing torch."""
    if sys.platform != "linux":
        return sys.platform == "win32"
    return any(Path(device).exists() for device in ("/dev/nvidiactl", "/dev/kfd", "/dev/dxg"))


@contextmanager
def restored_threads() -> Iterator[None]:
    """Restore the number of threads after the block, which may set it."""
    before = num_threads()
    try:
        yield
    finally:
        _set(before)


@contextmanager
def using_threads(count: int) -> Iterator[None]:
    """Compute with this number of threads inside the block."""
    with restored_threads():
        _set(count)
        yield


def _set(count: int) -> None:
    global _chosen
    torch = sys.modules.get("torch")
    if torch is None or not hasattr(torch, "set_num_threads"):  # another thread may be importing it
        _chosen = count
        return
    _chosen = None
    if torch.get_num_threads() != count:
        torch.set_num_threads(count)


@cache
def _cores() -> int:
    """Return the cores that this process may use, as torch counts them; OMP_NUM_THREADS overrides it."""
    requested = os.environ.get("OMP_NUM_THREADS", "").split(",")[0]
    if requested.isdigit() and int(requested):
        return int(requested)
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    import psutil  # slow to import, and not needed if threads are set

    return min(allowed, psutil.cpu_count(logical=False) or allowed)
