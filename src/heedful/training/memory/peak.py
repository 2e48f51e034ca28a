"""How much memory training takes at most: on the GPU, or of all processes of a group together."""

import multiprocessing
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import psutil
import torch

_MIB = 1 << 20
_SHORTEST_PAUSE = 0.005  # seconds between two looks


@dataclass
class PeakMemory:
    """The most that was seen, and how; None before the first look."""

    mib: float | None = None
    counted: str = ""


@contextmanager
def peak_memory(device: torch.device) -> Iterator[PeakMemory]:
    """Watch while the block runs; the result is complete when it ends, with what is there then.

    On a GPU it is what the allocator has given out at most. On a CPU it is the resident memory of this
    process and those that it started; on Linux, a page of n processes counts 1/n in each. A thread looks all
    the time and says at once what it sees, which costs the watched work some time.
    """
    peak = PeakMemory()
    if device.type == "cuda":
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
            is_last = over.is_set()  # one look comes after the end, however seldom this thread had its turn
            begun = time.perf_counter()
            peak.mib = max(peak.mib or 0.0, sum(map(_resident, processes)) / _MIB)
            over.wait(max(_SHORTEST_PAUSE, time.perf_counter() - begun))

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def _resident(process: int) -> int:
    """Return the resident bytes of a process, 0 where it has ended.

    On Linux a page that n processes share counts as 1/n.
    """
    try:
        if psutil.LINUX:
            memory = psutil.Process(process).memory_full_info()
            return int(getattr(memory, "pss", memory.rss))
        return int(psutil.Process(process).memory_info().rss)
    except psutil.Error:
        return 0
