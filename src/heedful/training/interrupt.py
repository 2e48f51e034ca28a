"""Ctrl-C and termination, so that they never fall into the middle of a step."""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


@contextmanager
def signals_noted() -> Iterator[Callable[[], bool]]:
    """Give a function that says whether the process was asked to stop; a second Ctrl-C stops it at once.

    Only a program's main thread receives signals; in another one the function always says no.
    """
    noted: list[int] = []

    def note(number: int, _: FrameType | None) -> None:
        if noted and number == signal.SIGINT:
            raise KeyboardInterrupt
        noted.append(number)

    if threading.current_thread() is not threading.main_thread():
        yield lambda: False
        return
    before = {number: signal.signal(number, note) for number in _SIGNALS}
    try:
        yield lambda: bool(noted)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
