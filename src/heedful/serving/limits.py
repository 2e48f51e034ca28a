"""Limits of the service, each with its default, range and help."""

from dataclasses import dataclass, field, fields
from typing import Any

from heedful.errors import InputError
from heedful.settings.options import Option

_LIMITS, _ACCESS = "Limits", "Access"  # headings of the help


def _limit(default: float, option: Option, *, flag: str | None = None) -> Any:  # noqa: ANN401
    """Return a field that knows its range, its help and the flag of the command line that sets it."""
    return field(default=default, metadata={"option": option, "flag": flag})


def _count(help_text: str, *, maximum: int = 10**9) -> Option:
    return Option(help_text, _LIMITS, minimum=1, maximum=maximum)


@dataclass(frozen=True, kw_only=True)
class Limits:
    """How much clients may ask, and how much may wait.

    The metadata of each field has its `Option` ("option") and the flag that sets it ("flag"; None: no flag).
    """

    characters: int = _limit(5_000, _count("Characters of a request."), flag="--max-characters")
    texts: int = _limit(128, _count("Texts of a request.", maximum=10**6), flag="--max-texts")
    body_bytes: int = _limit(
        2**17, _count("Bytes of a request's body.", maximum=10**11), flag="--max-characters"
    )
    # A search keeps at most 1,000 hypotheses.
    alternatives: int = _limit(
        5, Option("Alternatives of a text.", _LIMITS, minimum=0, maximum=999), flag="--max-alternatives"
    )
    waiting_characters: int = _limit(
        100_000,
        _count("Characters of all requests that are not answered yet; above, status 429."),
        flag="--max-waiting",
    )
    seconds: float = _limit(
        60.0, Option("Seconds for a request.", _LIMITS, above=0, maximum=86_400), flag="--timeout"
    )
    body_seconds: float = _limit(10.0, Option("Seconds for a client to send its body."))
    requests_per_minute: int = _limit(
        0,
        Option("Requests a minute of a key or address; 0: any number.", _ACCESS, minimum=0, maximum=10**6),
        flag="--rate",
    )
    sentence_tokens: int = _limit(
        256, _count("Tokens of a sentence; a longer one is translated in parts.", maximum=10**6)
    )
    batch_sentences: int = _limit(32, _count("Sentences of one batch for the model.", maximum=10**6))
    # An output that does not end goes on to a limit in proportion to its source, and other requests wait for
    # the batch.
    batch_tokens: int = _limit(
        512, _count("Source tokens of one batch: its sentences times the longest of them.")
    )
    batch_wait: float = _limit(0.003, Option("Seconds that an idle model waits to fill a batch."))
    cached_characters: int = _limit(
        10_000_000, Option("Characters of sentences and translations that are remembered; 0: none are.")
    )

    def __post_init__(self) -> None:
        for each in fields(self):
            option, flag = each.metadata["option"], each.metadata["flag"]
            value, least, most = getattr(self, each.name), option.minimum, option.maximum
            hint = f"; see {flag}" if flag else ""
            if least is not None and not least <= value <= most:
                raise InputError(f"{each.name}={value}: must be from {least} to {most:,}{hint}")
            if option.above is not None and not option.above < value <= most:
                raise InputError(
                    f"{each.name}={value}: must be above {option.above} and at most {most:,}{hint}"
                )
        if self.waiting_characters < self.characters:
            raise InputError(
                f"waiting_characters={self.waiting_characters:,}: must be at least characters="
                f"{self.characters:,}, or a request of that length is never let in"
            )
