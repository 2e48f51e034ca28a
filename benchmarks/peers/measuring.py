"""What every peer's script shares: its arguments, the clock, and the JSON line at the end."""

import argparse
import json
import platform
import resource
import sys
import time
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path

from sizes import SIZES, Size

WARM_UP_STEPS = 10
_ENDS = 10  # steps whose losses are averaged into the first and the last loss


@dataclass(frozen=True)
class Task:
    """What one script is asked to train."""

    material: Path
    preset: str
    precision: str  # float32 or bfloat16
    is_compiled: bool
    attention: str  # sdpa or eager, where the peer has both
    seconds: float
    warm_up: float

    @property
    def size(self) -> Size:
        """The sizes of the preset."""
        return SIZES[self.preset]


def parse_task(description: str) -> Task:
    """Read a peer script's command line."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--material", type=Path, required=True, help="directory that material.py filled")
    parser.add_argument("--preset", choices=sorted(SIZES), required=True)
    parser.add_argument("--precision", choices=["float32", "bfloat16"], default="float32")
    parser.add_argument("--compile", action="store_true", help="with torch.compile, where the peer can")
    parser.add_argument("--attention", choices=["sdpa", "eager"], default="sdpa", help="of Marian")
    parser.add_argument("--seconds", type=float, default=60.0, help="measured, after the warm-up")
    parser.add_argument("--warm-up", type=float, default=15.0, help="seconds, and at least 10 steps")
    given = parser.parse_args()
    return Task(
        material=given.material,
        preset=given.preset,
        precision=given.precision,
        is_compiled=given.compile,
        attention=given.attention,
        seconds=given.seconds,
        warm_up=given.warm_up,
    )


@dataclass
class Stopwatch:
    """Counts real target tokens over time, from the end of the warm-up on."""

    task: Task
    losses: list[float] = field(default_factory=list)
    tokens: int = 0
    steps: int = 0
    elapsed: float = 0.0
    _created: float = field(default_factory=time.perf_counter)
    _started: float | None = None

    def step(self, tokens: int, loss: float) -> bool:
        """Count one update that is over; returns whether it was the last.

        Args:
            tokens: target tokens of the batch, end tokens included, padding not.
            loss: mean over these tokens, label smoothing included.
        """
        now = time.perf_counter()
        self.losses.append(loss)
        if self._started is None:
            if len(self.losses) >= WARM_UP_STEPS and now - self._created >= self.task.warm_up:
                self._started = now
            return False
        self.tokens += tokens
        self.steps += 1
        self.elapsed = now - self._started
        return self.elapsed >= self.task.seconds

    def report(self, package: str, settings: str) -> None:
        """Print the JSON line; `settings` says what the peer was given beyond what all have."""
        ends = self.losses[:_ENDS], self.losses[-_ENDS:]
        line = {
            "name": package,
            "version": version(package),
            "torch": version("torch"),
            "preset": self.task.preset,
            "precision": self.task.precision,
            "compiled": self.task.is_compiled,
            "target_tokens_per_second": round(self.tokens / self.elapsed, 1),
            "peak_memory_mib": round(peak_memory_mib()),
            "steps": self.steps,
            "seconds": round(self.elapsed, 2),
            "first_loss": round(sum(ends[0]) / len(ends[0]), 3),
            "last_loss": round(sum(ends[1]) / len(ends[1]), 3),
            "settings": settings,
        }
        sys.stdout.write(json.dumps(line) + "\n")
        sys.stdout.flush()


def peak_memory_mib() -> float:
    """The most memory that this process ever had resident."""
    status = Path("/proc/self/status")
    if status.exists():  # not getrusage: that one remembers the process which started this one
        line = next(line for line in status.read_text().splitlines() if line.startswith("VmHWM"))
        return int(line.split()[1]) / 1024
    unit = 1024**2 if platform.system() == "Darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / unit
