"""What workers do in tests/unit/runtime/test_workers.py; nothing heavy is imported."""

import os
import signal
import sys
from multiprocessing.connection import Connection
from typing import Any


def answer(pipe: "Connection[Any, Any]", payload: bytes, number: int) -> None:
    blocked = signal.SIGTERM in signal.pthread_sigmask(signal.SIG_BLOCK, ())
    pipe.send((len(payload), number, blocked, hasattr(sys.modules["__main__"], "IS_THE_SCRIPT")))


def die(pipe: "Connection[Any, Any]", payload: bytes) -> None:
    os.kill(os.getpid(), signal.SIGKILL)
