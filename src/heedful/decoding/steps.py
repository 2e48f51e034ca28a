"""The step of a search: next-token log-probabilities for each row, and rows that can be reordered."""

import math
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol, Self

import numpy as np
from array_api_compat import array_namespace, device, to_device
from numpy.typing import NDArray
from typing_extensions import override

from heedful.errors import NotNumbersError

Ids = Sequence[Sequence[int]]
Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Singles = NDArray[np.float32]
Bools = NDArray[np.bool_]
Array = Any  # numpy's, or another of the standard: https://data-apis.org/array-api


def like(values: NDArray[np.generic], array: Array) -> Array:
    """Return values of the CPU as an array of the same kind, on the same device."""
    return array_namespace(array).asarray(values, device=device(array))


def on_host(array: Array) -> NDArray[Any]:
    """Return an array as numpy's, on the CPU."""
    return np.asarray(to_device(array, "cpu"))


def copy_of(array: Array) -> Array:
    """Return a copy, to be written to."""
    return array_namespace(array).asarray(array, copy=True)


def kth_largest(array: Array, k: int) -> Array:
    """Return the k-th largest number of each row, (rows, 1)."""
    if hasattr(array, "topk"):  # torch's, which is faster than a sort
        return array.topk(k).values[:, -1:]
    return np.partition(array, -k, axis=-1)[:, -k, None]


def softmax(array: Array) -> Array:
    """Return the softmax of each row."""
    if hasattr(array, "softmax"):
        return array.softmax(-1)
    with np.errstate(invalid="ignore"):  # NaN if all are -inf
        exponentials = np.exp(array - array.max(axis=-1, keepdims=True))
        return exponentials / exponentials.sum(axis=-1, keepdims=True)


def log_softmax(array: Array) -> Array:
    """Return the logarithm of the softmax of each row."""
    if hasattr(array, "log_softmax"):
        return array.log_softmax(-1)
    with np.errstate(invalid="ignore"):
        return array - logsumexp(array)


def logsumexp(array: Array, *, axis: int = -1) -> Array:
    """Return log(sum(exp(x))) over an axis, which is kept with size 1; -inf if all are -inf."""
    xp = array_namespace(array)
    greatest = xp.max(array, axis=axis, keepdims=True)
    greatest = xp.where(xp.isinf(greatest), xp.zeros_like(greatest), greatest)
    with np.errstate(divide="ignore"):
        return greatest + xp.log(xp.sum(xp.exp(array - greatest), axis=axis, keepdims=True))


SPARE = 4  # additional candidates, in case of ties


def check_numbers(log_probs: Array) -> None:
    """Check log-probabilities of a model.

    Raises:
        NotNumbersError: some are NaN.
    """
    if np.isnan(log_probs).any():
        raise NotNumbersError


class NextTokens(Protocol):
    """Next-token log-probabilities of each row, computed on demand.

    Attributes:
        vocab_size: the number of tokens, V.
    """

    vocab_size: int

    def top(self, count: int, suppressed: Sequence[int], *, renormalize: bool = False) -> tuple[Floats, Ints]:
        """Return the `count` best next ids of each row and their log-probabilities, best first.

        Ties go to the lower id. Suppressed ids come last, with -inf.

        Args:
            count: the number of ids; at most V are returned.
            suppressed: ids that may not follow.
            renormalize: whether to scale the probabilities of the other ids to a sum of 1.

        Returns:
            Log-probabilities and ids, each (rows, min(count, V)).

        Raises:
            NotNumbersError: a log-probability is not a number.
        """
        ...

    def log_probs(self) -> Array:
        """Return all log-probabilities, (rows, V)."""
        ...

    def with_log_probs(self, log_probs: Array) -> "NextTokens":
        """Return the same with changed log-probabilities, (rows, V)."""
        ...

    def __getitem__(self, rows: Ints) -> "NextTokens":
        """Return the same for some of the rows."""
        ...


class StepFunction(Protocol):
    """One step of generation for a number of rows, each a sequence under construction.

    At first there is one row for each sentence, without input ids. The ids are on the CPU; the
    log-probabilities may be on a GPU, and neither method waits for it.
    """

    def __call__(self, last_ids: Ints) -> NextTokens:
        """Decode one more input id of each row, (rows,), and return what may follow."""
        ...

    def reorder(self, rows: Ints) -> None:
        """Let row i continue as row `rows[i]` was; rows may be repeated, moved and dropped."""
        ...


# Returns a new step function of a batch, at its first position.
Start = Callable[[], AbstractContextManager[StepFunction]]


class StoredTokens(NextTokens):
    """Next-token log-probabilities that are all computed; a subclass finds the best of them."""

    def __init__(self, log_probs: Array) -> None:
        """Take log-probabilities (rows, V)."""
        self._log_probs = log_probs
        self.vocab_size = int(log_probs.shape[-1])

    @override
    def log_probs(self) -> Array:
        return self._log_probs

    @override
    def with_log_probs(self, log_probs: Array) -> Self:
        return type(self)(log_probs)

    @override
    def __getitem__(self, rows: Ints) -> Self:
        return type(self)(self._log_probs[like(rows, self._log_probs)])


class ArrayTokens(StoredTokens):
    """Next-token log-probabilities in a numpy array: see `NextTokens`."""

    @override
    def top(self, count: int, suppressed: Sequence[int], *, renormalize: bool = False) -> tuple[Floats, Ints]:
        log_probs, vocab_size = self._log_probs, self.vocab_size
        check_numbers(log_probs)
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
            # If ids outside may tie with the last of the best, the row is sorted in full.
            worst = np.sort(values, axis=-1)
            for row in np.flatnonzero(worst[:, 0] == worst[:, num_sorted - count]):
                ids[row] = np.argsort(-log_probs[row], kind="stable")[:num_sorted]
            values = np.take_along_axis(log_probs, ids, axis=-1)
        return best_first(values.astype(np.float64), ids, count)


def best_first(values: Floats, ids: Ints, count: int) -> tuple[Floats, Ints]:
    """Return the `count` best of each row of candidates, (rows, C), best first, ties to the lower id."""
    order = np.lexsort((ids, -values), axis=-1)[:, :count]
    return np.take_along_axis(values, order, axis=1), np.take_along_axis(ids, order, axis=1)


class EnsembleStep(StepFunction):
    """The step function of an ensemble: the probability of a token is the mean over the models.

    It is the arithmetic mean, as in fairseq and Sockeye (Marian adds log-probabilities: the geometric mean).
    So a token is possible if one model finds it possible.
    """

    def __init__(self, steps: Sequence[StepFunction]) -> None:
        """Combine step functions of the same sentences and one vocabulary, at least one."""
        self._steps = steps

    @override
    def __call__(self, last_ids: Ints) -> NextTokens:
        tokens = [step(last_ids) for step in self._steps]
        of_models = [of_model.log_probs() for of_model in tokens]
        log_probs = logsumexp(array_namespace(of_models[0]).stack(of_models), axis=0)[0]
        return tokens[0].with_log_probs(log_probs - math.log(len(self._steps)))

    @override
    def reorder(self, rows: Ints) -> None:
        for step in self._steps:
            step.reorder(rows)
