"""How long the demo trains on this machine, and what may be expected of it."""

import math
import tempfile
import time
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from statistics import median

from heedful.config import Config
from heedful.training.averaging import MovingAverage
from heedful.training.optimizer import build_optimizer
from heedful.training.parallel.choice import start_process_group
from heedful.training.parallel.process_group import StepPlan
from heedful.workflows.material import Notes, prepare
from heedful.workflows.run_directory import RunDirectory

_WARM_UP_STEPS, _TIMED_STEPS = 2, 4
_OTHER_STEPS = 60  # that take as long as what is not training: tokenizer, validation, scores, the picture

# BLEU on seen and on unseen combinations after a training of so many steps, measured: docs/results.md.
_BLEU_AFTER = {
    0: (0.0, 0.0),
    300: (73.3, 62.8),
    600: (96.1, 93.3),
    900: (98.2, 96.8),
}
_ENOUGH_STEPS = max(_BLEU_AFTER)


@dataclass(frozen=True)
class Plan:
    """How long a demo trains.

    Attributes:
        seconds_per_step: on this machine.
        steps: that are enough or that fit; None: as many as there is time for.
        seconds: after which training ends in any case.
    """

    seconds_per_step: float
    steps: int | None
    seconds: float

    @property
    def limits(self) -> dict[str, float | None]:
        """The settings of the training, a part of `TrainConfig`."""
        return {"max_steps": self.steps, "max_minutes": self.seconds / 60.0}

    @property
    def expected_steps(self) -> int:
        """How many it will probably be."""
        fitting = max(1, int(self.seconds / self.seconds_per_step))
        return fitting if self.steps is None else min(self.steps, fitting)

    @property
    def expected_bleu(self) -> tuple[float, float]:
        """BLEU on seen and on unseen combinations, between those measured."""
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
    """Return the plan of a demo that has so many seconds left: enough steps, or as many as fit."""
    return Plan(seconds_per_step, _ENOUGH_STEPS, max(1.0, seconds - _OTHER_STEPS * seconds_per_step))


def time_steps(config: Config, pairs: Sequence[tuple[str, str]]) -> float:
    """Take a few steps as a training with these settings would, and return the seconds of one.

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
        optimizer = build_optimizer(model, config.optimizer)
        average = MovingAverage(model, config.train.ema_decay) if config.train.ema_decay else None
        seconds = []
        with closing(start_process_group(model, material.source, config, optimizer, average)) as group:
            for number in range(1, _WARM_UP_STEPS + _TIMED_STEPS + 1):
                begun = time.monotonic()
                group.step(StepPlan(number, ((0, number),), 0.0))
                seconds.append(time.monotonic() - begun)
    return median(seconds[_WARM_UP_STEPS:])
