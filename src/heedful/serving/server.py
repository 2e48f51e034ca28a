"""Run the application under uvicorn, for clients that are slow, send too much, or leave.

uvicorn limits how long a connection may be idle, and nothing else. Here every head, every body that no route
reads, and every answer that is not read has its time; heads have a size; what is refused is read on for a
while, so that the client sees the answer; a connection that waits for its client makes way for a new one.
"""

import asyncio
import errno
import json
import logging
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from datetime import UTC, datetime
from http.client import HTTPConnection, HTTPException
from typing import Any, Literal, cast

import h11
import psutil
from fastapi import FastAPI
from uvicorn.config import Config
from uvicorn.protocols.http.h11_impl import STATUS_PHRASES, H11Protocol
from uvicorn.server import Server, ServerState
from uvicorn.supervisors.multiprocess import Multiprocess

from heedful import InputError
from heedful.serving.options import Logging, ServiceOptions

CLOSING = "heedful.closing"  # in the scope of a request that is its connection's last
DELIVERED = "delivered"  # in the state of a request: says whether its client got the answer
WITHOUT_BODY = "heedful.without_body"  # in the scope of a HEAD request
_VERSION = b"HTTP/1.1 "  # with which every answer begins, to clients of HTTP/1.0 too
_GONE_SECONDS = 0.2  # between two looks at whether a client that sends no more is still there
_BREAKING_SECONDS = 2.0  # in which a client that did not read all of an answer closes the connection
_LINGERING_BYTES = 2**26  # that are read of a request that is refused
_SECONDS_BETWEEN_LINES = 60.0  # about connections that cannot be accepted
_REFUSED = {
    400: "Invalid HTTP request",
    414: "The address is too long",
    431: "The head of the request is too long",
}
_LENGTHS = {b"content-length", b"transfer-encoding"}
# What a connection waits for: the head or body of a request; the client to read an answer; a client that has
# closed its side to take its answers; the end of the connection after a refusal.
_Awaited = Literal["head", "body", "client reads", "half-closed", "after refusal"]
_KeepOpen = Any  # a bool, as asyncio asks for; uvicorn's method says None
_log = logging.getLogger("heedful.serving")


class HeaderTimeoutProtocol(H11Protocol):
    """Closes a connection if its client takes too long: it would hold a place for ever.

    Attributes:
        read_seconds: the time to read a head, from its first byte (of a new connection: from its opening),
            the rest of a body after its answer, and what follows a refusal.
        write_seconds: the time for a client to read anything of an answer that waits to be sent.
    """

    read_seconds = 10.0
    write_seconds = 30.0

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        *,
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        super().__init__(config, server_state, {**app_state, DELIVERED: self.delivered}, _loop)
        self.conn: _Connection = _Connection(self.config.h11_max_incomplete_event_size)
        self._awaited: _Awaited | None = None  # of the client, by its clock
        self._clock: asyncio.TimerHandle | None = None
        self._unsent = 0  # bytes, when the clock was set
        self._lingering: int | None = None  # bytes that were read since the refusal
        self._half_closed = False  # by a client that has sent all, and waits for answers
        self._sent_version = False  # before the rest of the answer
        self._ending = False  # the server is
        self._waiting_since = 0.0  # for the client
        self._is_cut = False  # the connection, because its client is gone or does nothing
        self._is_broken: bool | None = None  # None: the connection is open; False: closed; True: broken off

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Start the clock, and see that there are not too many connections."""
        assert isinstance(transport, asyncio.Transport)
        # An answer has two parts, its head and its text. Without this, the second waits up to 40 ms until the
        # client has said that it got the first. asyncio sees to it, but not for sockets of uvicorn's workers.
        transport.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket = transport
        super().connection_made(cast(asyncio.Transport, _LingeringTransport(transport, self)))
        self._waiting_since = self.loop.time()
        self._limit_connections()
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop the clock."""
        self._is_broken = self._is_cut or exc is not None
        self._watch()
        super().connection_lost(exc)

    async def delivered(self) -> bool:
        """Return whether the client got all of the answer: it has what was sent, and does not break off."""
        now = self.loop.time()
        sure, given_up = now + _BREAKING_SECONDS, now + self.write_seconds
        while self.loop.time() < given_up:
            if self._is_broken is not None:
                return not self._is_broken
            num_unsent = self._socket.get_write_buffer_size() + _unsent_by_system(self._socket)
            if not num_unsent and self.loop.time() >= sure:
                return True
            await asyncio.sleep(_GONE_SECONDS)
        return False

    def data_received(self, data: bytes) -> None:
        """Take bytes of the client; after a refusal, drop them."""
        if self._lingering is None:
            super().data_received(data)
            self._watch()
            return
        self._lingering += len(data)
        if self._lingering > _LINGERING_BYTES:
            self._socket.abort()

    def eof_received(self) -> _KeepOpen:
        """Keep the connection for the answers that are asked for; says whether it does.

        A client that is gone looks like one that only sends no more, until it gets something: it answers that
        with a reset. So it gets the first bytes of its answer, which are always the same.
        """
        cycle: Any = self.cycle
        if self.waits_for_client or self._lingering is not None:
            return False
        self._half_closed = True
        if not cycle.response_started:
            self._socket.write(_VERSION)
            self._sent_version = True
        self._watch()
        return True

    def write(self, data: bytes) -> None:
        """Send part of an answer, without what was sent of it before it was known."""
        if self._sent_version and data:
            self._sent_version, data = False, data.removeprefix(_VERSION)
        self._socket.write(data)

    def on_response_complete(self) -> None:
        """Wait for the next request, or for the rest of the body, or close the connection."""
        self._waiting_since = self.loop.time()
        super().on_response_complete()
        self._watch()

    def pause_writing(self) -> None:
        """Set the clock: the client does not read."""
        super().pause_writing()
        self._watch()

    def resume_writing(self) -> None:
        """Stop the clock, unless what is left must be sent before the connection closes."""
        super().resume_writing()
        self._watch()

    def send_400_response(self, msg: str) -> None:
        """Refuse what is no HTTP, or too long, and say which."""
        cycle: Any = self.cycle
        if cycle is not None and not cycle.response_complete:  # that answer is not waited for any more
            cycle.disconnected = True
            cycle.message_event.set()
        status = self.conn.refusal
        body = json.dumps({"error": _REFUSED[status]}).encode()
        headers = [("Content-Type", "application/json"), ("Content-Length", str(len(body)))]
        head = h11.Response(
            status_code=status, headers=[*headers, ("Connection", "close")], reason=STATUS_PHRASES[status]
        )
        try:
            for event in (head, h11.Data(data=body), h11.EndOfMessage()):
                self._socket.write(self.conn.send(event) or b"")
        except h11.LocalProtocolError:  # in the middle of an answer
            self._socket.abort()
        else:
            self._linger()

    def shutdown(self) -> None:
        """Close the connection, after the answer that is on its way: `CLOSING` makes it say so."""
        self._ending = True
        if self._lingering is not None:
            self._socket.close()
            return
        if self.cycle is not None and not self.cycle.response_complete:
            cast(dict[str, Any], self.scope)[CLOSING] = True
        super().shutdown()

    @property
    def waits_for_client(self) -> bool:
        """Whether the next to do something is the client: it sends a head or a body, or reads an answer."""
        cycle: Any = self.cycle
        return cycle is None or cycle.response_complete or cycle.more_body or self.flow.write_paused

    @property
    def is_closing(self) -> bool:
        """Whether nothing more is answered."""
        return self._lingering is not None or self._socket.is_closing()

    def close(self) -> None:
        """Close the connection, at once or when the client has had the time to read why."""
        may_send = self.conn.their_state in (h11.SEND_BODY, h11.ERROR) or self.flow.read_paused
        if may_send and not (self.is_closing or self._half_closed or self._ending):
            self._linger()
        else:
            self._close_soon()

    def _close_soon(self) -> None:
        self._socket.close()
        self._watch()

    def _linger(self) -> None:
        """Send no more, and read on: closed with bytes unread, a connection is reset, and the answer lost."""
        self._lingering = 0
        self._watch()
        self._socket.resume_reading()
        if self._socket.can_write_eof():
            self._socket.write_eof()

    def _limit_connections(self) -> None:
        """Close the connection that has waited longest for its client, if there are too many."""
        if self.limit_concurrency is None or len(self.connections) < self.limit_concurrency:
            return
        others = [
            each
            for each in cast(set[HeaderTimeoutProtocol], self.connections)
            if each is not self and each.waits_for_client and not each._socket.is_closing()
        ]
        if others:
            min(others, key=lambda each: each._waiting_since)._cut()

    def _watch(self) -> None:
        """Set the clock of what the client is to do next; uvicorn has one for idle connections."""
        awaited: _Awaited | None = None
        seconds = self.read_seconds
        if self._is_broken is not None:
            pass
        elif self._lingering is not None:
            awaited = "after refusal"
        elif self._socket.get_write_buffer_size() and (self.is_closing or self.flow.write_paused):
            awaited, seconds = "client reads", self.write_seconds
        elif self.is_closing:
            pass
        elif self._half_closed:
            is_unsent = self._socket.get_write_buffer_size() + _unsent_by_system(self._socket)
            awaited, seconds = (
                "half-closed",
                0.0 if self.waits_for_client and not is_unsent else _GONE_SECONDS,
            )
        elif self.conn.their_state is h11.IDLE:
            awaited = "head" if self.cycle is None or self.conn.trailing_data[0] else None
        elif self.conn.their_state is h11.SEND_BODY and self.cycle.response_complete:
            awaited = "body"
        if awaited != self._awaited or not seconds:
            self._awaited = awaited
            if self._clock is not None:
                self._clock.cancel()
            if awaited is not None:
                self._unsent = self._socket.get_write_buffer_size()
                self._clock = self.loop.call_later(seconds, self._end_wait)

    def _end_wait(self) -> None:
        """Close if a head or body is late; wait again if the client reads or gets answers; else cut."""
        awaited, self._awaited = self._awaited, None
        unsent = self._socket.get_write_buffer_size()
        error = self._socket.get_extra_info("socket").getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if awaited in ("head", "body"):
            self._close_soon()
        elif awaited == "half-closed" and not error:
            is_late = self.loop.time() - self._waiting_since > self.write_seconds
            if self.waits_for_client and (is_late or not unsent + _unsent_by_system(self._socket)):
                self._socket.close()
            else:
                self._watch()
        elif awaited == "client reads" and unsent < self._unsent:
            self._watch()
        else:
            self._cut()

    def _cut(self) -> None:
        self._is_cut = True
        self._socket.abort()


def _unsent_by_system(transport: asyncio.Transport) -> int:
    """Return how many bytes the system has of those that the client has not confirmed; 0: it does not say."""
    with suppress(ImportError, OSError, ValueError):
        from fcntl import ioctl
        from termios import TIOCOUTQ

        return int.from_bytes(ioctl(transport.get_extra_info("socket"), TIOCOUTQ, bytes(4)), sys.byteorder)
    return 0


class _LingeringTransport:
    """A transport that its protocol closes."""

    def __init__(self, transport: asyncio.Transport, protocol: HeaderTimeoutProtocol) -> None:
        self._transport = transport
        self._protocol = protocol

    def close(self) -> None:
        self._protocol.close()

    def is_closing(self) -> bool:
        return self._protocol.is_closing

    def write(self, data: bytes) -> None:
        self._protocol.write(data)

    def __getattr__(self, name: str) -> object:
        return getattr(self._transport, name)


class _Connection(h11.Connection):
    """h11's connection with a limit on heads, also on those that come all at once.

    Attributes:
        refusal: the status of the answer to what was refused.
    """

    def __init__(self, max_head_bytes: int | None) -> None:
        self._max_head_bytes = max_head_bytes or 2**14
        super().__init__(h11.SERVER, self._max_head_bytes)
        self.refusal = 400

    def next_event(self) -> h11.Event | type[h11.NEED_DATA] | type[h11.PAUSED]:
        """Return the next event of the client."""
        head = self.trailing_data[0] if self.their_state is h11.IDLE else b""
        try:
            event = super().next_event()
            if (
                isinstance(event, h11.Request)
                and len(head) - len(self.trailing_data[0]) > self._max_head_bytes
            ):
                raise h11.RemoteProtocolError("the head is too long", error_status_hint=431)
            if isinstance(event, h11.Request) and {name for name, _ in event.headers} >= _LENGTHS:
                raise h11.RemoteProtocolError("a body of two lengths")  # smuggling (RFC 9112, section 11.2)
        except h11.RemoteProtocolError as error:
            if error.error_status_hint == 431:
                self.refusal = 431 if b"\n" in head[: self._max_head_bytes] else 414
            raise
        return _with_path(event) if isinstance(event, h11.Request) else event


def _with_path(request: h11.Request) -> h11.Request:
    """Return a request with a path as its target, if that is a whole address (RFC 9112, section 3.2.2)."""
    scheme, separator, rest = request.target.partition(b"://")
    if not separator or scheme.lower() not in (b"http", b"https"):
        return request
    path = rest[len(rest.split(b"/", 1)[0].split(b"?", 1)[0]) :]
    return h11.Request(
        method=request.method,
        target=path if path.startswith(b"/") else b"/" + path,
        headers=list(request.headers),
        http_version=request.http_version,
    )


def report_accept_errors(loop: asyncio.AbstractEventLoop) -> None:
    """Report once a minute, in one line, that there are no files left for connections.

    asyncio tries again many times, and logs a traceback each time.
    """
    latest = float("-inf")

    def report(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        nonlocal latest
        error = context.get("exception")
        scarce = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
        if not (isinstance(error, OSError) and error.errno in scarce):
            loop.default_exception_handler(context)
        elif loop.time() - latest >= _SECONDS_BETWEEN_LINES:
            latest = loop.time()
            _log.warning("no connection can be accepted: %s; raise the limit of open files", error.strerror)

    loop.set_exception_handler(report)


_MAX_HEAD_BYTES = 32_768
_START_SECONDS = 600  # for a new process to load its models, before it is given up
_ALIVE_SECONDS = 15  # for a process to say that it is alive, before it is replaced
_POLL_SECONDS = 0.05
_KEEP_ALIVE_SECONDS = 15
_MAX_CONNECTIONS = 10_000
_MAX_BACKLOG = 2048
_MAX_FILES = 20_000  # are asked of the system, enough for all connections
_SPARE_FILES = 32  # for bundles that are opened, and what else a process needs
_WAVES = 4  # of connections that asyncio may have accepted before the protocol hears of the first


@contextmanager
def bound_sockets(host: str, port: int) -> Iterator[list[socket.socket]]:
    """Reserve the port on each address of a host; clients cannot connect before the server listens.

    Raises:
        InputError: the port is in use, or this machine does not have the address.
    """
    with ExitStack() as opened:
        sockets: list[socket.socket] = []
        try:
            for family, kind, protocol, _, address in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM):
                bound = opened.enter_context(socket.socket(family, kind, protocol))
                if os.name == "posix":  # connections that have ended hold no port
                    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                if family == socket.AF_INET6:
                    bound.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
                chosen = sockets[0].getsockname()[1] if sockets else port  # port 0: all have the first's
                bound.bind((address[0], chosen, *address[2:]))
                sockets.append(bound)
        except (OSError, UnicodeError) as error:
            reason = getattr(error, "strerror", None) or str(error)
            raise InputError(
                f"cannot listen on {host}, port {port}: {reason}; see --host and --port"
            ) from None
        yield sockets


def connection_limits(max_files: int, open_files: int) -> tuple[int, int]:
    """Return how many connections a process can have, and how many it may accept at a time.

    If no file is left, asyncio stops accepting for a second, and no client is answered.

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


def run(
    app: FastAPI | str, sockets: Sequence[socket.socket], options: ServiceOptions, lines: Sequence[str] = ()
) -> None:
    """Answer requests until SIGTERM, SIGINT or, in one process, SIGHUP, then those that came before.

    Several processes are started anew by SIGHUP, one after the other: each one ends when the new one answers.

    Args:
        app: the application; for several processes the name of a function that makes one in each.
        sockets: the sockets, bound to the addresses.
        options: the options of the service.
        lines: the lines to log when the server is ready.
    """
    signal.signal(signal.SIGTERM, lambda *_: None)  # uvicorn raises it again when it has shut down
    hang_up = getattr(signal, "SIGHUP", None)  # which Windows has not, and nohup ignores
    if hang_up is not None and signal.getsignal(hang_up) == signal.SIG_DFL:
        signal.signal(hang_up, lambda *_: signal.raise_signal(signal.SIGTERM))
    max_connections, backlog = connection_limits(*_files())
    config = Config(
        app,
        factory=isinstance(app, str),
        workers=options.workers,
        http=HeaderTimeoutProtocol,
        loop="asyncio",  # with uvloop, if it is installed, no more requests are answered
        ws="none",
        lifespan="on",
        log_config=log_config(options.logging),
        access_log=False,  # it would show query strings, and so texts
        server_header=False,
        proxy_headers=bool(options.access.trust_proxy),  # by default, uvicorn trusts all of this machine
        forwarded_allow_ips=options.access.trust_proxy or [],
        timeout_keep_alive=_KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=int(options.limits.drain_seconds),
        timeout_worker_healthcheck=_ALIVE_SECONDS,
        h11_max_incomplete_event_size=_MAX_HEAD_BYTES,
        limit_concurrency=max_connections,
        backlog=backlog,
    )
    host, port = sockets[0].getsockname()[:2]
    threading.Thread(target=_announce, args=(host, port, lines), daemon=True).start()
    with suppress(KeyboardInterrupt):
        if options.workers == 1:
            Server(config).run(list(sockets))
        else:
            _Processes(config, list(sockets)).run()


class _Processes(Multiprocess):
    """uvicorn's processes, but a new one has time to load its models before the old one ends."""

    def restart_all(self) -> None:
        """Replace each process by a new one, as soon as the new one answers."""
        self.config.timeout_worker_healthcheck = _START_SECONDS
        try:
            super().restart_all()
        finally:
            self.config.timeout_worker_healthcheck = _ALIVE_SECONDS


def _announce(host: str, port: int, lines: Sequence[str]) -> None:
    """Log what is served, and the address, as soon as the server answers there."""
    address = f"[{host}]" if ":" in host else host
    while True:
        connection = HTTPConnection({"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host), port, timeout=5)
        try:
            connection.request("GET", "/health")
            connection.getresponse()
            break
        except (OSError, HTTPException):
            time.sleep(_POLL_SECONDS)
        finally:
            connection.close()
    for line in lines:
        _log.info("%s", line)
    _log.info("heedful is running on http://%s:%d (SIGTERM or Ctrl-C ends it)", address, port)


def log_config(options: Logging) -> dict[str, Any]:
    """Return what is logged, to stderr: how the server does, and requests if that is asked for."""
    requests = options.log_requests or options.log_text
    on_stderr = {"level": "INFO", "handlers": ["stderr"], "propagate": False}
    of_json = {"()": "heedful.serving.server.JsonFormatter"}
    return {
        "version": 1,
        "disable_existing_loggers": False,
        "formatters": {"line": of_json if options.log_json else {"format": "%(asctime)s %(message)s"}},
        "handlers": {
            "stderr": {"class": "logging.StreamHandler", "formatter": "line", "stream": "ext://sys.stderr"}
        },
        "loggers": {
            "uvicorn": on_stderr,
            "heedful.serving": on_stderr,
            "heedful.decoding": {**on_stderr, "level": "ERROR"},  # its warnings are of what a client sends
            "heedful.serving.access": {"level": "INFO" if requests else "WARNING"},
        },
    }


class JsonFormatter(logging.Formatter):
    """Writes a record as an object in JSON: time, level, message, and the facts of a request."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line."""
        known = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname,
            "message": record.getMessage(),
            **getattr(record, "facts", {}),
        }
        if record.exc_info:
            known["traceback"] = self.formatException(record.exc_info)
        return json.dumps(known, ensure_ascii=False)
