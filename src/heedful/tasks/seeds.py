"""The same training with several random seeds, and the mean and deviation of their scores."""

import math
import statistics
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from heedful.tasks.training import TrainResult

SEEDS_TABLE = "seeds.json"
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
        """The sample standard deviation of each score, which divides by the number of seeds minus 1.

        A single run has none.
        """
        columns = self._columns() if len(self.scores) > 1 else {}
        return {name: statistics.stdev(values) for name, values in columns.items()}

    def _columns(self) -> dict[str, list[float]]:
        rows = list(self.scores.values())
        names = rows[0] if rows else {}
        columns = {name: [row.get(name, math.nan) for row in rows] for name in names}
        return {name: values for name, values in columns.items() if all(map(math.isfinite, values))}

    def rows(self) -> list[list[str]]:
        """Return a table as text: its head, a row for each seed, the mean, and the deviation."""
        by_name = {str(seed): scores for seed, scores in self.scores.items()}
        by_name |= {"mean": self.mean, "deviation": self.deviation}
        names = list(self._columns())
        return [
            ["seed", *names],
            *([each, *(shown_score(scores[name]) for name in names)] for each, scores in by_name.items()),
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
            f"{name} {shown_score(mean)} ± {shown_score(self.deviation[name])}"
            for name, mean in self.mean.items()
        )
        return f"SeedsResult({len(self.runs)} runs: {means})"


def card_with_seeds(card: str, result: SeedsResult, seed: int) -> str:
    """Return the card of the run with this seed, with a section about all of them."""
    return card.partition(_SECTION)[0] + _section(result, seed)


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


def shown_score(value: float) -> str:
    """Return a score with three decimals."""
    return f"{value:.3f}" if abs(value) < 1e6 else f"{value:.3e}"
