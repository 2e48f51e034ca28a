"""Hypotheses and their scores; outputs under construction."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from heedful.errors import InputError

_FIRST_POSITIONS = 64  # the capacity of an output at first
NO_CONTINUATION = "search: the model gives no possible continuation any probability"


@dataclass(frozen=True)
class Hypothesis:
    """One output of a search.

    Attributes:
        ids: the output without its start and end tokens.
        log_prob: the sum of `token_log_probs`, in float64.
        score: `log_prob` divided by the length penalty for the number of tokens, plus the coverage penalty.
        token_log_probs: the log-probability of each token before all penalties: the model's own, renormalised
            if the options say so, and 0 for a forced token. A finished output has the end token last.
        finished: whether the output has its end token; otherwise the length limit truncated it.
    """

    ids: tuple[int, ...]
    log_prob: float
    score: float
    token_log_probs: tuple[float, ...] = field(repr=False)
    finished: bool


def hypothesis_of(
    tokens: Sequence[int],
    token_log_probs: Sequence[float],
    *,
    eos_id: int,
    penalty: float,
    coverage: float = 0.0,
) -> Hypothesis:
    """Return a hypothesis with its score: log-probability over length penalty, plus coverage penalty.

    Args:
        tokens: the generated tokens; the output is finished if the last one is the end token.
        token_log_probs: the log-probability of each token.
        eos_id: the end token.
        penalty: the length penalty.
        coverage: the coverage penalty.
    """
    assert len(token_log_probs) == len(tokens)
    log_prob = float(sum(token_log_probs))
    finished = tokens[-1] == eos_id
    ids = tuple(tokens[:-1] if finished else tokens)
    return Hypothesis(ids, log_prob, log_prob / penalty + coverage, tuple(token_log_probs), finished)


class PartialOutputs:
    """Outputs that grow token by token until their end token or length limit.

    For searches with one hypothesis for each output; a beam does its own bookkeeping.
    """

    def __init__(self, max_lengths: Sequence[int], *, eos_id: int) -> None:
        self._eos_id = eos_id
        self._limits = np.asarray(max_lengths, dtype=np.int64)
        shape = (len(max_lengths), 0)  # it grows: limits may be far higher than lengths
        self._ids_BT: NDArray[np.int64] = np.zeros(shape, dtype=np.int64)
        self._log_probs_BT: NDArray[np.float64] = np.zeros(shape)
        self._lengths = np.zeros(len(max_lengths), dtype=np.int64)
        self.length = 0  # of the live outputs
        self.live = np.arange(len(max_lengths))  # the outputs that have not ended, a row each

    @property
    def written(self) -> NDArray[np.int64]:
        """The tokens of each live output so far, (live, T)."""
        return self._ids_BT[self.live, : self.length]

    def append(self, ids: NDArray[np.int64], log_probs: NDArray[np.float64]) -> NDArray[np.int64]:
        """Add a token to each live output; return the rows that live on, (live afterwards,).

        Raises:
            InputError: an impossible token.
        """
        if np.isneginf(log_probs).any():
            raise InputError(NO_CONTINUATION)
        if self.length == self._ids_BT.shape[1]:
            more = ((0, 0), (0, max(self.length, _FIRST_POSITIONS)))
            self._ids_BT, self._log_probs_BT = np.pad(self._ids_BT, more), np.pad(self._log_probs_BT, more)
        self._ids_BT[self.live, self.length] = ids
        self._log_probs_BT[self.live, self.length] = log_probs
        self.length += 1
        self._lengths[self.live] = self.length
        rows = np.flatnonzero((ids != self._eos_id) & (self.length < self._limits[self.live]))
        self.live = self.live[rows]
        return rows

    def hypotheses(self, penalty: Callable[[int], float]) -> list[Hypothesis]:
        """Return all outputs in their order; `penalty` is the length penalty of a number of tokens."""
        rows = zip(self._ids_BT.tolist(), self._log_probs_BT.tolist(), self._lengths.tolist(), strict=True)
        return [
            hypothesis_of(ids[:n], log_probs[:n], eos_id=self._eos_id, penalty=penalty(n))
            for ids, log_probs, n in rows
        ]
