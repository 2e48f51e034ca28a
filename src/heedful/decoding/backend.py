"""A backend computes the steps of a search: for one model or an ensemble."""

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from heedful.decoding.steps import StepFunction
from heedful.precision import Precision

Allowed = Sequence[NDArray[np.int64]] | None  # for each sentence the ids that may be written; None: all


class Backend(Protocol):
    """Makes step functions. It knows ids only: neither text nor how outputs are searched.

    A backend cannot be made for a model that it does not support; what makes one says so before.
    """

    @property
    def name(self) -> str:
        """The name that users know it by."""
        ...

    @property
    def precision(self) -> Precision:
        """The precision of its matrix multiplications."""
        ...

    @property
    def parallel_batches(self) -> int:
        """How many batches to search at the same time, each in a thread of its own."""
        ...

    def step(
        self, sources: Sequence[Sequence[int]], *, threads: int = 1, allowed: Allowed = None
    ) -> AbstractContextManager[StepFunction]:
        """Encode a batch and return its step function, to be used inside the block.

        Args:
            sources: ids with the special tokens that the encoder reads; at least one source.
            threads: for this batch; they change no result.
            allowed: for each source the ids that its output may consist of, ascending; None: all.
        """
        ...

    def forced_step(
        self,
        sources: Sequence[Sequence[int]],
        outputs: Sequence[Sequence[int]],
        *,
        start_id: int,
        threads: int = 1,
        allowed: Allowed = None,
    ) -> AbstractContextManager[StepFunction]:
        """Return a step function for teacher forcing: its input ids are the reference outputs only.

        It gives what `step` gives, up to rounding, and may compute all positions at once.
        """
        ...


class BackendChoice(Protocol):
    """The backends of a model or an ensemble, for a generator."""

    @property
    def searching(self) -> Backend:
        """The backend of searches and scores."""
        ...

    @property
    def covering(self) -> Backend:
        """The backend of searches with a coverage penalty, which needs attention.

        Raises:
            InputError: there is none.
        """
        ...

    @property
    def position_limit(self) -> int | None:
        """How long a sequence may be; None: as long as memory allows."""
        ...

    @property
    def vocab_size(self) -> int:
        """The size of the target vocabulary."""
        ...

    def attention(
        self, sources: Sequence[Sequence[int]], outputs: Sequence[Sequence[int]], *, start_id: int
    ) -> list[NDArray[np.float64]]:
        """Return for each output of a batch the cross-attention weights (T, S)."""
        ...
