"""Who asks, how often they may, and how much they have asked."""

import math
import time
from collections import Counter, OrderedDict
from dataclasses import dataclass

from heedful.serving.keys import ApiKey, KeyRing
from heedful.serving.limits import Limits
from heedful.serving.refusals import KeyRefusedError, SlowDownError

_REMEMBERED = 10_000  # clients
_MINUTE = 60.0
_BURST = 10.0  # seconds' worth of requests that may come at once


@dataclass
class _Bucket:
    """A token bucket: requests that a client may send now, and when that was."""

    tokens: float
    at: float


class Clients:
    """Checks keys and rates; for one event loop."""

    def __init__(self, keys: KeyRing | None, limits: Limits) -> None:
        """Take the keys; None: everybody may ask."""
        self._keys = keys
        self._limits = limits
        self._buckets: OrderedDict[str, _Bucket] = OrderedDict()
        self.characters: Counter[str] = Counter()

    @property
    def key_required(self) -> bool:
        """Whether a request needs a key."""
        return self._keys is not None

    def authorize(self, key: str, address: str) -> str:
        """Return the name of a client who may ask now: that of the key, or "" for everybody.

        Args:
            key: of the request; "" where it has none.
            address: of the network, which identifies clients without keys.

        Raises:
            KeyRefusedError: a key is needed, and this is none.
            SlowDownError: too many requests.
        """
        api_key: ApiKey | None = None
        if self._keys is not None:
            api_key = self._keys.find(key) if key else None
            if api_key is None:
                raise KeyRefusedError("Invalid API key" if key else "An API key is required")
        per_minute = self._limits.requests_per_minute
        if api_key is not None and api_key.requests_per_minute:
            per_minute = api_key.requests_per_minute
        if per_minute:
            self._take(f"key {api_key.name}" if api_key else f"address {address}", per_minute)
        return api_key.name if api_key else ""

    def _take(self, client: str, per_minute: int) -> None:
        now = time.monotonic()
        capacity = max(1.0, per_minute * _BURST / _MINUTE)
        bucket = self._buckets.pop(client, None) or _Bucket(capacity, now)
        self._buckets[client] = bucket
        if len(self._buckets) > _REMEMBERED:
            self._buckets.popitem(last=False)
        bucket.tokens = min(capacity, bucket.tokens + (now - bucket.at) * per_minute / _MINUTE)
        bucket.at = now
        if bucket.tokens < 1:
            wait = math.ceil((1 - bucket.tokens) * _MINUTE / per_minute)
            raise SlowDownError(f"Slowdown: {per_minute} per 1 minute", retry_after=wait)
        bucket.tokens -= 1
