"""Memory of training: what is free, and batches halved where it is used up."""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import psutil
import torch

from heedful.data.batches import Batch
from heedful.errors import TrainingError, is_out_of_memory

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


_CAPACITY = "40"  # kernels, in each process


def limit_onednn_cache() -> None:
    """Have oneDNN cache fewer compiled matrix multiplications than its default of a thousand.

    Each process caches one for each shape, 60 to 80 MiB after forty steps of tiny or small; fewer cost no
    speed (docs/log.md). oneDNN reads the variable once, before its first multiplication; one that the user
    has set stays.
    """
    os.environ.setdefault("ONEDNN_PRIMITIVE_CACHE_CAPACITY", _CAPACITY)


class OutOfMemoryError(Exception):
    """Memory is too small for a step with this batch."""

    def __init__(self, batch: Batch) -> None:
        super().__init__("memory is too small for a batch")
        self.batch = batch


@contextmanager
def reraise_out_of_memory(batch: Batch) -> Iterator[None]:
    """Raise all of torch's out-of-memory errors inside the block as one class.

    Raises:
        OutOfMemoryError: memory is too small for this batch.
    """
    try:
        yield
    except (RuntimeError, MemoryError) as error:
        if not is_out_of_memory(error):
            raise
        raise OutOfMemoryError(batch) from None


def halve_batches(batches: Sequence[Batch], *, like: Batch, pad_id: int) -> list[Batch]:
    """Return the same rows, with every batch at least as large as `like` split in two.

    Args:
        batches: of one step.
        like: the batch that did not fit into memory.
        pad_id: of the target.

    Raises:
        TrainingError: `like` has only one row.
    """
    if len(like) == 1:
        raise TrainingError(
            f"memory is too small for one pair of {like.src.shape[1]} and {like.tgt_out.shape[1]} tokens; "
            "lower data.max_length, or take a smaller model"
        )
    if torch.cuda.is_available():
        torch.cuda.empty_cache()  # free memory may be fragmented
    return [
        part
        for batch in batches
        for part in (_halves(batch, pad_id) if _size(batch) >= _size(like) and len(batch) > 1 else [batch])
    ]


def _size(batch: Batch) -> int:
    return batch.src.numel() + batch.tgt_out.numel()


def _halves(batch: Batch, pad_id: int) -> Iterator[Batch]:
    middle = (len(batch) + 1) // 2
    for rows in (slice(middle), slice(middle, None)):
        tgt_out = batch.tgt_out[rows]
        yield Batch(batch.src[rows], batch.tgt_in[rows], tgt_out, int((tgt_out != pad_id).sum()))
