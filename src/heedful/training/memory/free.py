"""How much memory may still be taken: of a GPU, or of the machine and what it allows this process."""

from collections.abc import Iterator
from pathlib import Path

import torch

# Below /sys/fs/cgroup: where version 2 and version 1 of Linux's control groups keep the limit, what is taken,
# and how much of that is file cache which the system would give back. Kernel documentation, cgroup-v2.rst and
# cgroup-v1/memory.rst.
_UNIFIED = "", "memory.max", "memory.current", "inactive_file"
_LEGACY = "memory", "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"


def free_memory(device: torch.device, *, root: Path = Path("/")) -> int | None:
    """Return how many bytes can still be taken; None where the system does not say.

    Args:
        device: a GPU, of which what torch holds in reserve counts as free; or a processor.
        root: of the file system that says so.
    """
    if device.type == "cuda":
        free, _ = torch.cuda.mem_get_info(device)
        return free + torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
    return min([*_of_the_machine(root), *_of_the_process(root), *_of_the_control_groups(root)], default=None)


def _of_the_machine(root: Path) -> Iterator[int]:
    for line in _lines(root / "proc/meminfo"):
        if line.startswith("MemAvailable:"):  # in KiB, with caches that can be given back
            yield 1024 * int(line.split()[1])


def _of_the_process(root: Path) -> Iterator[int]:
    """What a limit of addresses (`ulimit -v`) leaves."""
    for line in _lines(root / "proc/self/limits"):
        limit = line.removeprefix("Max address space").split()[0]
        if line.startswith("Max address space") and limit.isdigit():  # not "unlimited"
            taken = [
                each.split()[1] for each in _lines(root / "proc/self/status") if each.startswith("VmSize:")
            ]
            yield max(0, int(limit) - 1024 * int(taken[0]))


def _of_the_control_groups(root: Path) -> Iterator[int]:
    """What the limit of each group that this process is in leaves, up to the outermost that can be seen.

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
