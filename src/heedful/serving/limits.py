"""Limits of the service, as one frozen value."""

from dataclasses import dataclass

from heedful.errors import InputError

_MAX_SECONDS = 86_400


@dataclass(frozen=True, kw_only=True)
class Limits:
    """How much a client may ask, and how much may wait.

    Attributes:
        characters: of all texts of one request.
        texts: of one request.
        body_bytes: of a request's body.
        alternatives: of one text.
        waiting_characters: of all requests that are admitted and not yet answered; beyond them the answer
            is 429.
        seconds: for one request, before it is given up.
        body_seconds: for a client to send its body.
        requests_per_minute: of one key or address; 0: any number.
        batch_sentences: of one batch for the model.
        batch_wait: seconds that an idle model waits for sentences to compute together.
        cached_characters: of sentences and translations that are remembered; 0: none are.
    """

    characters: int = 5_000
    texts: int = 128
    body_bytes: int = 2**17
    alternatives: int = 5
    waiting_characters: int = 100_000
    seconds: float = 60.0
    body_seconds: float = 10.0
    requests_per_minute: int = 0
    batch_sentences: int = 32
    batch_wait: float = 0.003
    cached_characters: int = 10_000_000

    def __post_init__(self) -> None:
        for name in ("characters", "texts", "body_bytes", "batch_sentences"):
            if getattr(self, name) < 1:
                raise InputError(f"{name}={getattr(self, name)}: must be at least 1")
        if not 0 < self.seconds <= _MAX_SECONDS:
            raise InputError(f"seconds={self.seconds}: must be above 0 and at most {_MAX_SECONDS:,}")
        if self.waiting_characters < self.characters:
            raise InputError(
                f"waiting_characters={self.waiting_characters:,}: must be at least characters="
                f"{self.characters:,}, or a request of that length is never let in"
            )
