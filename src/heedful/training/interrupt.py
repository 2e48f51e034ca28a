"""Signals, which are handled between micro-batches, and ranks of torchrun that die or hang.

Terminals and schedulers send SIGINT and SIGTERM to all processes of a training; rank 0 alone acts on them. A
rank that is killed closes its connections, but one that hangs does not: `Heartbeat` notices both, and names
the rank.
"""

import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from enum import IntEnum
from types import FrameType
from typing import TYPE_CHECKING

from heedful.runtime.workers import SIGNALS

if TYPE_CHECKING:
    from torch._C._distributed_c10d import Store


@contextmanager
def caught_signals() -> Iterator[Callable[[], signal.Signals | None]]:
    """Yield a function that returns the first signal, or None; a second signal raises KeyboardInterrupt.

    Only the main thread receives signals; in another thread the function always returns None.
    """
    caught: list[signal.Signals] = []

    def catch(number: int, _: FrameType | None) -> None:
        if caught:
            raise KeyboardInterrupt
        caught.append(signal.Signals(number))

    with _handled_by(catch):
        yield lambda: caught[0] if caught else None


@contextmanager
def ignore_signals() -> Iterator[None]:
    """Ignore signals in a worker: rank 0 gets them too, and needs the worker for its last step."""
    with _handled_by(signal.SIG_IGN):
        yield


@contextmanager
def _handled_by(handler: Callable[[int, FrameType | None], None] | signal.Handlers) -> Iterator[None]:
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, handler) for number in SIGNALS}
    try:
        yield
    finally:
        for number, old in before.items():
            signal.signal(number, old)


class Phase(IntEnum):
    """How far a rank is in a step."""

    FORWARD = 1
    BACKWARD = 2  # which waits for the gradients of the other ranks
    UPDATE = 3
    DONE = 4  # and what comes between steps: validations and checkpoints of rank 0


_BEAT = 1.0  # seconds; all below are beats
_SILENCE = 20  # without a sign of a rank: it is stopped, or its host is unreachable
_SILENCE_AFTER_AN_ERROR = 4  # the same, if a connection has been closed
_FIRST_STEP = 600  # without progress of any rank in its first step, which may compile
_STANDSTILL = 30  # the same in other steps, at least
_STEPS_OF_STANDSTILL = 4.0  # the same, in times the longest step so far
_GRACE = 5  # for the main thread to report a lost rank itself
_FAILED = "failed"
_REMEDY = "torchrun --max-restarts, or --resume, continues from the last checkpoint"


class Heartbeat:
    """Publishes each second how far this rank is, and notices ranks that die or hang.

    Rank 0 watches all ranks, and the others watch rank 0. Time is counted in beats of the watching
    process, so a job that is stopped as a whole and continued loses no rank. A main thread that waits in a
    collective operation cannot raise an exception; after a few seconds its process is ended.

    Attributes:
        lost: a message about the rank that was lost, or None.
        is_waiting: whether the main thread may be waiting for other ranks.
    """

    def __init__(self, store: "Store", rank: int, size: int) -> None:
        """Start to publish and to watch, over a store that only the ranks of this group share."""
        self.lost: str | None = None
        self.is_waiting = False
        self._store, self._rank = store, rank
        self._watched = [*range(size)] if rank == 0 else [0]
        self._step, self._phase, self._began, self._longest = 0, Phase.DONE, 0.0, 0.0
        self._signs: dict[int, str] = {}
        self._silent = dict.fromkeys(self._watched, 0)
        self._silence, self._standstill, self._since_lost = _SILENCE, 0, 0
        self._is_reported = False
        store.set(f"{rank} is", f"{socket.gethostname()}, process {os.getpid()}")
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="heartbeat", daemon=True)
        self._thread.start()

    def enter(self, phase: Phase, *, step: int | None = None) -> None:
        """Note that this rank has come to a phase of its step, or of another one."""
        if step is not None:
            self._step, self._began = step, time.monotonic()
        elif phase == Phase.DONE:
            self._longest = max(self._longest, time.monotonic() - self._began)
        self._phase = phase

    def end(self, *, failed: bool = False) -> None:
        """Stop; if this rank has failed, and says why itself, let the others end too."""
        self._stop.set()
        self._thread.join()
        if failed:
            with suppress(RuntimeError):  # the host of the store may be gone
                self._store.set(str(self._rank), _FAILED)

    def explain(self) -> str | None:
        """Return which rank was lost, after a connection has been closed; None if all are there."""
        self._silence = _SILENCE_AFTER_AN_ERROR
        for _ in range(_SILENCE):
            if self.lost is not None:
                break
            time.sleep(_BEAT)
        return self.lost

    @property
    def is_reporter(self) -> bool:
        """Whether this rank reports a lost one: rank 0, and in its place rank 1 and one on each host."""
        return not self._is_reported and (self._rank <= 1 or os.environ.get("LOCAL_RANK", "0") == "0")

    def _run(self) -> None:
        beat = 0
        while not self._stop.wait(_BEAT):
            beat += 1
            try:
                self._store.set(str(self._rank), f"{beat} {self._step} {self._phase.value}")
                self._look()
            except RuntimeError:
                if self.lost is None:
                    self.lost = f"the host of torchrun's store does not answer any more; {_REMEDY}"
            if self.lost is not None:
                self._since_lost += 1
            if self._since_lost > _GRACE and self.is_waiting:
                self._end_process()

    def _look(self) -> None:
        """Compare the signs of the watched ranks with the last beat."""
        keys = [str(rank) for rank in self._watched]
        if self.lost is not None or not self._store.check(keys):
            return
        signs = dict(zip(self._watched, (sign.decode() for sign in self._store.multi_get(keys)), strict=True))
        for rank, sign in signs.items():
            self._silent[rank] = self._silent[rank] + 1 if sign == self._signs.get(rank) else 0
        before, self._signs = self._signs, signs
        if failed := [rank for rank, sign in signs.items() if sign == _FAILED]:
            self._is_reported = self._rank > 0
            self.lost = f"{self._names(failed)} ended with an error of its own; {_REMEDY}"
        elif max(self._silent.values()) >= self._silence:
            ranks = [rank for rank, beats in self._silent.items() if beats >= self._silence]
            how = f"gave no sign for {self._silence:.0f} seconds (stopped, or its host unreachable?)"
            if self._silence < _SILENCE:
                how = "ended unexpectedly (killed, or out of memory?)"
            step, phase = _progress(signs[ranks[0]])
            when = "after" if phase == Phase.DONE else "in"
            self.lost = f"{self._names(ranks)} {how} {when} step {step}; {_REMEDY}"
        elif self._rank == 0:
            self._check_progress(before)

    def _check_progress(self, before: dict[int, str]) -> None:
        """Check that some rank makes progress, unless all are between steps."""
        at = {rank: _progress(sign) for rank, sign in self._signs.items()}
        is_still = at == {rank: _progress(sign) for rank, sign in before.items()}
        self._standstill = self._standstill + 1 if is_still else 0
        step, _ = max(at.values())
        limit = max(_STANDSTILL, _STEPS_OF_STANDSTILL * self._longest) if self._longest else _FIRST_STEP
        if self._standstill >= limit and any(phase != Phase.DONE for _, phase in at.values()):
            behind = [rank for rank, progress in at.items() if progress == min(at.values())]
            who = "all ranks wait" if len(behind) == len(at) else f"{self._names(behind)}: no progress"
            self.lost = f"{who} for {self._standstill} seconds in step {step}; {_REMEDY}"

    def _names(self, ranks: list[int]) -> str:
        names = [f"rank {rank} ({self._store.get(f'{rank} is').decode()})" for rank in ranks[:3]]
        return ", ".join(names) + (f" and {len(ranks) - 3} more" if len(ranks) > 3 else "")

    def _end_process(self) -> None:
        """End this process: its main thread waits for a rank that is lost."""
        if self.is_reporter:
            os.write(2, f"error: {self.lost}\n".encode())
        os._exit(1)


def _progress(sign: str) -> tuple[int, int]:
    """Return step and phase of what a rank has published."""
    _, step, phase = sign.split()
    return int(step), int(phase)
