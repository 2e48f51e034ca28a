"""The coverage penalty of a search (GNMT: Wu et al., 2016, equation 14)."""

from typing import TYPE_CHECKING, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from heedful.decoding.steps import StepFunction
from heedful.errors import InputError

if TYPE_CHECKING:
    from heedful.decoding.options import SearchOptions


@runtime_checkable
class Covering(Protocol):
    """The additional interface of a step function with a coverage penalty."""

    def coverage(self) -> NDArray[np.float64]:
        """Of each row (rows,) the sum over i of log(min(sum over j of p_ij, 1)), which is 0 at most.

        p_ij is the attention of the step that says what token j may be, to token i of the source as the
        encoder reads it; the latest step counts, so the sum is that of each output which its token ends.
        """
        ...


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
