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
import re
import signal
import socket
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from datetime import UTC, datetime
from enum import Enum, auto
from http.client import HTTPConnection, HTTPException
from typing import Any, cast

import h11
import psutil
from fastapi import FastAPI
from uvicorn.config import Config
from uvicorn.protocols.http.h11_impl import STATUS_PHRASES, H11Protocol
from uvicorn.server import Server
from uvicorn.supervisors.multiprocess import Multiprocess

from heedful import InputError
from heedful.serving.options import Logging, ServiceOptions

CLOSING = "heedful.closing"  # in the scope of a request that is its connection's last
DELIVERED = "delivered"  # in the state of a request: says whether its client got the answer
WITHOUT_BODY = "heedful.without_body"  # in the scope of a HEAD request
_VERSION = b"HTTP/1.1 "  # with which every answer begins, to clients of HTTP/1.0 too
_BREAKING_SECONDS = 2.0  # in which a client that did not read all of an answer closes the connection
_SECONDS_BETWEEN_LINES = 60.0  # about connections that cannot be accepted
_REFUSED = {
    400: "Invalid HTTP request",
    414: "The address is too long",
    431: "The head of the request is too long",
}
_LENGTHS = {b"content-length", b"transfer-encoding"}
_MAX_HEAD_BYTES = 32_768
_WHOLE_SERVER = b"*"  # the target of an OPTIONS request (RFC 9112, section 3.2.4)
_ORIGIN = re.compile(rb"^https?://[^/?]*", re.IGNORECASE)
_KeepOpen = Any  # a bool, as asyncio asks for; uvicorn's method says None
_log = logging.getLogger("heedful.serving")


class State(Enum):
    """The state of a connection."""

    OPEN = auto()
    HALF_CLOSED = auto()  # by the client, which has sent all, and waits for its answers
    REFUSED = auto()  # nothing more is answered; what still comes is read and dropped
    CLOSING = auto()  # with the answer that is on its way
    CLOSED = auto()
    BROKEN = auto()  # by the client, or because the client did nothing


class Step(Enum):
    """What happens next on a connection."""

    HEAD = auto()  # the client sends the head of a request
    BODY = auto()  # the client sends the rest of a body that no route reads
    READING = auto()  # the client reads an answer that waits to be sent
    ANSWER = auto()  # the server answers, or nothing is begun: uvicorn has a clock for idle connections


# The seconds for each step of a client that is waited for, by the name of the protocol's attribute.
_SECONDS = {
    # uvicorn alone leaves these connections open: without a head, with half a head, or with a byte of it
    # each second.
    (State.OPEN, Step.HEAD): "read_seconds",
    (State.OPEN, Step.BODY): "read_seconds",
    # A client that never reads would hold its answer in memory, and the server could not shut down.
    (State.OPEN, Step.READING): "write_seconds",
    (State.HALF_CLOSED, Step.READING): "write_seconds",
    (State.CLOSING, Step.READING): "write_seconds",
    # A client may close its side after the request, and is answered. One that is gone looks the same until
    # its system refuses the first bytes of the answer, so it is looked at again and again.
    (State.HALF_CLOSED, Step.HEAD): "look_seconds",
    (State.HALF_CLOSED, Step.BODY): "look_seconds",
    (State.HALF_CLOSED, Step.ANSWER): "look_seconds",
    # Closed with bytes unread, a connection is reset, and the client does not see why it is refused.
    **dict.fromkeys(((State.REFUSED, step) for step in Step), "read_seconds"),
}


class HeaderTimeoutProtocol(H11Protocol):
    """Closes a connection if its client takes too long: the connection would never end.

    Attributes:
        read_seconds: the time to read a head, from its first byte (of a new connection: from its opening),
            the rest of a body after its answer, and what follows a refusal.
        write_seconds: the time for a client to read anything of an answer that waits to be sent.
        look_seconds: the time between two looks at whether a client that sends no more is still there.
        waiting_since: when the connection was made, or its latest answer was complete.
    """

    read_seconds = 10.0
    write_seconds = 30.0
    look_seconds = 0.2
    waiting_since = 0.0
    conn: "_Connection"

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Start the clock, and see that there are not too many connections."""
        assert isinstance(transport, asyncio.Transport)
        # An answer has two parts, its head and its text. Without this, the second waits up to 40 ms until the
        # client has said that it got the first. asyncio sees to it, but not for sockets of uvicorn's workers.
        transport.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._link = _ClientTransport(transport, self)
        self.conn = _Connection()
        self.app_state = {**self.app_state, DELIVERED: self._link.delivered}
        super().connection_made(cast(asyncio.Transport, self._link))
        self.waiting_since = self.loop.time()
        if self.limit_concurrency is not None and len(self.connections) >= self.limit_concurrency:
            self._make_room()
        self._link.watch()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop the clock."""
        is_broken = exc is not None or self._link.state is State.BROKEN
        super().connection_lost(exc)
        self._link.state = State.BROKEN if is_broken else State.CLOSED
        self._link.watch()

    def data_received(self, data: bytes) -> None:
        """Take bytes of the client; after a refusal, drop them."""
        if self._link.state is not State.REFUSED:
            super().data_received(data)
            self._link.watch()

    def eof_received(self) -> _KeepOpen:
        """Keep the connection for the answers that are asked for; says whether it does.

        A client that is gone looks like one that only sends no more, until it gets something: it answers that
        with a reset. So it gets the first bytes of its answer, which are always the same.
        """
        cycle: Any = self.cycle
        if self.waits_for_client or self._link.state is State.REFUSED:
            self._link.state = State.CLOSING
            return False
        self._link.state = State.HALF_CLOSED
        if not cycle.response_started:
            self._link.send_ahead(_VERSION)
        self._link.watch()
        return True

    def on_response_complete(self) -> None:
        """Wait for the next request, or for the rest of the body, or close the connection."""
        self.waiting_since = self.loop.time()
        super().on_response_complete()
        self._link.watch()

    def pause_writing(self) -> None:
        """Set the clock: the client does not read."""
        super().pause_writing()
        self._link.watch()

    def resume_writing(self) -> None:
        """Stop the clock, unless what is left must be sent before the connection closes."""
        super().resume_writing()
        self._link.watch()

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
                self._link.write(self.conn.send(event) or b"")
        except h11.LocalProtocolError:  # in the middle of an answer
            self._link.cut()
        else:
            self._link.refuse()

    def shutdown(self) -> None:
        """Close the connection, after the answer that is on its way: `CLOSING` makes it say so."""
        is_refused = self._link.state is State.REFUSED
        self._link.state = State.CLOSING
        if is_refused:
            self._link.close()
            return
        if self.cycle is not None and not self.cycle.response_complete:
            cast(dict[str, Any], self.scope)[CLOSING] = True
        super().shutdown()

    @property
    def waits_for_client(self) -> bool:
        """Whether the next to do something is the client: it sends a head or a body, or reads an answer."""
        cycle: Any = self.cycle
        return cycle is None or cycle.response_complete or cycle.more_body or self.flow.write_paused

    def _make_room(self) -> None:
        """Close the connection that has waited longest for its client."""
        others = [
            other
            for other in cast(set[HeaderTimeoutProtocol], self.connections - {self})
            if other.waits_for_client and not other._link.is_closing()
        ]
        if others:
            min(others, key=lambda other: other.waiting_since)._link.cut()


class _ClientTransport:
    """The transport of a connection, with its state, and a clock for the next step of its client."""

    def __init__(self, transport: asyncio.Transport, protocol: HeaderTimeoutProtocol) -> None:
        self._transport = transport
        self._protocol = protocol
        self.state = State.OPEN
        self._awaited: tuple[State, Step] | None = None  # what the clock is for
        self._clock: asyncio.TimerHandle | None = None
        self._sent_ahead = b""

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401
        return getattr(self._transport, name)

    def is_closing(self) -> bool:
        """Return whether nothing more is answered."""
        return self.state is State.REFUSED or self._transport.is_closing()

    def write(self, data: bytes) -> None:
        """Send part of an answer, without what was sent ahead of it."""
        if data:
            self._transport.write(data.removeprefix(self._sent_ahead))
            self._sent_ahead = b""

    def send_ahead(self, data: bytes) -> None:
        """Send the beginning of an answer, before the answer is known."""
        self._transport.write(data)
        self._sent_ahead = data

    def close(self) -> None:
        """Close the connection, at once or when the client has had the time to read why."""
        protocol = self._protocol
        may_send = protocol.conn.their_state in (h11.SEND_BODY, h11.ERROR) or protocol.flow.read_paused
        if may_send and self.state is State.OPEN:
            self.refuse()
            return
        self.state = State.CLOSING
        self._transport.close()
        self.watch()

    def refuse(self) -> None:
        """Send no more, and read on for a while."""
        self.state = State.REFUSED
        self.watch()
        self._transport.resume_reading()
        if self._transport.can_write_eof():
            self._transport.write_eof()

    def cut(self) -> None:
        """Close the connection at once, because its client is gone or does nothing."""
        self.state = State.BROKEN
        self._transport.abort()
        self.watch()

    def watch(self) -> None:
        """Set the clock of what the client is to do next, if that is not what it is set for."""
        is_half_closed = self.state is State.HALF_CLOSED
        num_unsent = self._transport.get_write_buffer_size()
        awaited = (self.state, _next_step(self._protocol, num_unsent))
        if is_half_closed and _has_error(self._transport):
            self.cut()
        elif is_half_closed and self._is_answered():
            self.close()
        elif awaited != self._awaited:
            self._awaited = awaited
            if self._clock is not None:
                self._clock.cancel()
            if awaited in _SECONDS:
                seconds = getattr(self._protocol, _SECONDS[awaited])
                self._clock = self._protocol.loop.call_later(seconds, self._end_wait, awaited, num_unsent)

    def _is_answered(self) -> bool:
        """Return whether a client that sends no more has all answers, or does not read them in time."""
        protocol = self._protocol
        is_late = protocol.loop.time() - protocol.waiting_since > protocol.write_seconds
        return protocol.waits_for_client and (is_late or not _unsent(self._transport))

    def _end_wait(self, awaited: tuple[State, Step], num_unsent: int) -> None:
        """Close the connection of a client that is late; one that reads or is still there has more time.

        Args:
            awaited: what the clock was for.
            num_unsent: the bytes that waited to be sent when the clock was set.
        """
        self._awaited = None
        match awaited:
            case (State.REFUSED, _):
                self.cut()
            case (_, Step.READING) if self._transport.get_write_buffer_size() >= num_unsent:
                self.cut()
            case (State.OPEN, Step.HEAD | Step.BODY):
                self.state = State.CLOSING
                self.close()
            case _:
                self.watch()

    async def delivered(self) -> bool:
        """Return whether the client got all of the answer: it has what was sent, and does not break off."""
        protocol = self._protocol
        now = protocol.loop.time()
        sure, given_up = now + _BREAKING_SECONDS, now + protocol.write_seconds
        while protocol.loop.time() < given_up:
            if self.state in (State.CLOSED, State.BROKEN):
                return self.state is State.CLOSED
            if protocol.loop.time() >= sure and not _unsent(self._transport):
                return True
            await asyncio.sleep(protocol.look_seconds)
        return False


def _next_step(protocol: HeaderTimeoutProtocol, num_unsent: int) -> Step:
    """Return what happens next on a connection with this number of bytes that wait to be sent."""
    cycle, conn = protocol.cycle, protocol.conn
    if num_unsent and (protocol.transport.is_closing() or protocol.flow.write_paused):
        return Step.READING
    if cycle is None or (conn.their_state is h11.IDLE and conn.trailing_data[0]):
        return Step.HEAD
    if cycle.response_complete and conn.their_state is h11.SEND_BODY:
        return Step.BODY
    return Step.ANSWER


def _unsent(transport: asyncio.Transport) -> int:
    """Return how many bytes are not sent, or not confirmed by the client as far as the system says."""
    with suppress(ImportError, OSError, ValueError):
        from fcntl import ioctl
        from termios import TIOCOUTQ

        num_bytes = ioctl(transport.get_extra_info("socket"), TIOCOUTQ, bytes(4))
        return transport.get_write_buffer_size() + int.from_bytes(num_bytes, sys.byteorder)
    return transport.get_write_buffer_size()


def _has_error(transport: asyncio.Transport) -> bool:
    return bool(transport.get_extra_info("socket").getsockopt(socket.SOL_SOCKET, socket.SO_ERROR))


class _Connection(h11.Connection):
    """h11's connection with a limit on heads, also on those that come all at once.

    Attributes:
        refusal: the status of the answer to what was refused.
    """

    def __init__(self) -> None:
        super().__init__(h11.SERVER, _MAX_HEAD_BYTES)
        self.refusal = 400

    def next_event(self) -> h11.Event | type[h11.NEED_DATA] | type[h11.PAUSED]:
        """Return the next event of the client; the target of a request is a path."""
        head = self.trailing_data[0] if self.their_state is h11.IDLE else b""
        try:
            event = super().next_event()
            if not isinstance(event, h11.Request):
                return event
            if len(head) - len(self.trailing_data[0]) > _MAX_HEAD_BYTES:
                raise h11.RemoteProtocolError("the head is too long", error_status_hint=431)
            if {name for name, _ in event.headers} >= _LENGTHS:
                raise h11.RemoteProtocolError("a body of two lengths")  # smuggling (RFC 9112, section 11.2)
        except h11.RemoteProtocolError as error:
            if error.error_status_hint == 431:
                self.refusal = 431 if b"\n" in head[:_MAX_HEAD_BYTES] else 414
            raise
        # A target may be a whole address (RFC 9112, section 3.2.2). Clients join an address that ends in "/"
        # with a path that begins with it.
        path, mark, query = _ORIGIN.sub(b"", event.target).partition(b"?")
        path = path if path == _WHOLE_SERVER else re.sub(rb"/{2,}", b"/", b"/" + path)
        return h11.Request(
            method=event.method,
            target=path + mark + query,
            headers=event.headers,
            http_version=event.http_version,
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
        proxy_headers=False,  # uvicorn would trust all of this machine; see `ProxyHeaders`
        timeout_keep_alive=_KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=int(options.limits.drain_seconds),
        timeout_worker_healthcheck=_ALIVE_SECONDS,
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
