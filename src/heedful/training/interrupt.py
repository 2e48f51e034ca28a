"""Ctrl-C and termination, so that they never fall into the middle of a step.

Terminals and schedulers send them to all processes of a training. Rank 0 alone decides what follows.
"""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


@contextmanager
def signals_noted() -> Iterator[Callable[[], signal.Signals | None]]:
    """Give a function that returns the signal that asked the process to stop, or None; a second one stops it.

    Only a program's main thread receives signals; in another one the function always returns None.
    """
    noted: list[signal.Signals] = []

    def note(number: int, _: FrameType | None) -> None:
        if noted:
            raise KeyboardInterrupt
        noted.append(signal.Signals(number))

    if threading.current_thread() is not threading.main_thread():
        yield lambda: None
        return
    before = {number: signal.signal(number, note) for number in _SIGNALS}
    try:
        yield lambda: noted[0] if noted else None
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def signals_left_to_rank_0() -> Iterator[None]:
    """Ignore signals in a worker: rank 0 gets them too, and needs the worker for its last step."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, signal.SIG_IGN) for number in _SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def signals_blocked() -> Iterator[None]:
    """Block signals inside the block; processes that are started in it get none at all.

    So no signal reaches a worker before it has come to `signals_left_to_rank_0`. Not on Windows.
    """
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
