"""A requested training: once, or with several random seeds, and the mean and deviation of their scores."""

import json
import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from heedful.errors import ConfigError
from heedful.runs.directory import CONFIG, RESOLVED, RunDirectory, check_preset, check_texts_are_outside
from heedful.runs.loading import local_bundle
from heedful.runs.notices import Listener
from heedful.runs.setup import check_apart
from heedful.runs.train import TrainingExtras, TrainResult, train
from heedful.runtime.durable import write_atomically
from heedful.settings.loading import load_config
from heedful.settings.run import Config
from heedful.storage.description import CARD_FILE, resolve_bundle, stored_scores
from heedful.training.events import NoticeEvent
from heedful.training.parallel.torchrun import was_started_by_this_job

TABLE = "seeds.json"
# What a model depends on, besides the text, its seed and the limits of the training.
_SECTIONS = ("model", "tokenizer", "batch", "optimizer", "schedule", "lora")
_OF_TRAINING = ("label_smoothing", "r_drop", "ema_decay", "average_checkpoints", "loss", "freeze")
_SECTION = "\n## Seeds\n"  # of a model card, the last one


@dataclass(frozen=True)
class SeedsResult:
    """Results of the same training with several seeds.

    >>> result.mean["bleu"], result.deviation["bleu"]
    (40.0, 1.0)

    Attributes:
        runs: the result of each run, by seed.
        scores: validation scores of each run's best model, by seed.
    """

    runs: Mapping[int, TrainResult]
    scores: Mapping[int, Mapping[str, float]]

    @property
    def mean(self) -> dict[str, float]:
        """The mean of each score that all runs have, as a finite number."""
        return {name: statistics.fmean(values) for name, values in self._columns().items()}

    @property
    def deviation(self) -> dict[str, float]:
        """The sample standard deviation of each score, which divides by the number of seeds minus 1."""
        return {name: statistics.stdev(values) for name, values in self._columns().items()}

    def _columns(self) -> dict[str, list[float]]:
        rows = list(self.scores.values())
        columns = {name: [row.get(name, math.nan) for row in rows] for name in rows[0]}
        return {name: values for name, values in columns.items() if all(map(math.isfinite, values))}

    def rows(self) -> list[list[str]]:
        """Return a table as text: its head, a row for each seed, the mean, and the deviation."""
        by_name = {str(seed): scores for seed, scores in self.scores.items()}
        by_name |= {"mean": self.mean, "deviation": self.deviation}
        names = list(self._columns())
        return [
            ["seed", *names],
            *([each, *(_shown(scores[name]) for name in names)] for each, scores in by_name.items()),
        ]

    def to_json(self) -> dict[str, Any]:
        """Return the runs with their bundles and scores, the mean, and the deviation."""
        runs = [
            {"seed": seed, "best": str(run.best), "last": str(run.last), "scores": dict(self.scores[seed])}
            for seed, run in self.runs.items()
        ]
        return {"runs": runs, "mean": self.mean, "deviation": self.deviation}

    def __repr__(self) -> str:
        means = ", ".join(
            f"{name} {_shown(mean)} ± {_shown(self.deviation[name])}" for name, mean in self.mean.items()
        )
        return f"SeedsResult({len(self.runs)} runs: {means})"


@dataclass(frozen=True, kw_only=True)
class RunRequest:
    """A training, or the same training with several seeds, in a directory.

    Attributes:
        config: all settings; with several seeds, apart from the seed.
        output: the run directory, or the directory of the runs.
        seeds: train once with each of these; None: once, with `train.seed`.
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

        Raises:
            ConfigError: an unknown setting, a value that is not valid, or another preset than the run's.
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

    def train(self, extras: TrainingExtras, callbacks: Sequence[Listener]) -> "TrainResult | SeedsResult":
        """Train as requested.

        Raises:
            HeedfulError: as for `heedful.runs.train.train` and `train_seeds`.
        """
        if self.seeds is not None:
            return train_seeds(self, self.seeds, extras, callbacks)
        return train(
            self.config,
            self.output,
            resume=self.resume,
            overwrite=self.overwrite,
            callbacks=callbacks,
            extras=extras,
        )


def train_seeds(
    request: RunRequest, seeds: Sequence[int], extras: TrainingExtras, callbacks: Sequence[Listener]
) -> SeedsResult:
    """Train a run for each seed in OUTPUT/seed-N, one after another, and write the table into seeds.json.

    The card of each best model gets the table, too.

    Raises:
        ConfigError: fewer than two seeds, or a seed twice.
        RunError, HeedfulError: as for one run.
    """
    if len(seeds) < 2 or len({*seeds}) < len(seeds):
        raise ConfigError(
            f"seeds={','.join(map(str, seeds))}: give two or more different ones; for a single run, set "
            "train.seed"
        )
    config, output = request.config, request.output
    trains = [config.train.replace(seed=seed).model_dump(exclude_unset=True) for seed in seeds]
    configs = [config.replace(train=each) for each in trains]
    directories = {seed: output / f"seed-{seed}" for seed in seeds}
    _check(request, [*directories.values()])
    if request.overwrite:
        RunDirectory(output).set_aside()
    runs = dict[int, TrainResult]()
    for number, (seed, path) in enumerate(directories.items(), 1):
        for listener in callbacks:
            listener(NoticeEvent(0, 0.0, f"seed {seed}, run {number} of {len(seeds)}: {path}"))
        is_there = (path / CONFIG).exists()
        runs[seed] = train(configs[number - 1], path, resume=is_there, callbacks=callbacks, extras=extras)
    bests = {seed: resolve_bundle(run.best) for seed, run in runs.items()}
    result = SeedsResult(runs, {seed: stored_scores(best) for seed, best in bests.items()})
    write_atomically(output / TABLE, json.dumps(result.to_json(), indent=2) + "\n")
    for seed, best in bests.items():
        card = (best / CARD_FILE).read_text(encoding="utf-8") if (best / CARD_FILE).exists() else ""
        write_atomically(best / CARD_FILE, card.partition(_SECTION)[0] + _section(result, seed))
    return result


def _check(request: RunRequest, runs: Sequence[Path]) -> None:
    """Check that every run can start, or continue, before the first one takes its time.

    Raises:
        RunError: one cannot.
    """
    config, output, overwrite = request.config, request.output, request.overwrite
    if request.resume and not any((run / CONFIG).exists() for run in runs):
        RunDirectory(runs[0]).check(resume=True, overwrite=False)
    if overwrite:
        check_texts_are_outside(output, config)
        if config.train.init is not None:
            check_apart(resolve_bundle(local_bundle(Path(config.train.init))), output)
    if not request.resume:
        beside = (TABLE, *(run.name for run in runs))
        RunDirectory(output, beside).check(resume=False, overwrite=overwrite)
    for run in runs:
        is_there = request.resume and (run / CONFIG).exists()
        RunDirectory(run).check(resume=is_there, overwrite=overwrite)
        if is_there:
            _check_same(load_config(run / CONFIG), config, run)


def _check_same(before: Config, now: Config, run: Path) -> None:
    """Refuse settings that differ from a started run: the scores of all runs stand in one table.

    Raises:
        ConfigError: a setting that a model depends on was changed.
    """
    was = before.model_dump()
    for section, settings in now.model_dump(exclude_unset=True).items():
        for key, value in settings.items():
            is_found = key in RESOLVED or (key == "peak" and value == 0.0)  # by the run itself
            matters = section in _SECTIONS or (section == "train" and key in _OF_TRAINING)
            if matters and not is_found and value != was[section][key]:
                raise ConfigError(
                    f"{section}.{key}={value!r}: {run} has {was[section][key]!r}, and all seeds have the "
                    "same settings; leave it out, or give another --output"
                )


def _section(result: SeedsResult, seed: int) -> str:
    """Return the section of the card of the run with this seed."""
    head, *rows = result.rows()
    lines = [head, ["---"] * len(head), *rows]
    table = "\n".join(f"| {' | '.join(line)} |" for line in lines)
    return (
        f"{_SECTION}\nThis model was trained with the seed {seed}. Validation scores of the best model of "
        "each run, their mean, and their sample standard deviation (n - 1); the runs differ only in the seed:"
        f"\n\n{table}\n"
    )


def _shown(value: float) -> str:
    return f"{value:.3f}" if abs(value) < 1e6 else f"{value:.3e}"
