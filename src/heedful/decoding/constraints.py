"""Which tokens may come next: what is never chosen, and where there is no choice."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from heedful.decoding.options import SearchOptions
from heedful.decoding.step_function import top_candidates
from heedful.errors import InputError


@dataclass(frozen=True, kw_only=True)
class Constraints:
    """What the options of a search allow to come next; see `SearchOptions` for the attributes.

    A suppressed token is impossible; the probabilities of the others stay what they are, unless they are to
    be renormalised. A forced token has the log-probability 0, for it is no choice, and counts in the length;
    it overrules what is suppressed.
    """

    eos_id: int
    suppressed_ids: Sequence[int]
    renormalize: bool
    min_length: int
    forced_first_id: int | None
    forced_last_id: int | None

    @classmethod
    def of(cls, options: SearchOptions, *, start_id: int, eos_id: int, pad_id: int) -> "Constraints":
        """The constraints of a search; the end token is suppressed only where the options name it."""
        suppressed = options.suppressed_ids
        return cls(
            eos_id=eos_id,
            suppressed_ids=sorted({start_id, pad_id} - {eos_id}) if suppressed is None else suppressed,
            renormalize=options.renormalize,
            min_length=options.min_length,
            forced_first_id=options.forced_first_id,
            forced_last_id=options.forced_last_id,
        )

    def candidates(
        self, log_probs: Tensor, count: int, *, length: int, is_last: NDArray[np.bool_]
    ) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
        """The `count` best tokens that may follow `length` others.

        Args:
            log_probs: (rows, V), the model's.
            count: how many; fewer come back when V is smaller.
            length: how many tokens each row has so far.
            is_last: (rows,), where the next place is the last that the length limit allows.

        Returns:
            Log-probabilities and ids, each (rows, min(count, V)), best first; -inf is impossible.

        Raises:
            InputError: log-probabilities that are not numbers, or a forced token that does not exist.
        """
        too_short = (self.eos_id,) if length < self.min_length else ()
        suppressed = (*self.suppressed_ids, *too_short)
        if self.renormalize and suppressed:
            impossible = torch.tensor(suppressed, device=log_probs.device)
            log_probs = log_probs.index_fill(-1, impossible, -torch.inf).log_softmax(-1)
        values, ids = top_candidates(log_probs, count, suppressed)
        is_first = np.full(len(is_last), length == 0)
        for name, rows in (("forced_first_id", is_first), ("forced_last_id", is_last)):
            forced = getattr(self, name)
            if forced is not None and rows.any():
                if forced >= log_probs.shape[-1]:
                    raise InputError(f"{name}={forced}: the model has {log_probs.shape[-1]:,} tokens")
                values[rows] = -np.inf
                values[rows, 0], ids[rows, 0] = 0.0, forced
        return values, ids
