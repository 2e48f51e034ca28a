"""What a metric gets, `Texts`, and what it returns, a `Measurement`."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from heedful.errors import InputError
from heedful.evaluation.tokenization import Tokenization

SEED = 12345  # of the resamples: sacreBLEU's


@dataclass(frozen=True)
class Texts:
    """The outputs of a system, and what they are compared with; `sources` is None if they are not known.

    Sources and hypotheses have N lines, and so has each list of references.
    """

    sources: Sequence[str] | None
    hypotheses: Sequence[str]
    references: Sequence[Sequence[str]]
    lowercase: bool
    tokenization: Tokenization

    def sources_for(self, metric: str) -> Sequence[str]:
        """Return the sources, which a metric needs; InputError if they are not known."""
        if self.sources is None:
            raise InputError(f"{metric} needs the sources: give --src")
        return self.sources

    def references_by_line(self) -> list[list[str]]:
        """Return the references of each line; an empty one is missing, unless the line has no other."""
        return [
            [reference for reference in line if reference.strip()] or [""]
            for line in zip(*self.references, strict=True)
        ]


@dataclass(frozen=True)
class Measurement:
    """A score, and the rows of statistics that are summed to compute it, so that it can be resampled.

    Attributes:
        score: the score of all rows.
        signature: how it was computed.
        rows: (N, K), one row for each line or item.
        score_of: returns the score of a sum (K,) of rows.
    """

    score: float
    signature: str
    rows: NDArray[np.float64]
    score_of: Callable[[NDArray[np.float64]], float]

    @classmethod
    def percentage(cls, pairs: Sequence[tuple[float, float]], signature: str) -> Self:
        """Return 100 · Σ numerators / Σ denominators, of a (numerator, denominator) for each row."""
        rows = np.array(pairs, dtype=np.float64)
        return cls(_percentage(rows.sum(0)), signature, rows, _percentage)

    def resampled(self, num_resamples: int) -> NDArray[np.float64]:
        """Return the scores of bootstrap resamples: each has as many rows, drawn with replacement."""
        generator = np.random.default_rng(SEED)
        draws = (generator.choice(len(self.rows), size=len(self.rows)) for _ in range(num_resamples))
        return np.array([self.score_of(self.rows[drawn].sum(0)) for drawn in draws])


def _percentage(sums: NDArray[np.float64]) -> float:
    return float(100.0 * sums[0] / max(sums[1], 1.0))
