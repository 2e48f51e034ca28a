"""How much memory training takes at most: on the GPU, or of all processes of a group together."""

import multiprocessing
import os
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import torch

_MIB = 1 << 20
_SHORTEST_PAUSE = 0.005  # seconds between two looks


@dataclass
class PeakMemory:
    """The most that was seen, and how; None where this system does not say."""

    mib: float | None = None
    counted: str = "not known on this system"


@contextmanager
def peak_memory(device: torch.device) -> Iterator[PeakMemory]:
    """Watch while the block runs; the result is complete when it ends, with what is there then.

    On a GPU it is what the allocator has given out at most. Where Linux tells how the pages of a process are
    shared (`smaps_rollup`, since 4.14), it is the sum over this process and those that it started, a page of
    n processes counting 1/n in each; a thread looks all the time and says at once what it sees, which costs
    the watched work some time. Elsewhere it is this process's largest resident size since it began.
    """
    peak = PeakMemory()
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
        yield peak
        peak.mib = torch.cuda.max_memory_allocated(device) / _MIB
        peak.counted = "allocated on the GPU"
    elif _proportional_size(os.getpid()):
        with _watched(peak):
            yield peak
    else:
        yield peak
        _note_resident(peak)


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
            peak.mib = max(peak.mib or 0.0, sum(map(_proportional_size, processes)) / _MIB)
            over.wait(max(_SHORTEST_PAUSE, time.perf_counter() - begun))

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def _proportional_size(process: int) -> int:
    """Bytes that are resident, a page that n processes share as 1/n; 0 where that is not told."""
    try:
        lines = Path(f"/proc/{process}/smaps_rollup").read_text(encoding="ascii").splitlines()
    except OSError:
        return 0
    return 1024 * sum(int(line.split()[1]) for line in lines if line.startswith("Pss:"))


def _note_resident(peak: PeakMemory) -> None:
    try:
        import resource
    except ImportError:  # Windows
        return
    largest = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    peak.mib = largest / _MIB if sys.platform == "darwin" else largest / 1024
    peak.counted = "resident in the first process, since it began"
