"""Memory of training: how much is free, and the largest batch that fits.

For `batch.tokens = "auto"` a step runs on a few small batches of the longest sentences. Memory grows linearly
with the tokens of a batch, so the need of larger ones is extrapolated: no batch is tried that does not fit.
"""

import gc
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil
import torch
import torch.distributed as dist

from heedful.data.batches import Batch
from heedful.errors import ConfigError
from heedful.model.transformer import Transformer
from heedful.runtime.memory import peak_memory
from heedful.runtime.native import call_libc
from heedful.settings.run import Config
from heedful.training.execution import Execution
from heedful.training.optimizer import trained_weights
from heedful.training.parallel.choice import process_group_size
from heedful.training.parallel.torchrun import is_under_torchrun
from heedful.training.step import accumulate_gradients, measure_nll

_MIB = 1 << 20

# Files below /sys/fs/cgroup, for version 2 and version 1 of Linux's control groups: the limit, the usage, and
# the file cache in that usage that can be reclaimed. Kernel documentation, cgroup-v2.rst and
# cgroup-v1/memory.rst.
_UNIFIED = "", "memory.max", "memory.current", "inactive_file"
_LEGACY = "memory", "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"


def free_memory(device: torch.device, *, root: Path = Path("/")) -> int:
    """Return the bytes that can still be allocated.

    On a GPU, torch's unused reserve counts as free. `root` is the file system with the limits of control
    groups.
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


# What oneDNN and glibc read from the environment when a process starts; numbers of the latter in malloc.h.
_SETTINGS = {
    "ONEDNN_PRIMITIVE_CACHE_CAPACITY": (40, None),  # compiled matrix multiplications; its default is 1,024
    "MALLOC_MMAP_THRESHOLD_": (1 << 30, -3),  # bytes
    "MALLOC_TRIM_THRESHOLD_": (2**31 - 1, -1),
}
_AFTERWARDS = {-3: 32 << 20, -1: 64 << 20}  # where glibc's own adaptation ends, which settings switch off


@contextmanager
def memory_for_steps() -> Iterator[None]:
    """Set up the memory of this process, and of those started in the block, for many similar steps.

    oneDNN compiles a matrix multiplication for each shape and would keep a thousand, 60 to 80 MiB after
    forty steps of tiny or small; fewer cost no speed. glibc keeps freed memory for the next step; otherwise
    it returns large blocks to the system, which clears them again (docs/log.md). Variables that the user
    has set stay. After the block, Python's garbage collector again searches what `Trainer` had it leave out.
    """
    ours = {name: setting for name, setting in _SETTINGS.items() if name not in os.environ}
    for name, (value, number) in ours.items():
        os.environ[name] = str(value)
        if number is not None:
            call_libc("mallopt", number, value)
    try:
        yield
    finally:
        gc.unfreeze()
        for name, (_, number) in ours.items():
            os.environ.pop(name, None)
            if number is not None:
                call_libc("mallopt", number, _AFTERWARDS[number])
        call_libc("malloc_trim", 0)


MAX_TOKENS = 25_000  # 5.1
_FIRST, _ENOUGH = 512, 4096  # tokens of the smallest and the largest batch that is tried

# The memory of a long run beyond its first step, measured (tiny and small, 1,000 to 17,000 tokens, glibc):
# batches of varying shapes fragment the heap, to 1.5 to 2.1 times one batch, and each shape has cached
# kernels. The allocator for GPUs fragments less.
_FRAGMENTATION = {"cpu": 2.0, "cuda": 1.2}
_KERNELS = 300 * _MIB  # of each process
_PROCESS = 250 * _MIB  # without a model
_SHARE = 0.9  # of the free memory that training may use


@dataclass(frozen=True)
class Fit:
    """A batch size and the memory that it was chosen for.

    `tokens` are rows x max(src_len, tgt_len), padding included; `needed` are the bytes that training will use
    beyond those in use, `free` the bytes that were free.
    """

    tokens: int
    needed: int
    free: int

    def __str__(self) -> str:
        return (
            f"{self.tokens:,} tokens in a batch: training uses about {self.needed // _MIB:,} MiB "
            f"of the {self.free // _MIB:,} MiB that are free"
        )


def fitting_batch(
    model: Transformer,
    config: Config,
    execution: Execution,
    longest: tuple[int, int],
    *,
    free: int | None = None,
) -> Fit:
    """Return the largest micro-batch that fits into memory, at most the paper's.

    No weight or random generator changes. `longest` are S and T of a batch; `free` are the bytes of memory,
    by default what this machine or this process's GPU has free.
    """
    device = execution.device
    free = free_memory(device) if free is None else free
    ranks, sharing = _ranks(device)
    budget = int(_SHARE * free) // sharing
    fixed = _fixed_bytes(model, config)
    points = _measure(model, config, execution, longest, budget=budget - fixed)
    (few, first), (many, last) = points[0], points[-1]
    per_token = (last - first) / (many - few) if many > few else first / few
    fixed += max(0, round(first - per_token * few))
    per_token = max(1.0, _FRAGMENTATION[device.type] * per_token)
    tokens = min(MAX_TOKENS, ranks * int((budget - fixed) / per_token))
    if tokens < max(longest):
        raise ConfigError(
            f'batch.tokens="auto": training with a pair of {max(longest)} tokens needs about '
            f"{round(fixed + per_token * max(longest)) // _MIB:,} MiB, but only {budget // _MIB:,} MiB are "
            "usable; take a smaller model, or set data.max_length lower"
        )
    return Fit(tokens, round(sharing * (fixed + per_token * tokens / ranks)), free)


def _ranks(device: torch.device) -> tuple[int, int]:
    """Return how many ranks of torchrun share a batch, and how many of them share this machine's memory."""
    if not is_under_torchrun():
        return 1, 1
    return dist.get_world_size(), int(os.environ["LOCAL_WORLD_SIZE"]) if device.type == "cpu" else 1


def _fixed_bytes(model: Transformer, config: Config) -> int:
    """Return the bytes that do not depend on the batch, beyond the weights and one set of gradients."""
    trained = sum(weight.nbytes for weight in trained_weights(model).values())
    average = sum(weight.nbytes for weight in model.parameters()) if config.train.ema_decay else 0
    others = 0
    if not is_under_torchrun():
        batch = config.batch.replace(tokens=MAX_TOKENS)
        others = process_group_size(config.replace(batch=batch.model_dump()), model)[0] - 1
    return 2 * trained + average + _KERNELS + others * (trained + _PROCESS + _KERNELS)


def _measure(
    model: Transformer, config: Config, execution: Execution, longest: tuple[int, int], *, budget: int
) -> list[tuple[int, int]]:
    """Return tokens and peak bytes of batches, each twice the one before, while the next surely fits."""
    rows = max(1, _FIRST // max(longest))
    points: list[tuple[int, int]] = []
    with torch.random.fork_rng(), execution.eagerly():
        _peak_bytes(model, config, execution, _longest_batch(model, longest, rows))  # warm-up: kernels
        while not points or (points[-1][0] < _ENOUGH and 2 * points[-1][1] < budget):
            batch = _longest_batch(model, longest, rows)
            points.append((rows * max(longest), _peak_bytes(model, config, execution, batch)))
            rows *= 2
    return points


def _peak_bytes(model: Transformer, config: Config, execution: Execution, batch: Batch) -> int:
    """Return the peak memory of training and validation on a batch."""
    device = execution.device
    call_libc("malloc_trim", 0)  # or the next batch would reuse it unmeasured
    with peak_memory(device) as before:
        pass
    with peak_memory(device) as during:
        accumulate_gradients(model, [batch], config.train, precision=execution.precision)
        measure_nll(model, [batch], precision=execution.precision)
    model.zero_grad(set_to_none=True)
    model.train()
    return max(0, int(_MIB * ((during.mib or 0.0) - (before.mib or 0.0))))


def _longest_batch(model: Transformer, longest: tuple[int, int], rows: int) -> Batch:
    """Return a batch without padding."""
    src_length, tgt_length = longest
    src = torch.full((rows, src_length), int(model.config.src_pad_id == 0))
    tgt = torch.full((rows, tgt_length), int(model.config.tgt_pad_id == 0))
    return Batch(src, tgt, tgt, num_tgt_tokens=tgt.numel())
