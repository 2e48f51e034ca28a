"""The same training with several random seeds, and the mean and deviation of their scores."""

import json
import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from heedful.errors import ConfigError
from heedful.runtime.durable import write_atomically
from heedful.settings.loading import load_config
from heedful.settings.run import Config
from heedful.storage.description import CARD_FILE, resolve_bundle, stored_scores
from heedful.tasks.directory import (
    CONFIG,
    FIXED,
    RESOLVED,
    RunDirectory,
    changed_settings,
    check_are_outside,
    text_files,
)
from heedful.tasks.loading import local_bundle
from heedful.tasks.setup import check_apart
from heedful.tasks.training import Training, TrainResult
from heedful.training.events import NoticeEvent

TABLE = "seeds.json"
# What a model depends on, besides the text, its seed and the limits of the training.
_OF_THE_MODEL = {*FIXED, "optimizer", "schedule"} - {"train.seed"}
_OF_THE_MODEL |= {f"train.{key}" for key in ("label_smoothing", "r_drop", "ema_decay", "average_checkpoints")}
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


def train_seeds(training: Training, seeds: Sequence[int]) -> SeedsResult:
    """Train a run for each seed in OUTPUT/seed-N, one after another, and write the table into seeds.json.

    The card of each best model gets the table, too. Finished runs stay as they are at a resumption. Fewer
    than two seeds, or a seed twice, are a ConfigError.
    """
    if len(seeds) < 2 or len({*seeds}) < len(seeds):
        raise ConfigError(
            f"seeds={','.join(map(str, seeds))}: give two or more different ones; for a single run, set "
            "train.seed"
        )
    output = training.output
    trainings = {seed: _with_seed(training, seed) for seed in seeds}
    _check(training, [run.output for run in trainings.values()])
    if training.overwrite:
        RunDirectory(output).set_aside()
    runs = dict[int, TrainResult]()
    for number, (seed, run) in enumerate(trainings.items(), 1):
        for listener in training.callbacks:
            listener(NoticeEvent(0, 0.0, f"seed {seed}, run {number} of {len(seeds)}: {run.output}"))
        runs[seed] = replace(run, resume=(run.output / CONFIG).exists()).run()
    bests = {seed: resolve_bundle(run.best) for seed, run in runs.items()}
    result = SeedsResult(runs, {seed: stored_scores(best) for seed, best in bests.items()})
    write_atomically(output / TABLE, json.dumps(result.to_json(), indent=2) + "\n")
    for seed, best in bests.items():
        card = (best / CARD_FILE).read_text(encoding="utf-8") if (best / CARD_FILE).exists() else ""
        write_atomically(best / CARD_FILE, card.partition(_SECTION)[0] + _section(result, seed))
    return result


def _with_seed(training: Training, seed: int) -> Training:
    """Return the training with a seed, in its own directory, which is there to continue or not at all."""
    train = training.config.train.replace(seed=seed).model_dump(exclude_unset=True)
    config, output = training.config.replace(train=train), training.output / f"seed-{seed}"
    return replace(training, config=config, output=output, overwrite=False)


def _check(training: Training, runs: Sequence[Path]) -> None:
    """Check that every run can start, or continue, before the first one takes its time."""
    config, output = training.config, training.output
    resume, overwrite = training.resume, training.overwrite
    if resume and not any((run / CONFIG).exists() for run in runs):
        RunDirectory(runs[0]).check(resume=True, overwrite=False)
    if overwrite:
        check_are_outside(output, text_files(config.data).values())
        if config.train.init is not None:
            check_apart(resolve_bundle(local_bundle(Path(config.train.init))), output)
    if not resume:
        beside = (TABLE, *(run.name for run in runs))
        RunDirectory(output, beside).check(resume=False, overwrite=overwrite)
    for run in runs:
        is_there = resume and (run / CONFIG).exists()
        RunDirectory(run).check(resume=is_there, overwrite=overwrite)
        if is_there:
            _check_same(load_config(run / CONFIG), config, run)


def _check_same(before: Config, now: Config, run: Path) -> None:
    """Refuse settings that differ from a started run: the scores of all runs stand in one table."""
    for name, was, value in changed_settings(before, now, _OF_THE_MODEL, only_set=True):
        is_found = name.partition(".")[2] in RESOLVED or (name, value) == ("schedule.peak", 0.0)
        if not is_found:  # by the run itself
            raise ConfigError(
                f"{name}={value!r}: {run} has {was!r}, and all seeds have the same settings; leave it out, "
                "or give another --output"
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
