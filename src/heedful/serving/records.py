"""Records of clients: keys, rates and usage, of this process, or shared by all through Redis."""

import json
import math
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cachetools import LRUCache

from heedful.serving.access import REDIS_SECONDS, SHARED_KEYS, SHARED_USAGE, ApiKey, KeyRing, fingerprint
from heedful.serving.refusals import TooManyRequestsError, UnavailableError

if TYPE_CHECKING:
    from redis.asyncio import Redis

_REMEMBERED = 10_000  # clients
_MINUTE = 60.0
_BURST = 10.0  # seconds' worth of requests that may come at once


@dataclass
class _Bucket:
    """A token bucket: requests that a client may send now, and when that was."""

    tokens: float
    at: float


class ClientRecords:
    """The records of one process; for one event loop."""

    def __init__(self, keys: KeyRing | None) -> None:
        """Take the keys; None: requests need no key."""
        self.key_required = keys is not None
        self._keys = keys or KeyRing()
        self._buckets: LRUCache[str, _Bucket] = LRUCache(_REMEMBERED)
        self._characters: Counter[str] = Counter()

    async def find(self, key: str) -> ApiKey | None:
        """Return the record of a key; None if the key is not known."""
        return self._keys.find(key)

    async def count_request(self, client: str, per_minute: int) -> None:
        """Count a request of a client who may send `per_minute` requests in a minute.

        Raises:
            TooManyRequestsError: it is one too many; it says when to come back.
        """
        now = time.monotonic()
        capacity = _capacity(per_minute)
        bucket = self._buckets.setdefault(client, _Bucket(capacity, now))
        bucket.tokens = min(capacity, bucket.tokens + (now - bucket.at) * per_minute / _MINUTE)
        bucket.at = now
        if bucket.tokens < 1:
            raise _too_many(per_minute, (1 - bucket.tokens) * _MINUTE / per_minute)
        bucket.tokens -= 1

    async def add_characters(self, client: str, characters: int) -> None:
        """Add characters that a client has had translated."""
        self._characters[client] += characters

    async def characters(self, client: str) -> int:
        """Return how many characters a client has had translated."""
        return self._characters[client]

    async def close(self) -> None:
        """Close what is open."""


_RATE = "heedful:rate:"
_CONNECTIONS = 16  # of a process; requests wait for a free one
_RETRY = 5
# A token bucket by the clock of the Redis server; returns the seconds until the request may come, 0: now.
_TAKE = """
local time = redis.call('TIME')
local now = time[1] + time[2] / 1e6
local capacity, rate = tonumber(ARGV[1]), tonumber(ARGV[2])
local bucket = redis.call('HMGET', KEYS[1], 'tokens', 'at')
local tokens = (tonumber(bucket[1]) or capacity) + math.max(0, now - (tonumber(bucket[2]) or now)) * rate
tokens = math.min(capacity, tokens)
local wait = 0
if tokens < 1 then wait = (1 - tokens) / rate else tokens = tokens - 1 end
redis.call('HSET', KEYS[1], 'tokens', string.format('%.9f', tokens), 'at', string.format('%.6f', now))
redis.call('EXPIRE', KEYS[1], math.ceil(capacity / rate) + 1)
return string.format('%.6f', wait)
"""


class SharedRecords(ClientRecords):
    """The records of all servers with the same Redis; for one event loop."""

    def __init__(self, url: str, *, key_required: bool) -> None:
        """Take the URL of the server, and whether each request needs a key."""
        super().__init__(KeyRing() if key_required else None)
        from redis import asyncio
        from redis.exceptions import RedisError

        pool = asyncio.BlockingConnectionPool.from_url(
            url,
            max_connections=_CONNECTIONS,
            timeout=REDIS_SECONDS,
            socket_timeout=REDIS_SECONDS,
            socket_connect_timeout=REDIS_SECONDS,
            decode_responses=True,
        )
        self._redis: Redis = asyncio.Redis.from_pool(pool)
        self._errors = (RedisError, OSError)
        self._take = self._redis.register_script(_TAKE)

    async def find(self, key: str) -> ApiKey | None:
        """Return the record of a key; None if the key is not known.

        Raises:
            UnavailableError: Redis does not answer.
        """
        digest = fingerprint(key)
        with self._answered():
            known = await self._redis.hget(SHARED_KEYS, digest)
        return None if known is None else ApiKey(sha256=digest, **json.loads(known))

    async def count_request(self, client: str, per_minute: int) -> None:
        """Count a request of a client who may send `per_minute` requests to all servers together.

        Raises:
            TooManyRequestsError: it is one too many; it says when to come back.
            UnavailableError: Redis does not answer.
        """
        with self._answered():
            wait = await self._take(keys=[_RATE + client], args=[_capacity(per_minute), per_minute / _MINUTE])
        if float(wait):
            raise _too_many(per_minute, float(wait))

    async def add_characters(self, client: str, characters: int) -> None:
        """Add to the count of characters that were translated for a client; errors as for `find`."""
        with self._answered():
            await self._redis.hincrby(SHARED_USAGE, client, characters)

    async def characters(self, client: str) -> int:
        """Return how many characters all servers have translated for a client; errors as for `find`."""
        with self._answered():
            return int(await self._redis.hget(SHARED_USAGE, client) or 0)

    async def close(self) -> None:
        """Close the connections."""
        await self._redis.aclose()

    @contextmanager
    def _answered(self) -> Iterator[None]:
        try:
            yield
        except self._errors:
            message = "the records of clients cannot be reached; try again later"
            raise UnavailableError(message, retry_after=_RETRY) from None


def _capacity(per_minute: int) -> float:
    return max(1.0, per_minute * _BURST / _MINUTE)


def _too_many(per_minute: int, seconds: float) -> TooManyRequestsError:
    return TooManyRequestsError(f"Slowdown: {per_minute} per 1 minute", retry_after=math.ceil(seconds))
