"""Worker processes: started without running the main module of this process again.

multiprocessing's `spawn` runs the script that started it in each new process. A script that trains, and has
no `if __name__ == "__main__":`, would train there too; stdin has no file to run. Here a worker is a new
Python with the modules that it imports itself, on every operating system.
"""

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from multiprocessing import get_context, resource_tracker
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnProcess
from types import ModuleType
from typing import Any

SIGNALS = (signal.SIGINT, signal.SIGTERM)

Worker = tuple[SpawnProcess, "Connection[Any, Any]"]

_HIDING = threading.RLock()


def has_other_ranks() -> bool:
    """Return whether torchrun started this process, together with others."""
    return os.environ.get("WORLD_SIZE", "1") not in ("", "0", "1")


def start_worker(run: Callable[..., None], payload: bytes, *handles: object) -> Worker:
    """Start a process that calls `run(pipe, payload, *handles)`; return it, and the other end of the pipe.

    This returns at once, even if the worker dies at once or never reads: a thread sends the payload. Signals
    to a whole process group do not reach the worker: they are blocked in it (not on Windows). `run` is a
    function of a module, and `handles` are small, such as handles of shared memory.
    """
    context = get_context("spawn")
    ours, theirs = context.Pipe()
    receiving, sending = context.Pipe(duplex=False)
    process = context.Process(target=_run, args=(run, theirs, receiving, *handles), daemon=True)
    try:
        with _blocked_signals(), without_main_module():
            process.start()
    except BaseException:
        ours.close()
        sending.close()
        raise
    finally:
        for end in (theirs, receiving):  # or they would not be closed when the worker ends
            end.close()
    threading.Thread(target=_send, args=(sending, payload), daemon=True).start()
    return process, ours


def _send(pipe: "Connection[Any, Any]", payload: bytes) -> None:
    with pipe, suppress(OSError):  # the worker has died, which the owner of the other pipe notices
        pipe.send_bytes(payload)


def _run(
    run: Callable[..., None], pipe: "Connection[Any, Any]", payload: "Connection[Any, Any]", *handles: object
) -> None:
    with payload, suppress(EOFError, OSError):  # the process that started this one is gone
        received = payload.recv_bytes()
        run(pipe, received, *handles)


@contextmanager
def without_main_module() -> Iterator[None]:
    """Hide the main module from multiprocessing while it starts processes in the block."""
    with _HIDING:
        main = sys.modules["__main__"]
        sys.modules["__main__"] = ModuleType("__main__")
        try:
            yield
        finally:
            sys.modules["__main__"] = main


@contextmanager
def _blocked_signals() -> Iterator[None]:
    """Block signals inside the block, and in processes started in it (not on Windows)."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    resource_tracker.ensure_running()  # multiprocessing would start it in the block, and unblock the signals
    before = signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
