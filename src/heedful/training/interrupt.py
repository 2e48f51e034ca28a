"""Signals, which are handled between micro-batches.

Terminals and schedulers send SIGINT and SIGTERM to all processes of a training; rank 0 alone acts on them.
"""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

from heedful.runtime.workers import SIGNALS


@contextmanager
def caught_signals() -> Iterator[Callable[[], signal.Signals | None]]:
    """Yield a function that returns the first signal, or None; a second signal raises KeyboardInterrupt.

    Only the main thread receives signals; in another one the function always returns None.
    """
    caught: list[signal.Signals] = []

    def catch(number: int, _: FrameType | None) -> None:
        if caught:
            raise KeyboardInterrupt
        caught.append(signal.Signals(number))

    if threading.current_thread() is not threading.main_thread():
        yield lambda: None
        return
    before = {number: signal.signal(number, catch) for number in SIGNALS}
    try:
        yield lambda: caught[0] if caught else None
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def ignore_signals() -> Iterator[None]:
    """Ignore signals in a worker: rank 0 gets them too, and needs the worker for its last step."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, signal.SIG_IGN) for number in SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
