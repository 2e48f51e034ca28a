"""Free memory: of a GPU, or of the machine within the limits of this process."""

from collections.abc import Iterator
from pathlib import Path

import psutil
import torch

# Files below /sys/fs/cgroup, for version 2 and version 1 of Linux's control groups: the limit, the usage, and
# the file cache in that usage that can be reclaimed. Kernel documentation, cgroup-v2.rst and
# cgroup-v1/memory.rst.
_UNIFIED = "", "memory.max", "memory.current", "inactive_file"
_LEGACY = "memory", "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"


def free_memory(device: torch.device, *, root: Path = Path("/")) -> int:
    """Return the bytes that can still be allocated.

    Args:
        device: a GPU, where torch's unused reserve counts as free; or a CPU.
        root: of the file system with the limits of control groups.
    """
    if device.type == "cuda":
        free, _ = torch.cuda.mem_get_info(device)
        return free + torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
    available = int(psutil.virtual_memory().available)  # includes reclaimable caches
    return min([available, *_of_the_process(), *_of_the_control_groups(root)])


def _of_the_process() -> Iterator[int]:
    """Yield the bytes left by a limit of the address space (`ulimit -v`), if there is one."""
    if psutil.LINUX:
        process = psutil.Process()
        limit, _ = process.rlimit(psutil.RLIMIT_AS)
        if limit != psutil.RLIM_INFINITY:
            yield max(0, limit - process.memory_info().vms)


def _of_the_control_groups(root: Path) -> Iterator[int]:
    """Yield the bytes left by the limit of each control group of this process, up to the outermost visible.

    In a container the outer groups may have names without directories.
    """
    for line in _lines(root / "proc/self/cgroup"):
        _, controllers, name = line.split(":", 2)
        if controllers and "memory" not in controllers.split(","):
            continue
        below, limit, taken, cache = _LEGACY if controllers else _UNIFIED
        top = root / "sys/fs/cgroup" / below
        group = top / name.strip("/")
        for directory in (group, *group.parents):
            limits = "".join(_lines(directory / limit))
            stat = dict(each.split() for each in _lines(directory / "memory.stat"))
            if limits.isdigit():  # not "max"
                yield int(limits) - int("".join(_lines(directory / taken))) + int(stat[cache])
            if directory == top:
                break


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text(encoding="ascii").splitlines()
    except OSError:
        return []
