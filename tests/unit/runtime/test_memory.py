"""Peak memory: of what is taken while it is watched, in this process and others."""

import multiprocessing
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from heedful.runtime.memory import PeakMemory, peak_memory

TOLD = Path("/proc/self/smaps_rollup").exists()


def watched(work: Callable[[PeakMemory], object]) -> float:
    with peak_memory("cpu") as peak:
        kept = work(peak)
    del kept
    assert peak.mib is not None
    return peak.mib


def assert_seen(mib: int, work: Callable[[PeakMemory, float], object]) -> None:
    """Watch some work, which takes so much memory more than nothing; again where others changed that.

    A page counts in part where other programs have it too: if one starts or ends meanwhile, all counts
    change.
    """
    for _ in range(20):
        nothing = watched(lambda _: None)
        some = watched(lambda peak: work(peak, nothing))  # noqa: B023
        if not TOLD or abs(watched(lambda _: None) - nothing) < 0.05 * mib:
            break
    assert 0.9 * mib < some - nothing < 1.5 * mib


def test_memory_taken_while_it_is_watched_is_seen() -> None:
    """What is there at the end is, even if the thread that watches had no turn before."""
    assert_seen(200, lambda *_: torch.ones(200 << 20, dtype=torch.uint8))


@pytest.mark.skipif(not TOLD, reason="needs Linux")
def test_memory_that_is_given_back_before_the_end_is_seen() -> None:
    def take_and_give_back(peak: PeakMemory, nothing: float) -> None:
        block = torch.ones(200 << 20, dtype=torch.uint8)
        end = time.monotonic() + 20
        while (peak.mib or 0.0) - nothing < 0.9 * 200 and time.monotonic() < end:
            time.sleep(0.01)
        del block

    assert_seen(200, take_and_give_back)


@pytest.mark.slow
@pytest.mark.skipif(not TOLD, reason="needs Linux")
def test_memory_of_other_processes_counts() -> None:
    with peak_memory("cpu") as alone:
        pass
    process = multiprocessing.get_context("spawn").Process(target=time.sleep, args=(60,), daemon=True)
    process.start()
    try:
        with peak_memory("cpu") as together:
            time.sleep(1.0)
    finally:
        process.terminate()
        process.join()
    assert together.counted == "resident in 2 processes"
    assert alone.mib is not None
    assert together.mib is not None
    assert together.mib > alone.mib
