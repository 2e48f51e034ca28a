"""The step of a search: the next token's log-probabilities for each row, and rows that can be reordered."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Protocol, Self

import numpy as np
from numpy.typing import NDArray

from heedful.decoding.arrays import Array, log_softmax
from heedful.errors import InputError

SPARE = 4  # candidates more than are asked for, in case that some tie
NOT_NUMBERS = "search: the model's log-probabilities are not numbers; its weights are damaged"


class NextTokens(Protocol):
    """Next-token log-probabilities of each row, computed only as far as they are asked for."""

    @property
    def vocab_size(self) -> int:
        """The number of tokens, V."""
        ...

    def top(
        self, count: int, suppressed: Sequence[int], *, renormalize: bool = False
    ) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
        """Return the `count` best next ids of each row and their log-probabilities, best first.

        Ties go to the lower id. Suppressed ids come last, with -inf.

        Args:
            count: how many; fewer come back when V is smaller.
            suppressed: ids that may not follow.
            renormalize: whether the probabilities of all but the suppressed sum to 1.

        Returns:
            Log-probabilities and ids, each (rows, min(count, V)).

        Raises:
            InputError: a log-probability is not a number.
        """
        ...

    def log_probs(self) -> Array:
        """Return all log-probabilities, (rows, V)."""
        ...

    def with_log_probs(self, log_probs: Array) -> "NextTokens":
        """Return the same with other log-probabilities, (rows, V), changed from those of `log_probs`."""
        ...

    def __getitem__(self, rows: NDArray[np.int64]) -> "NextTokens":
        """Return the same of some of the rows."""
        ...


class StepFunction(Protocol):
    """One step of generation for a number of rows, each a sequence under construction.

    At first there is one row for each sentence, and each has no input ids. The ids are on the
    CPU; the log-probabilities may be on a GPU, which neither method waits for.
    """

    def __call__(self, last_ids: NDArray[np.int64]) -> NextTokens:
        """Decode one more input id of each row, (rows,), and return what may follow."""
        ...

    def reorder(self, rows: NDArray[np.int64]) -> None:
        """Let row i continue as row `rows[i]` was; rows may be repeated, dropped, moved."""
        ...


# Gives the step function of a batch, from its first position, each time that it is called.
Start = Callable[[], AbstractContextManager[StepFunction]]


class ArrayTokens:
    """Next-token log-probabilities in an array of numpy: see `NextTokens`."""

    def __init__(self, log_probs: NDArray[np.floating]) -> None:
        """Take log-probabilities (rows, V)."""
        self._log_probs = log_probs

    @property
    def vocab_size(self) -> int:
        """See `NextTokens`."""
        return int(self._log_probs.shape[-1])

    def top(
        self, count: int, suppressed: Sequence[int], *, renormalize: bool = False
    ) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
        """See `NextTokens`."""
        log_probs, vocab_size = self._log_probs, self.vocab_size
        if np.isnan(log_probs).any():
            raise InputError(NOT_NUMBERS)
        suppressed = [i for i in suppressed if i < vocab_size]
        if suppressed:
            log_probs = log_probs.copy()
            log_probs[:, suppressed] = -np.inf
        if renormalize:
            log_probs = log_softmax(log_probs)
        count = min(count, vocab_size)
        num_sorted = min(count + SPARE, vocab_size)
        ids = np.argpartition(-log_probs, num_sorted - 1, axis=-1)[:, :num_sorted].astype(np.int64)
        values = np.take_along_axis(log_probs, ids, axis=-1)
        if num_sorted < vocab_size:
            # Others may tie with the last of the best: these rows are sorted in full.
            worst = np.sort(values, axis=-1)
            for row in np.flatnonzero(worst[:, 0] == worst[:, num_sorted - count]):
                ids[row] = np.argsort(-log_probs[row], kind="stable")[:num_sorted]
            values = np.take_along_axis(log_probs, ids, axis=-1)
        return best_first(values.astype(np.float64), ids, count)

    def log_probs(self) -> NDArray[np.floating]:
        """See `NextTokens`."""
        return self._log_probs

    def with_log_probs(self, log_probs: Array) -> Self:
        """See `NextTokens`."""
        return type(self)(log_probs)

    def __getitem__(self, rows: NDArray[np.int64]) -> Self:
        """See `NextTokens`."""
        return type(self)(self._log_probs[rows])


def best_first(
    values: NDArray[np.float64], ids: NDArray[np.int64], count: int
) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Return the `count` best of each row of candidates, (rows, C), best first, ties to the lower id."""
    order = np.lexsort((ids, -values), axis=-1)[:, :count]
    return np.take_along_axis(values, order, axis=1), np.take_along_axis(ids, order, axis=1)
