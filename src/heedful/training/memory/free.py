"""How much memory may still be taken: of a GPU, or of the machine and what it allows this process."""

from collections.abc import Iterator
from pathlib import Path

import psutil
import torch

# Below /sys/fs/cgroup: where version 2 and version 1 of Linux's control groups keep the limit, what is taken,
# and how much of that is file cache which the system would give back. Kernel documentation, cgroup-v2.rst and
# cgroup-v1/memory.rst.
_UNIFIED = "", "memory.max", "memory.current", "inactive_file"
_LEGACY = "memory", "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"


def free_memory(device: torch.device, *, root: Path = Path("/")) -> int:
    """Return how many bytes can still be taken.

    Args:
        device: a GPU, of which what torch holds in reserve counts as free; or a CPU.
        root: of the file system that has the limits of control groups.
    """
    if device.type == "cuda":
        free, _ = torch.cuda.mem_get_info(device)
        return free + torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
    available = int(psutil.virtual_memory().available)  # with caches that can be given back
    return min([available, *_of_the_process(), *_of_the_control_groups(root)])


def _of_the_process() -> Iterator[int]:
    """Yield what a limit of the address space (`ulimit -v`) leaves, where there is one."""
    if psutil.LINUX:
        process = psutil.Process()
        limit, _ = process.rlimit(psutil.RLIMIT_AS)
        if limit != psutil.RLIM_INFINITY:
            yield max(0, limit - process.memory_info().vms)


def _of_the_control_groups(root: Path) -> Iterator[int]:
    """Yield what the limit of each group of this process leaves, up to the outermost that can be seen.

    In a container the names of the outer groups may be there without their directories.
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
