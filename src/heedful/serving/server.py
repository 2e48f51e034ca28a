"""Run the application under uvicorn, in this process or in several."""

import os
import signal
import socket
import sys
from contextlib import suppress
from dataclasses import dataclass
from ipaddress import ip_network
from typing import Any

import psutil
import uvicorn
from fastapi import FastAPI

from heedful.errors import InputError
from heedful.serving.http.protocol import PunctualProtocol

_MAX_HEAD_BYTES = 32_768
_KEEP_ALIVE_SECONDS = 15
_MAX_CONNECTIONS = 10_000
_MAX_BACKLOG = 2048
_MAX_FILES = 20_000  # are asked of the system, enough for all connections
_SPARE_FILES = 32  # for bundles that are opened, and what else a process needs
_WAVES = 4  # of connections that asyncio may have accepted before the protocol hears of the first


@dataclass(frozen=True, kw_only=True)
class ServerOptions:
    """How to listen.

    Attributes:
        host: address.
        port: 0: any that is free.
        workers: processes.
        drain_seconds: how long to go on for those who wait when the server is stopped.
        log_requests: whether each request has a line in the log.
        trusted_proxies: addresses and networks that say in X-Forwarded-For for whom they ask.
    """

    host: str
    port: int
    workers: int
    drain_seconds: float
    log_requests: bool
    trusted_proxies: tuple[str, ...] = ()


def check_address(host: str, port: int) -> None:
    """Check that this machine can listen there, before models are loaded.

    Raises:
        InputError: it cannot, such as where another program listens.
    """
    try:
        for family, kind, protocol, _, address in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM):
            with socket.socket(family, kind, protocol) as probe:
                if os.name == "posix":  # as the server does: connections that have ended hold no port
                    probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                probe.bind(address)
    except (OSError, UnicodeError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise InputError(f"cannot listen on {host}, port {port}: {reason}; see --host and --port") from None


def connection_limits(max_files: int, open_files: int) -> tuple[int, int]:
    """Return how many connections a process can have, and how many it may accept at a time.

    Where no file is left, asyncio stops to accept for a second, and nobody is answered.

    Args:
        max_files: the limit of open files.
        open_files: that it has without connections.
    """
    backlog = max(8, min(_MAX_BACKLOG, max_files // 16))
    return max(1, min(_MAX_CONNECTIONS, max_files - open_files - _SPARE_FILES - _WAVES * backlog)), backlog


def _files() -> tuple[int, int]:
    """Raise the limit of open files as far as the system lets; return it, and how many are open."""
    if sys.platform == "win32":
        return _MAX_FILES, 0  # sockets are no files there
    import resource

    max_files, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if max_files == resource.RLIM_INFINITY:
        max_files = _MAX_FILES
    elif max_files < _MAX_FILES:
        more = _MAX_FILES if hard == resource.RLIM_INFINITY else min(hard, _MAX_FILES)
        with suppress(OSError, ValueError):  # macOS has a limit below the hard one
            resource.setrlimit(resource.RLIMIT_NOFILE, (more, hard))
            max_files = more
    return max_files, psutil.Process().num_fds()


def check_proxy(address: str) -> None:
    """Check that this is the address of a proxy, or a network of them.

    Raises:
        InputError: it is not.
    """
    try:
        ip_network(address)
    except ValueError as error:
        raise InputError(
            f"{address!r}: no address of a proxy ({error}); write 127.0.0.1, or 10.0.0.0/8 (--trust-proxy)"
        ) from None


def run(app: FastAPI | str, options: ServerOptions) -> None:
    """Answer requests until SIGTERM or SIGINT, then those that came before.

    Args:
        app: the application; for several processes the name of a function that makes one in each.
        options: how to listen.
    """
    signal.signal(signal.SIGTERM, _nothing)  # uvicorn raises it again when it has shut down
    max_connections, backlog = connection_limits(*_files())
    uvicorn.run(
        app,
        host=options.host,
        port=options.port,
        factory=isinstance(app, str),
        workers=options.workers,
        http=PunctualProtocol,
        loop="asyncio",  # with uvloop, where it is installed, no more requests are answered
        ws="none",
        lifespan="on",
        log_config=_log_config(requests=options.log_requests),
        access_log=False,  # it would show query strings, and so texts
        server_header=False,
        proxy_headers=bool(options.trusted_proxies),  # by default, uvicorn trusts all of this machine
        forwarded_allow_ips=list(options.trusted_proxies),
        timeout_keep_alive=_KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=int(options.drain_seconds),
        h11_max_incomplete_event_size=_MAX_HEAD_BYTES,
        limit_concurrency=max_connections,
        backlog=backlog,
    )


def _log_config(*, requests: bool) -> dict[str, Any]:
    """Return what is logged, to stderr: how the server does, and requests where that is asked for."""
    on_stderr = {"level": "INFO", "handlers": ["stderr"], "propagate": False}
    return {
        "version": 1,
        "disable_existing_loggers": False,
        "formatters": {"line": {"format": "%(asctime)s %(message)s"}},
        "handlers": {
            "stderr": {"class": "logging.StreamHandler", "formatter": "line", "stream": "ext://sys.stderr"}
        },
        "loggers": {
            "uvicorn": on_stderr,
            "heedful.serving": on_stderr,
            "heedful.serving.access": {"level": "INFO" if requests else "WARNING"},
        },
    }


def _nothing(*_: object) -> None:
    pass
