"""Origins: which pages may ask from a browser."""

import re
from urllib.parse import urlsplit

from heedful.errors import InputError

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
        raise InputError(f"{text!r}: no origin in the form that browsers send; write {example} (--cors)")


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
