"""HTTP/1.1 as uvicorn has it, for clients that are slow, send too much, or leave.

uvicorn limits how long a connection may be idle, and nothing else. Here every head, every body that no route
reads, and every answer that is not read has its time; heads have a size; what is refused is read on for a
while, so that the client sees the answer; a connection that waits for its client makes way for a new one.
"""

import asyncio
import errno
import json
import logging
import socket
import time
from collections.abc import Callable
from typing import Any, Literal, cast

import h11
from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.config import Config
from uvicorn.protocols.http.h11_impl import STATUS_PHRASES, H11Protocol
from uvicorn.server import ServerState

from heedful.serving.metrics import Metrics

CLOSING = "heedful.closing"  # in the scope of a request that is its connection's last
_GONE_SECONDS = 0.2  # between two looks at whether a client that sends no more is still there
_LINGERING_BYTES = 2**26  # that are read of a request that is refused
_SECONDS_BETWEEN_LINES = 60.0  # about connections that cannot be accepted
_REFUSED = {
    400: "Invalid HTTP request",
    414: "The address is too long",
    431: "The head of the request is too long",
}
_KeepOpen = Any  # a bool, as asyncio asks for; uvicorn's method says None
_log = logging.getLogger("heedful.serving")


class PunctualProtocol(H11Protocol):
    """Closes connections whose clients take too long: they would hold a place for ever.

    Attributes:
        read_seconds: for a head, from its first byte (of a new connection: from its opening), for what is
            left of a body after its answer, and for reading on after a refusal.
        write_seconds: for a client to read anything of an answer that waits to be sent.
    """

    read_seconds = 10.0
    write_seconds = 30.0

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self.conn: _Connection = _Connection(self.config.h11_max_incomplete_event_size)
        self._awaited: Literal["head", "body"] | None = None
        self._clocks: dict[str, asyncio.TimerHandle] = {}
        self._unsent = 0  # bytes, when the clock of writing was set
        self._lingering: int | None = None  # bytes that were read since the refusal
        self._half_closed = False  # by a client that has sent all, and waits for answers
        self._ending = False  # the server is
        self._waiting_since = 0.0  # for the client

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Start the clock, and see that there are not too many connections."""
        assert isinstance(transport, asyncio.Transport)
        self._socket = transport
        super().connection_made(cast(asyncio.Transport, _LingeringTransport(transport, self)))
        self._waiting_since = self.loop.time()
        self._limit_connections()
        self._watch_reading()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop the clocks."""
        for name in list(self._clocks):
            self._stop(name)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Take bytes of the client; after a refusal, drop them."""
        if self._lingering is None:
            super().data_received(data)
            self._watch_reading()
            return
        self._lingering += len(data)
        if self._lingering > _LINGERING_BYTES:
            self._socket.abort()

    def eof_received(self) -> _KeepOpen:
        """Keep the connection for the answers that are asked for; says whether it does.

        A client that is gone looks like one that only sends no more, until it gets something: it answers that
        with a reset. Every client of HTTP/1.1 takes an interim answer, asked for or not (RFC 9110, 15.2).
        """
        cycle: Any = self.cycle
        if self.waits_for_client or self._lingering is not None or self.conn.their_http_version == b"1.0":
            return False
        self._half_closed = True
        if not cycle.response_started:
            self._socket.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        self._check_gone()
        return True

    def on_response_complete(self) -> None:
        """Wait for the next request, or for the rest of the body, or close the connection."""
        self._waiting_since = self.loop.time()
        super().on_response_complete()
        self._watch_reading(idle=not self.conn.trailing_data[0])
        if self._half_closed and self.waits_for_client:
            self._socket.close()

    def pause_writing(self) -> None:
        """Start the clock of writing: the client does not read."""
        super().pause_writing()
        self._watch_writing()

    def resume_writing(self) -> None:
        """Stop the clock of writing, unless what is left must be sent before the connection closes."""
        super().resume_writing()
        if not self._socket.is_closing():
            self._stop("write")

    def send_400_response(self, msg: str) -> None:
        """Refuse what is no HTTP, or too long, and say which."""
        cycle: Any = self.cycle
        if cycle is not None and not cycle.response_complete:  # nobody waits for that answer any more
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
            return
        self._socket.close()
        self._watch_writing()

    def _linger(self) -> None:
        """Send no more, and read on: closed with bytes unread, a connection is reset, and the answer lost."""
        self._lingering = 0
        self._stop("read")
        self._start("linger", self.read_seconds, self._socket.abort)
        self._socket.resume_reading()
        if self._socket.can_write_eof():
            self._socket.write_eof()

    def _limit_connections(self) -> None:
        """Close the connection that has waited longest for its client, where there are too many."""
        if self.limit_concurrency is None or len(self.connections) < self.limit_concurrency:
            return
        others = [
            each
            for each in cast(set[PunctualProtocol], self.connections)
            if each is not self and each.waits_for_client and not each._socket.is_closing()
        ]
        if others:
            min(others, key=lambda each: each._waiting_since)._socket.abort()

    def _watch_reading(self, *, idle: bool = False) -> None:
        """Set the clock of what the client is to send next; uvicorn has one for idle connections."""
        awaited: Literal["head", "body"] | None = None
        if self.is_closing:
            return
        if self.conn.their_state is h11.IDLE and not idle:
            awaited = "head"
        elif self.conn.their_state is h11.SEND_BODY and self.cycle.response_complete:
            awaited = "body"
        if awaited != self._awaited:
            self._awaited = awaited
            self._stop("read")
            if awaited:
                self._start("read", self.read_seconds, self._close_late)

    def _close_late(self) -> None:
        self._socket.close()
        self._watch_writing()

    def _watch_writing(self) -> None:
        self._unsent = self._socket.get_write_buffer_size()
        if self._unsent and "write" not in self._clocks:
            self._start("write", self.write_seconds, self._check_written)

    def _check_written(self) -> None:
        self._stop("write")
        if self._socket.get_write_buffer_size() >= self._unsent:
            self._socket.abort()
        else:
            self._watch_writing()

    def _check_gone(self) -> None:
        self._stop("gone")
        sock: socket.socket = self._socket.get_extra_info("socket")
        if self._socket.is_closing():
            return
        if sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
            self._socket.abort()
        else:
            self._start("gone", _GONE_SECONDS, self._check_gone)

    def _start(self, name: str, seconds: float, then: Callable[[], None]) -> None:
        self._clocks[name] = self.loop.call_later(seconds, then)

    def _stop(self, name: str) -> None:
        if (clock := self._clocks.pop(name, None)) is not None:
            clock.cancel()


class _LingeringTransport:
    """A transport that its protocol closes."""

    def __init__(self, transport: asyncio.Transport, protocol: PunctualProtocol) -> None:
        self._transport = transport
        self._protocol = protocol

    def close(self) -> None:
        self._protocol.close()

    def is_closing(self) -> bool:
        return self._protocol.is_closing

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
        except h11.RemoteProtocolError as error:
            if error.error_status_hint == 431:
                self.refusal = 431 if b"\n" in head[: self._max_head_bytes] else 414
            raise
        return _with_path(event) if isinstance(event, h11.Request) else event


def _with_path(request: h11.Request) -> h11.Request:
    """Return a request whose target is a path, where it is a whole address (RFC 9112, section 3.2.2)."""
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

    asyncio logs a traceback for each of the many times that it tries again.
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


_HEADERS = {
    "Content-Security-Policy": "default-src 'self'; object-src 'none'; base-uri 'none'; form-action 'self'; "
    "frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
}
_NO_STORE = "no-store"
_access_log = logging.getLogger("heedful.serving.access")


class Observed:
    """Adds headers, counts, and logs; never a text, a query string or a key.

    HEAD is answered as GET is, without the body (RFC 9110, 9.3.2).
    """

    def __init__(self, app: ASGIApp, metrics: Metrics) -> None:
        """Wrap an application."""
        self._app = app
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        started = time.perf_counter()
        status = 500
        method = scope["method"]
        if method == "HEAD":
            scope = {**scope, "method": "GET"}

        async def send_observed(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                headers = MutableHeaders(scope=message)
                for name, value in _HEADERS.items():
                    headers.setdefault(name, value)
                headers.setdefault("Cache-Control", _NO_STORE)
                if scope.get(CLOSING):
                    headers["Connection"] = "close"
            elif method == "HEAD":
                message = {**message, "body": b""}
            await send(message)

        self._metrics.in_flight.inc()
        try:
            await self._app(scope, receive, send_observed)
        finally:
            seconds = time.perf_counter() - started
            self._metrics.in_flight.dec()
            route = scope.get("route")
            endpoint = getattr(route, "path", "other")
            self._metrics.seconds.labels(endpoint, str(status)).observe(seconds)
            _access_log.info("%s %s %d %.0f ms", method, endpoint, status, 1000 * seconds)
