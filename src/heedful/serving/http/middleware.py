"""Additions to every answer: headers for browsers, numbers, a line in the log."""

import logging
import time

from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from heedful.serving.http.protocol import CLOSING
from heedful.serving.metrics import Metrics

_HEADERS = {
    "Content-Security-Policy": "default-src 'self'; object-src 'none'; base-uri 'none'; form-action 'self'; "
    "frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
}
_NO_STORE = "no-store"
_log = logging.getLogger("heedful.serving.access")


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
            _log.info("%s %s %d %.0f ms", method, endpoint, status, 1000 * seconds)
