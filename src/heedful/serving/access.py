"""API keys, and origins of pages that may ask: authorisation."""

import hashlib
import json
import logging
import re
import secrets
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from ipaddress import ip_network
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import urlsplit

import filelock
from pydantic import BaseModel, Field

from heedful import InputError
from heedful.errors import needing
from heedful.runtime.durable import atomic_output
from heedful.settings.parsing import parse_json

ANY = "*"
_HOST = re.compile(r"[a-z0-9._-]+|[0-9a-f:.]+")  # a name, or an IPv6 address
_DEFAULT_PORTS = {"http": 80, "https": 443}


def check_origin(text: str) -> None:
    """Check that browsers may send this as the origin of a page; "*" stands for all.

    Origins are compared as texts: one with a path, a capital letter or a scheme's own port matches no page
    (RFC 6454, section 6.2).

    Raises:
        InputError: they never do.
    """
    origin = "scheme and host, as https://example.org, or * for all pages"
    with suppress(ValueError):  # a port that is none, or half an address
        url = urlsplit(text)
        if url.scheme and url.hostname is not None and _HOST.fullmatch(url.hostname):
            host = f"[{url.hostname}]" if ":" in url.hostname else url.hostname
            port = "" if url.port in (None, _DEFAULT_PORTS.get(url.scheme)) else f":{url.port}"
            origin = f"{url.scheme}://{host}{port}"
    if text not in (ANY, origin):
        raise InputError(f"{text!r}: not an origin as browsers send it; write {origin} (--cors)")


def check_proxy(address: str) -> None:
    """Check that this is the address of a proxy, or a network of them.

    Raises:
        InputError: it is not.
    """
    try:
        ip_network(address)
    except ValueError as error:
        raise InputError(
            f"{address!r}: not a proxy's address ({error}); write 127.0.0.1, or 10.0.0.0/8 (--trust-proxy)"
        ) from None


SHARED_KEYS, SHARED_USAGE = "heedful:keys", "heedful:usage"  # in Redis
REDIS_SECONDS = 2.0  # for Redis to answer
_PREFIX = "heedful-"
_LOCK_SECONDS = 5.0  # that a change waits for another process
_log = logging.getLogger("heedful.serving")


@dataclass(frozen=True)
class ApiKey:
    """A key as it is kept.

    Attributes:
        name: the client for whom it was made.
        sha256: of the key, which has 256 random bits and so needs no slow hash.
        requests_per_minute: 0: as the server's limits say.
        adapter: the name of the adapter of all its translations; "": requests may name any.
    """

    name: str
    sha256: str
    requests_per_minute: Annotated[int, Field(ge=0)] = 0
    adapter: str = ""


class _KeyFile(BaseModel):
    keys: tuple[ApiKey, ...]


class KeyRing:
    """The keys that a server accepts: a fixed list, or a file that is read again when it changes."""

    def __init__(self, keys: Sequence[ApiKey] = (), *, path: Path | None = None) -> None:
        """Take keys, or the file that has them.

        Raises:
            InputError: the file cannot be read, or is not a file of keys.
        """
        self._path, self._stamp = path, stamp_of(path)
        self.keys = tuple(keys) if path is None else tuple(load_keys(path))

    def find(self, key: str) -> ApiKey | None:
        """Look a key up by its hash, so that the time tells nothing about it; None if it is unknown."""
        if self._path is not None and (stamp := stamp_of(self._path)) != self._stamp:
            self._stamp = stamp
            try:
                self.keys = tuple(load_keys(self._path))
            except InputError as error:  # the keys that were read before stay valid
                _log.error("the keys cannot be read again: %s", error)
        return {known.sha256: known for known in self.keys}.get(fingerprint(key))


def stamp_of(path: Path | None) -> tuple[int, ...] | None:
    """Return numbers that change when a file is replaced; None: there is no file."""
    if path is None:
        return None
    with suppress(OSError):
        status = path.stat()
        return status.st_ino, status.st_size, status.st_mtime_ns
    return None


def load_keys(path: Path) -> list[ApiKey]:
    """Return the keys of a file.

    Raises:
        InputError: it cannot be read, or holds something else.
    """
    try:
        return list(_KeyFile.model_validate(parse_json(path.read_bytes())).keys)
    except (OSError, ValueError) as error:
        reason = str(error).splitlines()[0]
        raise InputError(
            f"{path}: not a file of keys ({reason}); make one: heedful serve --make-key NAME --keys FILE"
        ) from None


def make_key(
    path: Path, name: str, *, shared: str | None = None, requests_per_minute: int = 0, adapter: str = ""
) -> str:
    """Return a new key, and add its hash to a file that only its owner can read.

    Args:
        path: the file.
        name: the client.
        shared: the URL of a Redis server that shares the keys of the file; None: there is none.
        requests_per_minute: what the client may send; 0: as the server's limits say.
        adapter: the name of the adapter of all its translations; "": requests may name any.

    Raises:
        InputError: the file is not a file of keys, is locked, or has a key with this name, the name cannot
            be printed, or the server does not answer.
        MissingExtraError: redis is not installed.
    """
    if not name.strip() or not name.isprintable():
        raise InputError(f"{name!r}: not a name for a key; use printable characters only")
    key = _PREFIX + secrets.token_urlsafe(32)

    def add(keys: list[ApiKey]) -> list[ApiKey]:
        if any(known.name == name for known in keys):
            raise InputError(f"{path}: there is a key for {name!r}; take another name, or --revoke-key it")
        return [*keys, ApiKey(name, fingerprint(key), requests_per_minute, adapter)]

    if shared is not None:
        share_keys(shared, None)  # it answers, or no key is made
    _change_keys(path, add, shared)
    return key


def revoke_key(path: Path, name: str, *, shared: str | None = None) -> None:
    """Remove the key with this name from a file, and from a Redis server that shares its keys.

    Raises:
        InputError: the file is missing, is not a file of keys, is locked, or has no such key, or the server
            does not answer.
        MissingExtraError: redis is not installed.
    """

    def remove(keys: list[ApiKey]) -> list[ApiKey]:
        kept = [key for key in keys if key.name != name]
        if len(kept) == len(keys):
            raise InputError(f"{path}: there is no key for {name!r}; --list-keys shows the names")
        return kept

    if not path.exists():
        raise InputError(f"{path}: no such file")
    _change_keys(path, remove, shared)


def _change_keys(path: Path, work: Callable[[list[ApiKey]], list[ApiKey]], shared: str | None) -> None:
    try:
        with locked(path):
            keys = work(load_keys(path) if path.exists() else [])
            put_private_file(path, json.dumps({"keys": list(map(asdict, keys))}, indent=1) + "\n")
    except filelock.Timeout:
        raise InputError(f"{path}: another process is changing it; try again") from None
    if shared is not None:
        share_keys(shared, load_keys(path))


def lines_of_keys(file: Path, *, shared: str | None = None) -> list[str]:
    """Return a line for each key: name, label in /metrics, rate, characters with a Redis server, adapter.

    Raises:
        InputError: the file is not usable, or the server does not answer.
        MissingExtraError: redis is not installed.
    """
    usage: dict[str, str] = {}
    if shared is not None:
        with _redis(shared) as redis:
            usage = redis.hgetall(SHARED_USAGE)
    lines = []
    for key in load_keys(file):
        per_minute = key.requests_per_minute
        rate = f"{per_minute} requests per minute" if per_minute else "rate of --rate"
        characters = "" if shared is None else f"\t{int(usage.get(key.name, 0)):,} characters"
        adapter = f"\tadapter {key.adapter}" if key.adapter else ""
        lines.append(f"{key.name}\t{label_of_key(key.name)}\t{rate}{characters}{adapter}")
    return lines


def share_keys(url: str, keys: Sequence[ApiKey] | None) -> None:
    """Make these the keys of all servers with the same Redis; None: only see that it answers.

    Raises:
        InputError: it does not answer, or the URL is none of Redis.
        MissingExtraError: redis is not installed.
    """
    values = {
        key.sha256: json.dumps({field: value for field, value in asdict(key).items() if field != "sha256"})
        for key in keys or ()
    }
    with _redis(url) as redis, redis.pipeline() as batch:
        batch.ping()
        if keys is not None:
            batch.delete(SHARED_KEYS)
        if values:
            batch.hset(SHARED_KEYS, mapping=values)
        batch.execute()


@contextmanager
def _redis(url: str) -> Iterator[Any]:
    """Yield a client of a Redis server; its errors name the option and the URL.

    Raises:
        InputError: it does not answer, or the URL is none of Redis.
        MissingExtraError: redis is not installed.
    """
    with needing("--shared needs redis", extra="redis"):
        from redis import Redis
        from redis.exceptions import RedisError
    seconds = {"socket_timeout": REDIS_SECONDS, "socket_connect_timeout": REDIS_SECONDS}
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


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Let no other process change a file until the end of the block.

    Raises:
        Timeout: another process has it locked for too long.
        OSError: the lock beside the file cannot be written.
    """
    path = path.resolve()
    with filelock.FileLock(path.with_name(f"{path.name}.lock"), timeout=_LOCK_SECONDS):
        yield


def put_private_file(path: Path, text: str) -> None:
    """Write a file whole: a new one is its owner's alone, an existing one keeps its mode and its links.

    Raises:
        OSError: it fails; an existing file is unchanged.
    """
    path = path.resolve()
    temporary = path.with_name(f".{path.name}.heedful-writing")
    temporary.touch(mode=0o600)
    with atomic_output(path, temporary=temporary) as file:
        file.write(text.encode())


def label_of_key(name: str) -> str:
    """Return how /metrics, which anybody may read, names a key: its name is often an address.

    >>> label_of_key("ann")
    '49915e0d7d4b'
    """
    return fingerprint(name)[:12]


def fingerprint(key: str) -> str:
    """Return the checksum of a key, as it is kept."""
    return hashlib.sha256(key.encode("utf-8", "surrogatepass")).hexdigest()
