"""One backend that exists already, for a generator: another library's, or one of a test."""

from heedful.decoding.backend import AttentionBackend, Backend, BackendChoice
from heedful.errors import InputError


class SingleBackend:
    """Uses the same backend for every search and score; see `BackendChoice`.

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
        lender: BackendChoice | None = None,
    ) -> None:
        """Take a backend.

        Args:
            backend: of the steps.
            vocab_size: of the outputs.
            position_limit: how long a sequence may be.
            lender: gives attention weights of the same model where the backend itself gives none.
        """
        self.searching = backend
        self.vocab_size = vocab_size
        self.position_limit = position_limit
        self._lender = lender

    @property
    def attending(self) -> AttentionBackend:
        """See `BackendChoice`.

        Raises:
            InputError: nothing gives the attention of this model.
        """
        if isinstance(self.searching, AttentionBackend):
            return self.searching
        if self._lender is None:
            raise InputError(f"engine={self.searching.name!r} records no attention; engine='auto' does")
        return self._lender.attending
