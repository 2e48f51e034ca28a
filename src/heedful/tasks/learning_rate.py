"""Find a learning rate for a training, without the training: `heedful train --find-lr`."""

import math
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from heedful.errors import ConfigError
from heedful.runtime.threads import restored_threads
from heedful.settings.run import Config
from heedful.tasks.directory import RunDirectory
from heedful.tasks.notices import Notices
from heedful.tasks.setup import set_up_training, tested_rates
from heedful.tasks.training import Training
from heedful.training.memory import memory_for_steps
from heedful.training.range_test import RangeTest


@dataclass(frozen=True)
class FoundRate:
    """A learning rate for a training, and the range test that found it.

    `settings` give this rate, by whole keys.
    """

    test: RangeTest
    settings: dict[str, float]

    def to_json(self) -> dict[str, Any]:
        """Return the best rate, its settings, and all rates with their losses."""
        return {"rate": self.test.rate, "settings": self.settings, **asdict(self.test)}


def find_learning_rate(training: Training) -> FoundRate:
    """Return the best of several learning rates for a new model, or one to fine-tune; nothing is written."""
    config, plugged = training.config, training.with_plugged_functions()
    if plugged.schedule is not None:
        raise ConfigError(f"schedule.name={config.schedule.name}: sets the learning rate itself")
    notices, loss = Notices(training.callbacks), plugged.loss
    with restored_threads(), memory_for_steps(), tempfile.TemporaryDirectory() as directory:
        run = RunDirectory(Path(directory) / "run")
        prepared = set_up_training(config, run, notices, resume=False, loss=loss, tests_rates=False)
        test = tested_rates(prepared, notices, loss)
    return FoundRate(test, settings_for(test.rate, prepared.config))


def settings_for(peak: float, config: Config) -> dict[str, float]:
    """Return the settings with which the highest rate of a run is this one, in two digits."""
    if config.schedule.name != "paper":
        return {"schedule.peak": float(f"{peak:.2g}")}
    scale = peak * math.sqrt(config.model.d_model * config.schedule.warmup_steps)  # 5.3, equation 3
    return {"schedule.scale": float(f"{scale:.2g}")}
