"""The service's options: each field of these frozen values is an option of `heedful serve`."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

from heedful.errors import needing
from heedful.serving.limits import Limits, Replicas
from heedful.settings.options import Option, Runtime

_ACCESS, _LOG = "Access", "Log"
_NEEDED = (
    "uvicorn",
    "fastapi",
    "cachetools",
    "prometheus_client",
    "langcodes",
    "language_data",
    "py3langid",
    "rapidfuzz",
)


@dataclass(frozen=True, kw_only=True)
class Access:
    """Access control."""

    keys: Annotated[
        Path | None,
        Option("API keys; each translation needs one of them.", _ACCESS, metavar="FILE", is_common=True),
    ] = None
    make_key: Annotated[
        str | None,
        Option("Print a new key, and add its hash to --keys.", _ACCESS, metavar="NAME", is_common=True),
    ] = None
    key_adapter: Annotated[
        str | None,
        Option("With --make-key: the adapter of all translations of this key.", _ACCESS, metavar="NAME"),
    ] = None
    revoke_key: Annotated[
        str | None, Option("Remove the key with this name from --keys.", _ACCESS, metavar="NAME")
    ] = None
    list_keys: Annotated[
        bool,
        Option(
            "Print name, label in /metrics and rate of each key of --keys; with --shared, its characters.",
            _ACCESS,
        ),
    ] = False
    cors: Annotated[
        list[str] | None,
        Option(
            "Allow browser requests from this origin (* = any); repeatable.",
            _ACCESS,
            metavar="ORIGIN",
            is_common=True,
        ),
    ] = None
    shared: Annotated[
        str | None,
        Option(
            "Share keys, rates and usage among all processes and machines with this Redis server.",
            _ACCESS,
            metavar="URL",
        ),
    ] = None
    trust_proxy: Annotated[
        list[str] | None,
        Option(
            "Believe the X-Forwarded- headers of this proxy or network about clients; repeatable.",
            _ACCESS,
            metavar="ADDRESS",
        ),
    ] = None


@dataclass(frozen=True, kw_only=True)
class Logging:
    """What the log has besides the state of the server."""

    log_requests: Annotated[
        bool, Option("Log a line for each request: status, time, key, languages, characters.", _LOG)
    ] = False
    log_text: Annotated[bool, Option("Log a line for each request, with its texts.", _LOG)] = False
    log_json: Annotated[bool, Option("Write each line of the log as a JSON object.", _LOG)] = False


@dataclass(frozen=True, kw_only=True)
class ServiceOptions:
    """What is served, where and to whom.

    Attributes:
        search: options of the search by name; others are the bundles'.
    """

    models: Annotated[
        list[str] | None,
        Option(
            "Runs, bundles, Argos packages or models of the hub. Write en-de=RUN if its languages are "
            "not known.",
            metavar="[PAIR=]RUN",
            is_argument=True,
        ),
    ] = None
    host: Annotated[str, Option("Address to listen on; 0.0.0.0 listens on all.")] = "127.0.0.1"
    port: Annotated[int, Option("Port to listen on; 0 picks a free port.", minimum=0, maximum=65535)] = 5000
    workers: Annotated[
        int,
        Option(
            "Number of processes; each has its own models, queue and limits, on Ray only queue and limits.",
            minimum=1,
            maximum=64,
        ),
    ] = 1
    on: Annotated[
        str,
        Option("Where models are served; ray is a Ray cluster, or Ray on this machine.", metavar="here|ray"),
    ] = "here"
    ray: Replicas = field(default_factory=Replicas)
    glossaries: Annotated[
        Path | None, Option("Store the clients' glossaries in this file.", metavar="FILE", is_file=True)
    ] = None
    memories: Annotated[
        Path | None,
        Option("Keep the clients' corrections and translation memories in this directory.", metavar="DIR"),
    ] = None
    adapter: Annotated[
        list[str] | None,
        Option(
            "A run fine-tuned from a served model with LoRA, or its adapter.safetensors or one of PEFT, "
            "which requests choose by this name; or a directory of them, by their names there. Read again "
            "when files change; repeatable.",
            metavar="NAME=RUN|DIR",
        ),
    ] = None
    memory: Annotated[
        list[Path] | None,
        Option(
            "Translation memory in TMX: a sentence with an exact match is translated as there; repeatable.",
            metavar="FILE",
        ),
    ] = None
    verify: Annotated[
        bool, Option("Do not start if a model says something else than its bundle has recorded.")
    ] = False
    search: Mapping[str, Any] = field(default_factory=dict)
    access: Access = field(default_factory=Access)
    limits: Limits = field(default_factory=Limits)
    logging: Logging = field(default_factory=Logging)
    runtime: Runtime = field(default_factory=Runtime)


def check_installed() -> None:
    """Check that the packages of the service are there, before its modules import them.

    Raises:
        MissingExtraError: one is not.
    """
    for name in _NEEDED:
        with needing(f"serving needs {name}", extra="serve"):
            import_module(name)
