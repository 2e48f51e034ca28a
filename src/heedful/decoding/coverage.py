"""The coverage penalty of a search (GNMT: Wu et al., 2016, equation 14)."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from heedful.decoding.arrays import Array, like, on_host
from heedful.decoding.steps import NextTokens, StepFunction
from heedful.errors import InputError

if TYPE_CHECKING:
    from heedful.decoding.options import SearchOptions

# In place of a 0, which only rounding makes: its logarithm is finite.
_LEAST = float(np.finfo(np.float32).tiny)


@runtime_checkable
class Covering(Protocol):
    """The additional interface of a step function with a coverage penalty."""

    def coverage(self) -> NDArray[np.float64]:
        """Of each row (rows,) the sum over i of log(min(sum over j of p_ij, 1)), which is 0 at most.

        p_ij is the attention of the step that says what token j may be, to token i of the source as the
        encoder reads it; the latest step counts, so the sum is that of each output which its token ends.
        """
        ...


class CoveringStep:
    """A step function that sums up what its rows attend to: see `Covering`."""

    def __init__(self, step: StepFunction, latest: Callable[[], Array], *, lengths: Sequence[int]) -> None:
        """Wrap a step function that has no input ids yet.

        Args:
            step: the step function.
            latest: returns the attention (rows, S) of its latest call.
            lengths: of the sources.
        """
        self._step = step
        self._latest = latest
        is_padding_BS = np.arange(max(lengths)) >= np.asarray(lengths)[:, None]
        self._sums_BS: Array = is_padding_BS.astype(np.float32)  # what pads counts as covered

    def __call__(self, last_ids: NDArray[np.int64]) -> NextTokens:
        """See `StepFunction`."""
        tokens = self._step(last_ids)
        weights_BS = self._latest()
        if isinstance(self._sums_BS, np.ndarray):
            self._sums_BS = like(self._sums_BS, weights_BS)
        self._sums_BS = self._sums_BS + weights_BS
        return tokens

    def reorder(self, rows: NDArray[np.int64]) -> None:
        """See `StepFunction`."""
        self._step.reorder(rows)
        self._sums_BS = self._sums_BS[like(rows, self._sums_BS)]

    def coverage(self) -> NDArray[np.float64]:
        """See `Covering`."""
        sums_BS: NDArray[np.float64] = on_host(self._sums_BS).astype(np.float64)
        covered: NDArray[np.float64] = np.log(np.clip(sums_BS, _LEAST, 1.0)).sum(axis=-1)
        return covered


def coverage_penalties(step: StepFunction, options: "SearchOptions", num_rows: int) -> NDArray[np.float64]:
    """Return the coverage penalty of an output that ends now in each row, (num_rows,); 0 at most.

    Raises:
        InputError: there is a coverage penalty, and the step function knows of no attention.
    """
    if not options.coverage_penalty:
        return np.zeros(num_rows)
    if not isinstance(step, Covering):
        raise InputError(
            f"coverage_penalty={options.coverage_penalty}: the step function gives no coverage; see Covering"
        )
    return options.coverage_penalty * step.coverage()
