"""Peak memory: of what is taken while it is watched, in this process and others."""

import multiprocessing
import os
import threading

import pytest
import torch

from heedful.runtime import memory
from heedful.runtime.memory import peak_memory

MIB = 1 << 20


def test_memory_of_a_process_is_what_it_has_taken() -> None:
    before = memory._resident(os.getpid())
    block = torch.ones(200 * MIB, dtype=torch.uint8)
    assert memory._resident(os.getpid()) - before > 0.9 * block.numel()


def test_memory_taken_at_the_end_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "_resident", lambda process: 1 * MIB)
    with peak_memory("cpu") as peak:
        monkeypatch.setattr(memory, "_resident", lambda process: 7 * MIB)
    assert (peak.mib, peak.counted) == (7, "resident in 1 process")


def test_memory_that_is_given_back_before_the_end_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    sampled = threading.Event()

    def much(process: int) -> int:
        sampled.set()
        return 7 * MIB

    monkeypatch.setattr(memory, "_resident", much)
    with peak_memory("cpu") as peak:
        assert sampled.wait(60)
        monkeypatch.setattr(memory, "_resident", lambda process: 1 * MIB)
    assert peak.mib == 7


def test_memory_of_other_processes_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    context = multiprocessing.get_context("spawn")
    over = context.Event()
    process = context.Process(target=over.wait, daemon=True)
    process.start()
    sizes = {os.getpid(): 5 * MIB, process.pid: 7 * MIB}
    monkeypatch.setattr(memory, "_resident", sizes.__getitem__)
    with peak_memory("cpu") as together:
        pass
    over.set()
    process.join()
    assert (together.mib, together.counted) == (12, "resident in 2 processes")
