"""The options of `heedful serve`, in groups."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from heedful.settings.options import Option

_ACCESS, _LIMITS, _LOG = "Access", "Limits", "Log"


@dataclass(frozen=True, kw_only=True)
class Access:
    """Who may ask."""

    keys: Annotated[
        Path | None, Option("API keys, of which each request needs one.", _ACCESS, metavar="FILE")
    ] = None
    make_key: Annotated[
        str | None, Option("Print a new key, and add its hash to --keys.", _ACCESS, metavar="NAME")
    ] = None
    rate: Annotated[
        int, Option("Requests a minute of a key or address; 0: any number.", _ACCESS, minimum=0)
    ] = 0
    cors: Annotated[
        list[str] | None,
        Option(
            "Let pages of this origin ask from a browser, * of all; give it again for more.",
            _ACCESS,
            metavar="ORIGIN",
        ),
    ] = None
    trust_proxy: Annotated[
        list[str] | None,
        Option(
            "Take the clients' addresses from X-Forwarded-For of this proxy or network; repeatable.",
            _ACCESS,
            metavar="ADDRESS",
        ),
    ] = None


@dataclass(frozen=True, kw_only=True)
class Bounds:
    """How much clients may ask."""

    max_characters: Annotated[int, Option("Characters of a request.", _LIMITS, minimum=1)] = 5_000
    max_texts: Annotated[int, Option("Texts of a request.", _LIMITS, minimum=1)] = 128
    max_alternatives: Annotated[int, Option("Alternatives of a text.", _LIMITS, minimum=0)] = 5
    max_waiting: Annotated[
        int,
        Option(
            "Characters of all requests that are not answered yet; above, status 429.", _LIMITS, minimum=1
        ),
    ] = 100_000
    timeout: Annotated[float, Option("Seconds for a request.", _LIMITS, minimum=0.1)] = 60.0


@dataclass(frozen=True, kw_only=True)
class Logging:
    """Lines in the log beside those of how the server does."""

    log_requests: Annotated[bool, Option("A line for each request, without texts.", _LOG)] = False
    log_text: Annotated[bool, Option("A line for each request, with its texts.", _LOG)] = False
