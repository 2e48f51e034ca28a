"""Faults in training runs: where they strike, and a server that runs commands with them."""

import json
import os
import random
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from signal import SIGINT, SIGKILL, SIGTERM, Signals
from typing import Any, Self

SERVER = Path(__file__).with_name("fault_server.py")
ENVIRONMENT = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}


@dataclass(frozen=True)
class Strike:
    """A signal at the `at`-th call in a phase, or `after` so many calls from the strike before."""

    phase: str = ""
    at: int = 0
    after: int | None = None
    signal: Signals = SIGKILL
    whom: str = "self"

    def to_json(self) -> dict[str, object]:
        when = {"phase": self.phase, "at": self.at} if self.after is None else {"after": self.after}
        return when | {"signal": int(self.signal), "whom": self.whom}


@dataclass(frozen=True)
class Ended:
    """What a command left behind."""

    code: int  # minus the number of the signal that killed it
    out: str
    err: str
    struck: list[str]
    counts: dict[str, int]  # calls in each phase; empty if it was killed


class FaultServer:
    """Runs commands, one after the other."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, str(SERVER)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | ENVIRONMENT,
        )
        assert self._answer() == "ready"

    @classmethod
    @contextmanager
    def started(cls) -> Iterator[Self]:
        server = cls()
        try:
            yield server
        finally:
            assert server._process.stdin is not None
            server._process.stdin.close()
            server._process.wait()
            assert server._process.stdout is not None
            server._process.stdout.close()

    def run(
        self,
        *arguments: object,
        strikes: Sequence[Strike] = (),
        spawn: bool = False,
        counted: bool = False,
        **world: Any,  # noqa: ANN401
    ) -> Ended:
        """Run one command in a world made worse (`fault_server.prepare`)."""
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            task = {
                "arguments": [*map(str, arguments)],
                "strikes": [strike.to_json() for strike in strikes],
                "world": world,
                "spawn": spawn,
                "counted": counted,
                "streams": [os.devnull, str(folder / "out"), str(folder / "err")],
                "report": str(folder / "report"),
                "counts": str(folder / "counts"),
            }
            assert self._process.stdin is not None
            self._process.stdin.write(f"{json.dumps(task)}\n")
            self._process.stdin.flush()
            code = int(self._answer())
            counts = json.loads(_text(folder / "counts") or "{}")
            struck = _text(folder / "report").splitlines()
            return Ended(code, _text(folder / "out"), _text(folder / "err"), struck, counts)

    def _answer(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""


PHASES = (
    "step",
    "validation",
    "checkpoint",
    "renaming",
    "bundle",
    "pruning",
    "log",
    "finishing",
    "beginning",
)


def plan_strikes(seed: int, counts: dict[str, int], *, processes: int) -> list[Strike]:
    """What happens to the run of that seed: mostly killed, else asked to stop, once or twice, or robbed."""
    rng = random.Random(f"strikes {seed}")
    phase = PHASES[seed % len(PHASES)]
    at = rng.randint(1, counts[phase])
    how = rng.choice(["kill", "kill", "kill", "term", "term", "twice", "int"])
    if how == "kill" and processes > 1 and rng.random() < 0.4:
        return [Strike(phase, at, whom="worker")]
    if how == "kill":
        return [Strike(phase, at)]
    first = Strike(phase, at, signal=SIGINT if how == "int" else SIGTERM)
    if how != "twice":
        return [first]
    return [first, Strike(after=rng.randint(1, 3000), signal=rng.choice([SIGTERM, SIGINT]))]
