"""What a search finds: hypotheses, their scores, and the history that they are read from."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Hypothesis:
    """One output of a search.

    Attributes:
        ids: the output without its begin and end tokens.
        log_prob: the sum of `token_log_probs`, in float64.
        score: `log_prob` divided by the length penalty of the number of token log-probabilities.
        token_log_probs: the model's log-probability of each token; the last is the end token's if finished.
        finished: whether the output ended by itself; otherwise the length limit cut it.
    """

    ids: tuple[int, ...]
    log_prob: float
    score: float
    token_log_probs: tuple[float, ...]
    finished: bool


def length_penalty(length: int, alpha: float) -> float:
    """The penalty ((5 + length) / 6) ** alpha of GNMT (Wu et al., 2016, section 7).

    `length` counts the end token, everywhere in heedful; an output of that token alone has the penalty 1.
    """
    return float(((5 + length) / 6) ** alpha)


def finished_hypothesis(ids: Sequence[int], token_log_probs: Sequence[float], alpha: float) -> Hypothesis:
    """A hypothesis that ended: `token_log_probs` has one entry more than `ids`, for the end token."""
    assert len(token_log_probs) == len(ids) + 1
    return _hypothesis(ids, token_log_probs, alpha, finished=True)


def unfinished_hypothesis(ids: Sequence[int], token_log_probs: Sequence[float], alpha: float) -> Hypothesis:
    """A hypothesis that the length limit cut: one log-probability for each of its ids."""
    assert len(token_log_probs) == len(ids)
    return _hypothesis(ids, token_log_probs, alpha, finished=False)


def _hypothesis(
    ids: Sequence[int], token_log_probs: Sequence[float], alpha: float, *, finished: bool
) -> Hypothesis:
    log_prob = float(sum(token_log_probs))
    score = log_prob / length_penalty(len(token_log_probs), alpha)
    return Hypothesis(tuple(ids), log_prob, score, tuple(token_log_probs), finished)


def best_first(hypotheses: Sequence[Hypothesis]) -> list[Hypothesis]:
    """Hypotheses by falling score; equal scores by their ids."""
    return sorted(hypotheses, key=lambda hypothesis: (-hypothesis.score, hypothesis.ids))


class History:
    """The tokens of all live hypotheses, as one back-pointer a row and step.

    A step's rows may be fewer or more, or in another order, than those before; each names its parent.
    """

    def __init__(self) -> None:
        self._steps: list[tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float64]]] = []

    def append(
        self, parents: NDArray[np.int64], ids: NDArray[np.int64], log_probs: NDArray[np.float64]
    ) -> None:
        """Add a step: for each row its parent among the rows before, its token, the token's log-prob."""
        self._steps.append((parents, ids, log_probs))

    def trace(self, row: int) -> tuple[list[int], list[float]]:
        """The ids and their log-probabilities of the hypothesis in `row` of the latest step."""
        ids: list[int] = []
        log_probs: list[float] = []
        for parents, step_ids, step_log_probs in reversed(self._steps):
            ids.append(int(step_ids[row]))
            log_probs.append(float(step_log_probs[row]))
            row = int(parents[row])
        return ids[::-1], log_probs[::-1]
