"""Peak memory: of the GPU, or of this process and its children."""

import multiprocessing
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import psutil

if TYPE_CHECKING:
    import torch

_MIB = 1 << 20
_SHORTEST_PAUSE = 0.005  # seconds between two samples


@dataclass
class PeakMemory:
    """Peak memory, and what was measured; None before the first sample."""

    mib: float | None = None
    counted: str = ""


@contextmanager
def peak_memory(device: "torch.device | str") -> Iterator[PeakMemory]:
    """Measure the peak memory of the block; the result is final when the block ends.

    On a GPU it is the peak of torch's allocator. On a CPU it is the resident memory of this process and its
    children, sampled by a thread, which slows the block down; on Linux a page shared by n processes counts
    1/n in each.
    """
    peak = PeakMemory()
    if str(device).startswith("cuda"):
        import torch

        torch.cuda.reset_peak_memory_stats(device)
        yield peak
        peak.mib = torch.cuda.max_memory_allocated(device) / _MIB
        peak.counted = "allocated on the GPU"
    else:
        with _watched(peak):
            yield peak


@contextmanager
def _watched(peak: PeakMemory) -> Iterator[None]:
    processes = [os.getpid(), *(child.pid for child in multiprocessing.active_children() if child.pid)]
    over = threading.Event()
    peak.counted = f"resident in {len(processes)} process{'es' if len(processes) > 1 else ''}"

    def watch() -> None:
        is_last = False
        while not is_last:
            is_last = over.is_set()  # one sample comes after the end, however rarely this thread ran
            start = time.perf_counter()
            peak.mib = max(peak.mib or 0.0, sum(map(_resident, processes)) / _MIB)
            over.wait(max(_SHORTEST_PAUSE, time.perf_counter() - start))

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def _resident(process: int) -> int:
    """Return the resident bytes of a process (on Linux, its proportional share), 0 if it has ended."""
    try:
        if psutil.LINUX:
            memory = psutil.Process(process).memory_full_info()
            return int(getattr(memory, "pss", memory.rss))
        return int(psutil.Process(process).memory_info().rss)
    except psutil.Error:
        return 0
