"""A requested training, from a command line or a program: its settings, its directory, and its seeds."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from heedful.errors import ConfigError
from heedful.settings.loading import load_config
from heedful.settings.run import Config
from heedful.tasks.directory import CONFIG, check_preset
from heedful.tasks.notices import Listener
from heedful.tasks.seeds import SeedsResult, train_seeds
from heedful.tasks.train import TrainingExtras, TrainResult, train
from heedful.training.parallel.torchrun import was_started_by_this_job


@dataclass(frozen=True, kw_only=True)
class RunRequest:
    """A training, or the same training with several seeds, in a directory.

    Attributes:
        config: all settings; with several seeds, apart from the seed.
        output: the run directory, or the directory of the runs.
        seeds: train once with each seed; None: once, with `train.seed`.
        resume: continue an existing run. Finished runs of several seeds stay as they are.
        overwrite: rename what is in the directory to NAME.old-N, and start anew.
    """

    config: Config
    output: Path
    seeds: Sequence[int] | None = None
    resume: bool = False
    overwrite: bool = False

    def __post_init__(self) -> None:
        if self.resume and self.overwrite:
            raise ConfigError("give --resume to continue the run, or --overwrite to start anew, not both")

    @classmethod
    def of(
        cls,
        file: Path | None,
        output: Path | None,
        values: Sequence[tuple[str, Any]],
        *,
        preset: str | None,
        seeds: Sequence[int] | None,
        resume: bool,
        overwrite: bool,
    ) -> Self:
        """Return the request that a command line or a program describes.

        Args:
            file: a recipe; None: the run's own settings at a resumption, else the preset.
            output: the run directory; None: runs/NAME, for the file, the preset, or "base".
            values: whole keys and values of settings, which override the file.
            preset: the preset to start from.
            seeds: as the attribute.
            resume: as the attribute; a run that this job of torchrun has started is resumed, too.
            overwrite: as the attribute.
        """
        name = file.stem if file else preset or ("adapted" if "train.init" in dict(values) else "base")
        output = output or Path("runs") / name
        if (output / CONFIG).exists() and was_started_by_this_job(output):
            resume, overwrite = True, False
        if resume and file is None:
            runs = [output / f"seed-{seed}" for seed in seeds] if seeds else [output]
            file = next((run / CONFIG for run in runs if (run / CONFIG).exists()), None)
            if file is not None and preset is not None:
                check_preset(file.parent, preset, [*dict(values)])
        config = load_config(file, preset=preset, overrides=values)
        return cls(config=config, output=output, seeds=seeds, resume=resume, overwrite=overwrite)

    def train(self, extras: TrainingExtras, callbacks: Sequence[Listener]) -> TrainResult | SeedsResult:
        """Train as requested; see `heedful.tasks.train.train` and `train_seeds`."""
        options: dict[str, Any] = {"resume": self.resume, "overwrite": self.overwrite}
        options |= {"callbacks": callbacks, "extras": extras}
        if self.seeds is not None:
            return train_seeds(self.config, self.output, self.seeds, **options)
        return train(self.config, self.output, **options)
