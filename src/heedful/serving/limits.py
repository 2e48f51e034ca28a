"""Limits of the service, as one frozen value."""

from dataclasses import dataclass

from heedful.errors import InputError

_MAX_SECONDS = 86_400
# The least and the most of each number, and the option that sets it.
_RANGES = {
    "characters": (1, 10**9, "--max-characters"),
    "texts": (1, 10**6, "--max-texts"),
    "body_bytes": (1, 10**11, "--max-characters"),
    "alternatives": (0, 999, "--max-alternatives"),  # a search keeps at most 1,000 hypotheses
    "waiting_characters": (1, 10**9, "--max-waiting"),
    "requests_per_minute": (0, 10**6, "--rate"),
    "sentence_tokens": (1, 10**6, None),
    "batch_sentences": (1, 10**6, None),
    "batch_tokens": (1, 10**9, None),
}


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
        sentence_tokens: of one sentence; a longer one is translated in parts.
        batch_sentences: of one batch for the model.
        batch_tokens: source tokens of one batch, its sentences times the longest of them: an output that does
            not end goes on to a limit in proportion to its source, and other requests wait for the batch.
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
    sentence_tokens: int = 256
    batch_sentences: int = 32
    batch_tokens: int = 512
    batch_wait: float = 0.003
    cached_characters: int = 10_000_000

    def __post_init__(self) -> None:
        for name, (least, most, option) in _RANGES.items():
            if not least <= getattr(self, name) <= most:
                raise InputError(
                    f"{name}={getattr(self, name)}: must be from {least} to {most:,}"
                    + (f"; see {option}" if option else "")
                )
        if not 0 < self.seconds <= _MAX_SECONDS:
            raise InputError(
                f"seconds={self.seconds}: must be above 0 and at most {_MAX_SECONDS:,}; see --timeout"
            )
        if self.waiting_characters < self.characters:
            raise InputError(
                f"waiting_characters={self.waiting_characters:,}: must be at least characters="
                f"{self.characters:,}, or a request of that length is never let in"
            )
