"""What a search finds: hypotheses, their scores, and the history that they are read from."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

LengthNormalization = Literal["gnmt", "average"]


@dataclass(frozen=True)
class Hypothesis:
    """One output of a search.

    Attributes:
        ids: the output without its start and end tokens.
        log_prob: the sum of `token_log_probs`, in float64.
        score: `log_prob` divided by the length penalty of the number of token log-probabilities.
        token_log_probs: the log-probability of each token, 0 where it was forced; the last is the end
            token's if finished.
        finished: whether the output has its end token; otherwise the length limit cut it.
    """

    ids: tuple[int, ...]
    log_prob: float
    score: float
    token_log_probs: tuple[float, ...]
    finished: bool


def length_penalty(length: int, alpha: float, normalization: LengthNormalization = "gnmt") -> float:
    """The penalty ((5 + length) / 6) ** alpha of GNMT (Wu et al., 2016, section 7), or length ** alpha.

    `length` counts the end token, everywhere in heedful; an output of that token alone has the penalty 1.
    """
    base = length if normalization == "average" else (5 + length) / 6
    return float(base**alpha)


def ended_hypothesis(
    tokens: Sequence[int], token_log_probs: Sequence[float], *, eos_id: int, penalty: float
) -> Hypothesis:
    """The hypothesis of these tokens, as generated: finished if the end token is the last of them."""
    assert len(token_log_probs) == len(tokens)
    log_prob = float(sum(token_log_probs))
    finished = tokens[-1] == eos_id
    ids = tuple(tokens[:-1] if finished else tokens)
    return Hypothesis(ids, log_prob, log_prob / penalty, tuple(token_log_probs), finished)


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
