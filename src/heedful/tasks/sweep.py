"""A set of runs: the same training with several seeds, with several values of settings, or both."""

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any

from heedful.errors import ConfigError, TrainingError
from heedful.runtime.durable import write_atomically
from heedful.settings.loading import load_config, with_settings
from heedful.settings.run import Config
from heedful.storage.description import CARD_FILE, resolve_bundle
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
from heedful.tasks.seeds import SEEDS_TABLE, SeedsResult, card_with_seeds, shown_score
from heedful.tasks.setup import check_apart
from heedful.tasks.training import Training, TrainResult
from heedful.training.events import NoticeEvent, WarningEvent

SWEEP_TABLE = "sweep.json"
_SEED = "train.seed"
_UNSAFE = re.compile(r"[^\w.+-]+")  # in the name of a directory
# What a model depends on, besides the text, its seed and the limits of the training.
_OF_THE_MODEL = {*FIXED, "optimizer", "schedule"} - {_SEED}
_OF_THE_MODEL |= {f"train.{key}" for key in ("label_smoothing", "r_drop", "ema_decay", "average_checkpoints")}


@dataclass(frozen=True)
class SweepPoint:
    """The runs with the same settings.

    Attributes:
        settings: the values that this point has, by their whole keys.
        results: its runs, by their seeds.
    """

    settings: Mapping[str, Any]
    results: SeedsResult


@dataclass(frozen=True)
class SweepResult:
    """Results of the same training with several values of settings.

    Attributes:
        points: the runs of each combination of values, in order.
        metric: the score that `valid.metric` names, which chooses the best point.
    """

    points: Sequence[SweepPoint]
    metric: str

    @property
    def best(self) -> SweepPoint:
        """The point with the best mean of the metric: the lowest nll, or the highest of another.

        Points that lack a run, which could not be finished, come last: their means are not comparable.
        """
        sign = 1.0 if self.metric == "nll" else -1.0

        def rank(point: SweepPoint) -> tuple[int, float]:
            return -len(point.results.runs), sign * point.results.mean.get(self.metric, sign * math.inf)

        return min(self.points, key=rank)

    def rows(self) -> list[list[str]]:
        """Return a table as text: its head, and a row for each point, the best one with a star."""
        names = list(dict.fromkeys(name for point in self.points for name in point.results.mean))
        head = [*_short_names(self.points[0].settings).values(), *names, "best"]
        return [head, *(self._row(point, names) for point in self.points)]

    def _row(self, point: SweepPoint, names: Sequence[str]) -> list[str]:
        mean, deviation = point.results.mean, point.results.deviation
        cells = list[str]()
        for name in names:
            spread = f" ± {shown_score(deviation[name])}" if name in deviation else ""
            cells.append(f"{shown_score(mean[name])}{spread}" if name in mean else "failed")
        return [*map(str, point.settings.values()), *cells, "*" if point is self.best else ""]

    def to_json(self) -> dict[str, Any]:
        """Return the metric, the best settings, and of each point settings, runs, means and deviations."""
        points = [{"settings": dict(point.settings)} | point.results.to_json() for point in self.points]
        return {"metric": self.metric, "best": dict(self.best.settings), "points": points}

    def __repr__(self) -> str:
        best = self.best
        score = best.results.mean.get(self.metric, math.nan)
        return (
            f"SweepResult({len(self.points)} points, best {dict(best.settings)}: {self.metric} {score:.3f})"
        )


def train_seeds(training: Training, seeds: Sequence[int]) -> SeedsResult:
    """Train a run for each seed in OUTPUT/seed-N, one after another, and write the table into seeds.json."""
    return train_sweep(training, {}, seeds).points[0].results


def train_sweep(
    training: Training, sweep: Mapping[str, Sequence[Any]], seeds: Sequence[int] | None = None
) -> SweepResult:
    """Train a run for each combination of values and each seed, one after another.

    A run is in OUTPUT/NAME-VALUE/.../seed-N, and the table in OUTPUT/sweep.json, or seeds.json without a
    sweep. The cards of models with several seeds get their table. Finished runs stay as they are at a
    resumption. A run of a sweep that cannot go on, for example because it diverges, is left out.

    Args:
        training: the training that all are, in the directory of the set.
        sweep: the values of each setting, by whole keys; the runs are their product.
        seeds: the seeds of each combination; None: the seed of the training alone.

    Raises:
        ConfigError: fewer than two seeds or values, or one twice; a setting or value that cannot be.
        TrainingError: no run could be finished.
    """
    axes = dict(sweep)
    seeds = axes.pop(_SEED, None) if seeds is None else seeds
    for name, values in [*axes.items(), ("seeds", seeds)]:
        if values is not None and (len(values) < 2 or len({*map(str, values)}) < len(values)):
            shown = ",".join(map(str, values))
            raise ConfigError(f"{name}={shown}: give two or more different ones; for a single run, use --set")
    points = [dict(zip(axes, values, strict=True)) for values in product(*axes.values())]
    trainings = {
        (number, seed): _variant(training, point, seed, in_set=seeds is not None)
        for number, point in enumerate(points)
        for seed in seeds or [training.config.train.seed]
    }
    _check(training, {variant.output: variant.config for variant in trainings.values()})
    if training.overwrite:
        RunDirectory(training.output).set_aside()
    runs = _trained(training, points, trainings)
    results = list[SweepPoint]()
    for number, point in enumerate(points):
        of_point = {seed: run for (index, seed), run in runs.items() if index == number}
        results.append(
            SweepPoint(point, SeedsResult(of_point, {seed: run.scores for seed, run in of_point.items()}))
        )
    result = SweepResult(results, training.config.valid.metric)
    table = (SWEEP_TABLE, result.to_json()) if axes else (SEEDS_TABLE, results[0].results.to_json())
    write_atomically(training.output / table[0], json.dumps(table[1], indent=2) + "\n")
    for point_result in results:
        _add_to_cards(point_result.results)
    return result


def _trained(
    training: Training, points: Sequence[Mapping[str, Any]], trainings: Mapping[tuple[int, int], Training]
) -> dict[tuple[int, int], TrainResult]:
    """Train, or finish, all runs; return those that could be finished, by point and seed."""
    runs = dict[tuple[int, int], TrainResult]()
    for count, ((number, seed), variant) in enumerate(trainings.items(), 1):
        what = ", ".join([*(f"{key}={value}" for key, value in points[number].items()), f"seed {seed}"])
        message = f"{what}, run {count} of {len(trainings)}: {variant.output}"
        for listener in training.callbacks:
            listener(NoticeEvent(0, 0.0, message))
        try:
            runs[number, seed] = replace(variant, resume=(variant.output / CONFIG).exists()).run()
        except TrainingError as error:
            if len(points) == 1 or (count == len(trainings) and not runs):
                raise
            for listener in training.callbacks:
                listener(WarningEvent(0, 0.0, f"{what} is left out: {error}"))
    return runs


def _variant(training: Training, point: Mapping[str, Any], seed: int, *, in_set: bool) -> Training:
    """Return the training with some settings, in its own directory: there to continue, or not at all."""
    config = with_settings(training.config, {**point, _SEED: seed})
    names = _short_names(point)
    parts = [_UNSAFE.sub("_", f"{names[key]}-{value}") for key, value in point.items()]
    output = training.output.joinpath(*parts, *([f"seed-{seed}"] if in_set else []))
    return replace(training, config=config, output=output, overwrite=False)


def _short_names(settings: Mapping[str, Any]) -> dict[str, str]:
    """Return the names of settings without their sections, where these differ."""
    last = [key.rpartition(".")[2] for key in settings]
    return {key: name if last.count(name) == 1 else key for key, name in zip(settings, last, strict=True)}


def _check(training: Training, runs: Mapping[Path, Config]) -> None:
    """Check that every run can start, or continue, before the first one takes its time."""
    config, output = training.config, training.output
    resume, overwrite = training.resume, training.overwrite
    if resume and not any((run / CONFIG).exists() for run in runs):
        RunDirectory(next(iter(runs))).check(resume=True, overwrite=False)
    if overwrite:
        check_are_outside(output, text_files(config.data).values())
        if config.train.init is not None:
            check_apart(resolve_bundle(local_bundle(Path(config.train.init))), output)
    if not resume:
        beside = (SEEDS_TABLE, SWEEP_TABLE, *(run.relative_to(output).parts[0] for run in runs))
        RunDirectory(output, beside).check(resume=False, overwrite=overwrite)
    for run, of_run in runs.items():
        is_there = resume and (run / CONFIG).exists()
        RunDirectory(run).check(resume=is_there, overwrite=overwrite)
        if is_there:
            _check_same(load_config(run / CONFIG), of_run, run)


def _check_same(before: Config, now: Config, run: Path) -> None:
    """Refuse settings that differ from a started run: the scores of all runs stand in one table."""
    for name, was, value in changed_settings(before, now, _OF_THE_MODEL, only_set=True):
        is_found = name.partition(".")[2] in RESOLVED or (name, value) == ("schedule.peak", 0.0)
        if not is_found:  # by the run itself
            raise ConfigError(
                f"{name}={value!r}: {run} has {was!r}, and a run keeps its settings; leave it out, "
                "or give another --output"
            )


def _add_to_cards(results: SeedsResult) -> None:
    """Add the table of several seeds to the card of each best model."""
    if len(results.runs) < 2:
        return
    for seed, run in results.runs.items():
        file = resolve_bundle(run.best) / CARD_FILE
        card = file.read_text(encoding="utf-8") if file.exists() else ""
        write_atomically(file, card_with_seeds(card, results, seed))
