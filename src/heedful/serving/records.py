"""Records of clients: keys, rates and usage, of this process, or shared by all through Redis."""

import json
import math
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from cachetools import LRUCache

from heedful import InputError
from heedful.errors import MissingExtraError, install_hint
from heedful.serving.access import ApiKey, KeyRing, fingerprint, load_keys, make_key, revoke_key
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


_KEYS, _USAGE, _RATE = "heedful:keys", "heedful:usage", "heedful:rate:"
_SECONDS = 2.0  # for Redis to answer
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
            timeout=_SECONDS,
            socket_timeout=_SECONDS,
            socket_connect_timeout=_SECONDS,
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
            known = await self._redis.hget(_KEYS, digest)
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
            await self._redis.hincrby(_USAGE, client, characters)

    async def characters(self, client: str) -> int:
        """Return how many characters all servers have translated for a client; errors as for `find`."""
        with self._answered():
            return int(await self._redis.hget(_USAGE, client) or 0)

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


def new_key(file: Path, name: str, *, shared: str | None = None, requests_per_minute: int = 0) -> str:
    """Return a new key, after adding its hash to a file, and to a Redis server that shares the keys.

    Raises:
        InputError: the file is not usable, or the server does not answer.
        MissingExtraError: redis is not installed.
    """
    if shared is not None:
        share_keys(shared, None)  # it answers, or no key is made
    key = make_key(file, name, requests_per_minute=requests_per_minute)
    if shared is not None:
        share_keys(shared, load_keys(file))
    return key


def remove_key(file: Path, name: str, *, shared: str | None = None) -> None:
    """Remove a key from a file, and from a Redis server that shares the keys.

    Raises:
        InputError: the file has no such key or is not usable, or the server does not answer.
        MissingExtraError: redis is not installed.
    """
    revoke_key(file, name)
    if shared is not None:
        share_keys(shared, load_keys(file))


def lines_of_keys(file: Path, *, shared: str | None = None) -> list[str]:
    """Return a line for each key: its name, its rate, and with a Redis server the characters translated.

    Raises:
        InputError: the file is not usable, or the server does not answer.
        MissingExtraError: redis is not installed.
    """
    usage: dict[str, str] = {}
    if shared is not None:
        with _redis(shared) as redis:
            usage = redis.hgetall(_USAGE)
    lines = []
    for key in load_keys(file):
        per_minute = key.requests_per_minute
        rate = f"{per_minute} requests per minute" if per_minute else "rate of --rate"
        characters = "" if shared is None else f"\t{int(usage.get(key.name, 0)):,} characters"
        lines.append(f"{key.name}\t{rate}{characters}")
    return lines


def share_keys(url: str, keys: Sequence[ApiKey] | None) -> None:
    """Make these the keys of all servers with the same Redis; None: only see that it answers.

    Raises:
        InputError: it does not answer, or the URL is none of Redis.
        MissingExtraError: redis is not installed.
    """
    values = {
        each.sha256: json.dumps({name: value for name, value in asdict(each).items() if name != "sha256"})
        for each in keys or ()
    }
    with _redis(url) as redis, redis.pipeline() as batch:
        batch.ping()
        if keys is not None:
            batch.delete(_KEYS)
        if values:
            batch.hset(_KEYS, mapping=values)
        batch.execute()


@contextmanager
def _redis(url: str) -> Iterator[Any]:
    """Yield a client of a Redis server; its errors name the option and the URL.

    Raises:
        InputError: it does not answer, or the URL is none of Redis.
        MissingExtraError: redis is not installed.
    """
    try:
        from redis import Redis
        from redis.exceptions import RedisError
    except ImportError:
        raise MissingExtraError(f"--shared needs redis: {install_hint('redis')}") from None
    seconds = {"socket_timeout": _SECONDS, "socket_connect_timeout": _SECONDS}
    try:
        with Redis.from_url(url, decode_responses=True, **seconds) as redis:
            yield redis
    except (RedisError, OSError, ValueError) as error:
        reason = " ".join(str(error).split())
        raise InputError(f"--shared {without_password(url)}: {reason}; write redis://HOST:6379/0") from None


def without_password(url: str) -> str:
    """Return a URL as it may be shown.

    >>> without_password("redis://ann:secret@example.org:6379/0")
    'redis://example.org:6379/0'
    """
    parts = urlsplit(url)
    return parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()


def _capacity(per_minute: int) -> float:
    return max(1.0, per_minute * _BURST / _MINUTE)


def _too_many(per_minute: int, seconds: float) -> TooManyRequestsError:
    return TooManyRequestsError(f"Slowdown: {per_minute} per 1 minute", retry_after=math.ceil(seconds))
