"""API keys, and origins of pages that may ask: authorisation."""

import hashlib
import hmac
import json
import re
import secrets
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated
from urllib.parse import urlsplit

from pydantic import BaseModel, Field

from heedful.errors import InputError
from heedful.runtime.durable import write_atomically
from heedful.settings.parsing import parse_json, read_limited

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
    if text == ANY:
        return
    usual = _usual_form(text)
    if text != usual:
        example = usual or "scheme and host, as https://example.org, or * for all pages"
        raise InputError(f"{text!r}: not an origin as browsers send it; write {example} (--cors)")


def _usual_form(text: str) -> str | None:
    """Return the origin of a URL; None where it has none."""
    try:
        url = urlsplit(text)
        host, port = url.hostname, url.port
    except ValueError:  # a port that is none, or half an address
        return None
    if not url.scheme or host is None or not _HOST.fullmatch(host):
        return None
    name = f"[{host}]" if ":" in host else host
    return f"{url.scheme}://{name}" + ("" if port in (None, _DEFAULT_PORTS.get(url.scheme)) else f":{port}")


_PREFIX = "hf-"


@dataclass(frozen=True)
class ApiKey:
    """A key as it is kept.

    Attributes:
        name: of whom it was made for.
        sha256: of the key, which has 256 random bits and so needs no slow hash.
        requests_per_minute: 0: as the server's limits say.
    """

    name: str
    sha256: str
    requests_per_minute: Annotated[int, Field(ge=0)] = 0


class _KeyFile(BaseModel):
    keys: tuple[ApiKey, ...]


class KeyRing:
    """The keys that a server accepts."""

    def __init__(self, keys: Sequence[ApiKey]) -> None:
        """Take the keys."""
        self._keys = tuple(keys)

    def find(self, key: str) -> ApiKey | None:
        """Return the key, in a time that does not depend on which it is; None for an unknown one."""
        digest = fingerprint(key)
        match = None
        for each in self._keys:
            if hmac.compare_digest(each.sha256, digest):
                match = each
        return match


def load_keys(path: Path) -> list[ApiKey]:
    """Return the keys of a file.

    Raises:
        InputError: it cannot be read, or holds something else.
    """
    try:
        return list(_KeyFile.model_validate(parse_json(read_limited(path))).keys)
    except (OSError, ValueError) as error:
        reason = str(error).splitlines()[0]
        raise InputError(
            f"{path}: not a file of keys ({reason}); make one: heedful serve --make-key NAME --keys FILE"
        ) from None


def make_key(path: Path, name: str, *, requests_per_minute: int = 0) -> str:
    """Return a new key, and add its hash to a file, which only its owner can read.

    Raises:
        InputError: the file holds something else, or has a key of that name, or it is no name.
    """
    if not name.strip() or not name.isprintable():
        raise InputError(f"{name!r}: not a name for a key; use printable characters only")
    keys = load_keys(path) if path.exists() else []
    if name in (key.name for key in keys):
        raise InputError(f"{path}: there is a key for {name!r}; take another name, or remove that one")
    key = _PREFIX + secrets.token_urlsafe(32)
    keys.append(ApiKey(name, fingerprint(key), requests_per_minute))
    path.touch(mode=0o600)
    write_atomically(path, json.dumps({"keys": [asdict(each) for each in keys]}, indent=1) + "\n")
    path.chmod(0o600)
    return key


def fingerprint(key: str) -> str:
    """Return the checksum of a key, as it is kept."""
    return hashlib.sha256(key.encode("utf-8", "surrogatepass")).hexdigest()
