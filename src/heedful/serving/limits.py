"""Limits and replicas of the service: each field of these frozen values is an option of `heedful serve`."""

from dataclasses import dataclass
from typing import Annotated

from heedful import InputError
from heedful.settings.options import Option, check_options

_LIMITS, _RAY = "Limits", "Ray"
_MOST = 10**9


def _most(text: str, flag: str, *, least: int = 1, most: float = _MOST, heading: str = _LIMITS) -> Option:
    return Option(text, heading, minimum=least, maximum=most, flags=(flag,))


@dataclass(frozen=True, kw_only=True)
class Limits:
    """How much a client may ask, and how much may wait; the options' help says what most of them are.

    Attributes:
        body_seconds: Time for a client to send its body.
        sentence_tokens: Tokens of a sentence; a longer one is translated in parts.
        batch_sentences: Sentences of a batch for the model.
        batch_tokens: Source tokens of a batch: its sentences times the longest of them. An output without an
            end goes on to a limit in proportion to its source, and other requests wait for the batch.
        cached_characters: Characters of sentences and translations in the cache; 0: no cache.
    """

    characters: Annotated[int, _most("Characters of a request.", "--max-characters")] = 5_000
    texts: Annotated[int, _most("Texts of a request.", "--max-texts", most=10**6)] = 128
    alternatives: Annotated[
        int,  # the translation itself is another hypothesis of the beam, which has at most 1,000
        _most("Alternatives of a text.", "--max-alternatives", least=0, most=999),
    ] = 5
    waiting_characters: Annotated[
        int,
        _most("Characters of all requests that are not answered yet; above, status 429.", "--max-waiting"),
    ] = 100_000
    seconds: Annotated[
        float, Option("Seconds for a request.", _LIMITS, above=0, maximum=86_400, flags=("--timeout",))
    ] = 60.0
    body_seconds: float = 10.0
    requests_per_minute: Annotated[
        int,
        _most(
            "Requests per minute per key or address (IPv6: per /64); a sixth of them, at least one, may come "
            "at once; 0 is unlimited.",
            "--rate",
            least=0,
            most=10**6,
            heading="Access",
        ),
    ] = 0
    sentence_tokens: int = 256
    batch_sentences: int = 32
    batch_tokens: int = 512
    cached_characters: int = 10_000_000
    document_bytes: Annotated[int, _most("Bytes of a document.", "--max-document-bytes", most=2**28)] = (
        10 * 2**20
    )
    document_characters: Annotated[
        int, _most("Characters to translate in a document.", "--max-document-characters")
    ] = 1_000_000
    documents: Annotated[
        int,
        _most(
            "Documents that are not removed yet, half of them of one key or address; above, status 429.",
            "--max-documents",
            most=10**6,
        ),
    ] = 100
    document_seconds: Annotated[
        float,
        Option(
            "Seconds until a translated document is removed.",
            _LIMITS,
            above=0,
            maximum=604_800,
            flags=("--keep-documents",),
        ),
    ] = 3_600.0

    @property
    def drain_seconds(self) -> float:
        """Seconds that a stopping server goes on for the requests that it has."""
        return self.seconds + 5

    def __post_init__(self) -> None:
        check_options(self)
        if self.waiting_characters < self.characters:
            raise InputError(
                f"--max-waiting {self.waiting_characters:,}: must be at least --max-characters "
                f"{self.characters:,}, or a request of that length is never admitted"
            )


@dataclass(frozen=True, kw_only=True)
class Replicas:
    """How many replicas of the models there are on Ray.

    Attributes:
        replicas: the number of replicas of each model.
        max_replicas: the most replicas of each model while batches wait; 0: the same number as `replicas`.
        models_per_replica: that a replica holds, if one group of replicas serves all models; 0: each
            model has its own group.
    """

    replicas: Annotated[int, Option("Replicas of each model on Ray.", _RAY, minimum=1, maximum=1000)] = 1
    max_replicas: Annotated[
        int,
        Option(
            "Replicas of each model while batches wait; 0 is always --replicas.",
            _RAY,
            minimum=0,
            maximum=1000,
        ),
    ] = 0
    models_per_replica: Annotated[
        int,
        Option(
            "Serve all models by one group of replicas; each keeps the last N models that were used. 0 is a "
            "group for each model.",
            _RAY,
            minimum=0,
            maximum=1000,
        ),
    ] = 0

    def __post_init__(self) -> None:
        if self.max_replicas and self.max_replicas < self.replicas:
            raise InputError(
                f"--max-replicas {self.max_replicas}: must be at least --replicas {self.replicas}"
            )

    @property
    def highest(self) -> int:
        """The number of replicas of a model while batches wait."""
        return max(self.replicas, self.max_replicas)
