"""How many characters may wait at once, and how soon one should come back where no more are let in."""

import math
import time
from collections.abc import Iterator
from contextlib import contextmanager

from heedful.serving.refusals import SlowDownError

_RECENT = 0.2  # weight of the latest request in the mean duration
_LONGEST_RETRY = 60


class Admission:
    """Counts the characters of all requests that are worked on; for one event loop."""

    def __init__(self, max_characters: int) -> None:
        """Let in requests of up to so many characters together."""
        self._max_characters = max_characters
        self.characters = 0
        self._mean_seconds = 1.0

    @contextmanager
    def admitted(self, characters: int) -> Iterator[None]:
        """Hold the place of a request.

        Raises:
            SlowDownError: there is none; it says when to come back.
        """
        if self.characters + characters > self._max_characters:
            retry = min(_LONGEST_RETRY, max(1, math.ceil(self._mean_seconds)))
            raise SlowDownError("the server has too much to do; try again later", retry_after=retry)
        self.characters += characters
        started = time.monotonic()
        try:
            yield
        finally:
            self.characters -= characters
            self._mean_seconds += _RECENT * (time.monotonic() - started - self._mean_seconds)
