"""Plan how long the demo trains on this machine, and which scores to expect."""

import math
import tempfile
import time
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from statistics import median

from heedful.settings.run import Config
from heedful.training.averaging import MovingAverage
from heedful.training.optimizer import build_optimizer
from heedful.training.parallel.choice import start_process_group
from heedful.training.parallel.process_group import StepPlan
from heedful.workflows.material import Notes, prepare
from heedful.workflows.run_directory import RunDirectory

_WARM_UP_STEPS, _TIMED_STEPS = 2, 4
_OTHER_STEPS = 60  # steps in the time of everything else: tokenizer, validation, scores, the image

# BLEU on seen and on unseen combinations after that number of steps, measured: docs/results.md.
_BLEU_AFTER = {
    0: (0.0, 0.0),
    300: (73.3, 62.8),
    600: (96.1, 93.3),
    900: (98.2, 96.8),
}
_ENOUGH_STEPS = max(_BLEU_AFTER)


@dataclass(frozen=True)
class Plan:
    """The duration of a demo's training.

    Attributes:
        seconds_per_step: on this machine.
        steps: the maximum; None: only the time is limited.
        seconds: the maximum time.
    """

    seconds_per_step: float
    steps: int | None
    seconds: float

    @property
    def limits(self) -> dict[str, float | None]:
        """The limits as settings of `TrainConfig`."""
        return {"max_steps": self.steps, "max_minutes": self.seconds / 60.0}

    @property
    def expected_steps(self) -> int:
        """The probable number of steps."""
        fitting = max(1, int(self.seconds / self.seconds_per_step))
        return fitting if self.steps is None else min(self.steps, fitting)

    @property
    def expected_bleu(self) -> tuple[float, float]:
        """BLEU on seen and on unseen combinations, interpolated between those measured."""
        for (before, low), (after, high) in pairwise(_BLEU_AFTER.items()):
            if self.expected_steps <= after:
                share = (self.expected_steps - before) / (after - before)
                seen, unseen = (a + share * (b - a) for a, b in zip(low, high, strict=True))
                return seen, unseen
        return _BLEU_AFTER[_ENOUGH_STEPS]

    @property
    def message(self) -> str:
        """Return the notice shown before training starts: steps, time and expected BLEU."""
        steps, (seen, unseen) = self.expected_steps, self.expected_bleu
        said = (
            f"this machine takes about {self.seconds_per_step:.2g} s a step: {steps:,} steps in about "
            f"{steps * self.seconds_per_step:.0f} s of training; expect a BLEU of about {seen:.0f} on seen "
            f"and {unseen:.0f} on unseen combinations"
        )
        if steps >= _ENOUGH_STEPS:
            return said
        minutes = math.ceil(_ENOUGH_STEPS * self.seconds_per_step / 60.0)
        return f"{said}; with --max-minutes {minutes}, of {_BLEU_AFTER[_ENOUGH_STEPS][0]:.0f}"


def plan_training(seconds_per_step: float, *, seconds: float) -> Plan:
    """Return the plan of a demo with that many seconds left: enough steps, or as many as fit."""
    return Plan(seconds_per_step, _ENOUGH_STEPS, max(1.0, seconds - _OTHER_STEPS * seconds_per_step))


def time_steps(config: Config, pairs: Sequence[tuple[str, str]]) -> float:
    """Return the seconds of one training step, timed over a few steps.

    Args:
        config: of the training; its data are not read.
        pairs: some of its sentence pairs, enough for its vocabulary.
    """
    with tempfile.TemporaryDirectory(prefix="heedful-demo-") as temporary:
        directory = Path(temporary)
        files = {name: str(directory / name) for name in ("src", "tgt")}
        for path, lines in zip(files.values(), zip(*pairs, strict=True), strict=True):
            Path(path).write_text("\n".join(lines), encoding="utf-8", newline="\n")
        config = config.replace(data=files | {"cache_dir": temporary})
        material = prepare(config, RunDirectory(directory), Notes([]), resume=False)
        model, config = material.model, material.config
        optimizer = build_optimizer(model, config.optimizer, precision=material.execution.precision)
        average = MovingAverage(model, config.train.ema_decay) if config.train.ema_decay else None
        seconds = []
        with closing(
            start_process_group(model, material.source, config, material.execution, optimizer, average)
        ) as group:
            for number in range(1, _WARM_UP_STEPS + _TIMED_STEPS + 1):
                start = time.monotonic()
                group.step(StepPlan(number, ((0, number),), 0.0))
                seconds.append(time.monotonic() - start)
    return median(seconds[_WARM_UP_STEPS:])
