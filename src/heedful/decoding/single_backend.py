"""One backend that exists already, for a generator: another library's, or one of a test."""

from collections.abc import Callable, Sequence
from typing import NoReturn

import numpy as np
from numpy.typing import NDArray

from heedful.decoding.backend import Backend
from heedful.errors import InputError


class SingleBackend:
    """Uses the same backend for every search and score; see `BackendChoice`.

    It has no coverage penalty, and attention weights only where another choice of backends lends them.

    Attributes:
        searching: the backend.
        vocab_size: of the outputs.
        position_limit: how long a sequence may be; None: as long as memory allows.
    """

    def __init__(
        self,
        backend: Backend,
        *,
        vocab_size: int,
        position_limit: int | None,
        attention: Callable[..., list[NDArray[np.float64]]] | None = None,
    ) -> None:
        """Take a backend.

        Args:
            backend: of the steps.
            vocab_size: of the outputs.
            position_limit: how long a sequence may be.
            attention: of another choice of backends, for the same model; None: there is none.
        """
        self.searching = backend
        self.vocab_size = vocab_size
        self.position_limit = position_limit
        self._attention = attention

    @property
    def covering(self) -> NoReturn:
        """See `BackendChoice`.

        Raises:
            InputError: always.
        """
        raise self._without_attention("coverage penalty")

    def attention(
        self, sources: Sequence[Sequence[int]], outputs: Sequence[Sequence[int]], *, start_id: int
    ) -> list[NDArray[np.float64]]:
        """See `BackendChoice`.

        Raises:
            InputError: nothing gives the attention of this model.
        """
        if self._attention is None:
            raise self._without_attention("attention weights")
        return self._attention(sources, outputs, start_id=start_id)

    def _without_attention(self, lacking: str) -> InputError:
        name = self.searching.name
        return InputError(f"engine={name!r} has no {lacking}: it records no attention; engine='torch' does")
