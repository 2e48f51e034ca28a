"""Runs `heedful` many times, each in a fork of a process that has imported everything, and strikes it.

A moment of a run is the n-th call of a function, Python's or C's, in one of its phases: so faults can be
spread evenly over all that a run does, and come back exactly. It reads one task a line, as JSON, and answers
each with the exit code. `faults.py` is the other side.
"""

import atexit
import ctypes
import importlib
import json
import multiprocessing
import multiprocessing.forkserver
import os
import resource
import signal
import sys
import traceback
from collections import Counter
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, NoReturn

from heedful.cli.main import main
from heedful.runtime import workers
from heedful.runtime.durable import replace_directory
from heedful.storage.bundle import save_bundle
from heedful.tasks import train
from heedful.tasks.directory import RunDirectory
from heedful.training.checkpoint import prune_checkpoints, save_checkpoint
from heedful.training.events import EventLog
from heedful.training.loop import Trainer, step_plans
from heedful.training.parallel.process_group import SingleProcess
from heedful.training.validation import Validation

PHASES: dict[CodeType, str] = {
    RunDirectory.start.__code__: "beginning",
    step_plans.__code__: "step",
    SingleProcess.step.__code__: "step",
    Validation.validate.__code__: "validation",
    save_checkpoint.__code__: "checkpoint",
    replace_directory.__code__: "renaming",
    prune_checkpoints.__code__: "pruning",
    save_bundle.__code__: "bundle",
    EventLog.__call__.__code__: "log",
    Trainer._finish.__code__: "finishing",
    train._resume.__code__: "resumption",
}
LOADED_LATER = (
    "heedful.cli.progress",
    "heedful.tasks.display",
    "heedful.evaluation.metrics",
    "heedful.training.parallel.shared_memory",
    "heedful.verbs.train",
    "torch._dynamo",
    "torch._prims_common.wrappers",
    "torch.optim.adam",
    "torch.optim.adamw",
)
_DAC_OVERRIDE, _DAC_READ_SEARCH = 1, 2  # capabilities, linux/capability.h
_CAPABILITY_VERSION = 0x20080522
_NEW_MOUNTS, _READ_ONLY, _PRIVATE = 0x20000, 1, 0x44000  # sched.h, sys/mount.h


class Strikes:
    """A profile function that counts calls, and sends the planned signals one after the other."""

    def __init__(self, planned: list[dict[str, Any]], report: Path) -> None:
        self.planned = planned
        self.counts: Counter[str] = Counter()
        self._since = 0  # the last strike
        self._inside: list[tuple[FrameType, str]] = []
        self._report = report

    def __call__(self, frame: FrameType, event: str, _: object) -> None:
        if event == "call":
            phase = PHASES.get(frame.f_code)
            if phase:
                self._inside.append((frame, phase))
        elif event == "return":
            if self._inside and self._inside[-1][0] is frame:
                self._inside.pop()
            return
        elif event != "c_call":
            return
        phase = self._inside[-1][1] if self._inside else "between"
        self.counts[phase] += 1
        self._since += 1
        while self.planned and self._is_due(self.planned[0], phase):
            self._strike(self.planned.pop(0), phase)
            if not self.planned:
                sys.setprofile(None)

    def _is_due(self, strike: dict[str, Any], phase: str) -> bool:
        if "after" in strike:
            return bool(self._since >= strike["after"])
        return bool(strike["phase"] == phase and self.counts[phase] >= strike["at"])

    def _strike(self, strike: dict[str, Any], phase: str) -> None:
        self._since = 0
        with self._report.open("a", encoding="utf-8") as file:
            file.write(f"{phase} {self.counts[phase]} {strike['signal']}\n")
        if strike.get("whom") == "worker":
            for process in multiprocessing.active_children():
                assert process.pid is not None
                os.kill(process.pid, strike["signal"])
        else:
            os.kill(os.getpid(), strike["signal"])


def prepare(setting: str, value: Any) -> None:  # noqa: ANN401
    """Make the world of a child worse."""
    if setting == "file_size":
        resource.setrlimit(resource.RLIMIT_FSIZE, (value, value))
    elif setting == "address_space":  # so many bytes more than are taken
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
        limit = pages * resource.getpagesize() + value
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    elif setting == "closed":  # a stream that nobody reads
        reading, writing = os.pipe()
        os.dup2(writing, value)
        os.close(reading)
        os.close(writing)
    elif setting == "permissions":  # those of files count, as they do for who is not root
        _drop_capabilities(_DAC_OVERRIDE, _DAC_READ_SEARCH)
    elif setting == "no_shared_memory":
        _mount_nothing_writable(Path("/dev/shm"))
    else:
        raise ValueError(setting)


def _drop_capabilities(*dropped: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    header = (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION, 0)
    data = (ctypes.c_uint32 * 6)()  # effective, permitted, inheritable; low bits, then high ones
    if libc.capget(header, data):
        raise OSError(ctypes.get_errno(), "capget")
    for capability in dropped:
        data[0] &= ~(1 << capability)
    if libc.capset(header, data):
        raise OSError(ctypes.get_errno(), "capset")


def _mount_nothing_writable(path: Path) -> None:
    """For this process and its children alone."""
    libc = ctypes.CDLL(None, use_errno=True)
    failed = (
        libc.unshare(_NEW_MOUNTS)
        or libc.mount(None, b"/", None, _PRIVATE, None)
        or libc.mount(b"none", os.fsencode(path), b"tmpfs", _READ_ONLY, None)
    )
    if failed:
        raise OSError(ctypes.get_errno(), "mount")


def run(task: dict[str, Any]) -> int:
    """What a child does; returns its exit code."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for stream, flags in ((0, os.O_RDONLY), (1, os.O_WRONLY | os.O_CREAT), (2, os.O_WRONLY | os.O_CREAT)):
        descriptor = os.open(task["streams"][stream], flags)
        os.dup2(descriptor, stream)
        os.close(descriptor)
    for setting, value in task["world"].items():
        prepare(setting, value)
    # Workers are forks of a process that has imported everything too; the command would start new Pythons.
    if not task["spawn"]:
        workers.get_context = lambda _: multiprocessing.get_context("forkserver")
        multiprocessing.forkserver._forkserver.ensure_running = lambda: None  # type: ignore[method-assign]
    sys.argv = ["heedful", *task["arguments"]]
    strikes = Strikes(task["strikes"], Path(task["report"]))
    if task["strikes"] or task["counted"]:
        sys.setprofile(strikes)
    try:
        main()
    except SystemExit as end:
        return int(end.code or 0)
    except BaseException:
        traceback.print_exc()
        return 1
    finally:
        sys.setprofile(None)
        if "file_size" not in task["world"]:
            Path(task["counts"]).write_text(json.dumps(strikes.counts), encoding="utf-8")
    return 0


def serve() -> None:
    for name in LOADED_LATER:
        importlib.import_module(name)
    multiprocessing.set_forkserver_preload(["torch", *LOADED_LATER])
    multiprocessing.forkserver.ensure_running()
    answer("ready")
    for line in sys.stdin:
        child = os.fork()
        if child == 0:
            leave(run(json.loads(line)))
        _, status = os.waitpid(child, 0)
        answer(str(os.waitstatus_to_exitcode(status)))


def leave(code: int) -> NoReturn:
    """End as Python ends a program, but do not take a second to free what was imported."""
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            code = 120  # as Python says it
    os._exit(code)


def answer(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    serve()
