"""The application: every dialect over one service, with the page, errors in the form of each, and numbers."""

import asyncio
import logging
import mimetypes
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from html import escape
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from pkgutil import iter_modules
from typing import Any

from fastapi import APIRouter, FastAPI, Request
from fastapi.middleware.cors import CORSMiddleware
from fastapi.responses import HTMLResponse, JSONResponse, Response
from prometheus_client import CONTENT_TYPE_LATEST
from pydantic import ValidationError
from starlette.datastructures import MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from heedful import serving
from heedful.serving import libretranslate, microsoft
from heedful.serving.explain import Explainer, ExplainRequest
from heedful.serving.gateway import AUTO, FACTS, Gateway, described_body, mistake, schema_of, unless_gone
from heedful.serving.libretranslate import REFUSALS, LibreError
from heedful.serving.metrics import Metrics
from heedful.serving.proxies import ProxyHeaders
from heedful.serving.refusals import (
    BodyTooLargeError,
    InvalidError,
    LanguageError,
    RefusedError,
    RequestTimeoutError,
    TextTooLongError,
)
from heedful.serving.server import CLOSING, WITHOUT_BODY, report_accept_errors

_DEEPL = ("/v1/", "/v2/", "/v3/")
_INTERNAL = "Internal error; its reason is in the server's log"
_GONE = 499  # nginx's status for it, in logs and metrics only
_HEADERS = {
    "Content-Security-Policy": "default-src 'self'; object-src 'none'; base-uri 'none'; form-action 'self'; "
    "frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
}
_NO_STORE = "no-store"
_access_log = logging.getLogger("heedful.serving.access")


class MetricsMiddleware:
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
            scope = {**scope, "method": "GET", WITHOUT_BODY: True}

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
            endpoint = getattr(scope.get("route"), "path", "other")
            self._metrics.seconds.labels(endpoint, str(status)).observe(seconds)
            fields = {"method": method, "endpoint": endpoint, "status": status, "ms": round(1000 * seconds)}
            facts = {name: fact for name, fact in scope.get(FACTS, {}).items() if fact}
            said = [f"{name}={fact}" for name, fact in facts.items()]
            line = " ".join(["{method} {endpoint} {status} {ms} ms".format_map(fields), *said])
            _access_log.info("%s", line, extra={"facts": fields | facts})


def add_error_answers(app: FastAPI) -> None:
    """Answer refused and failed requests in the form of their dialect."""

    @app.exception_handler(RefusedError)
    async def refused(request: Request, error: RefusedError) -> Response:
        headers = {} if error.retry_after is None else {"Retry-After": str(error.retry_after)}
        if isinstance(error, BodyTooLargeError | RequestTimeoutError):
            headers["Connection"] = "close"  # the rest of the body is not read
        status, message = error.status, error.message
        if _is_deepl(request):
            status = 413 if isinstance(error, TextTooLongError) else status
            if isinstance(error, LanguageError):
                message = f"Value for '{error.parameter}_lang' not supported."
        return _error(request, status, message, headers)

    @app.exception_handler(ValidationError)
    async def invalid(request: Request, error: ValidationError) -> Response:
        return await refused(request, InvalidError(mistake(error)))

    @app.exception_handler(HTTPException)
    async def unknown(request: Request, error: HTTPException) -> Response:
        detail, headers = str(error.detail), dict(error.headers or {})
        if error.status_code == 405:
            headers["Allow"] = _allowed_methods(request)
        is_about_server = request.scope["path"] == "*"  # RFC 9110, 9.3.7
        if request.method == "OPTIONS" and (is_about_server or error.status_code == 405):
            return Response(status_code=204, headers=headers)
        if error.status_code == 404 and _is_deepl(request):
            detail = "Not found: this server does not support it"
        return _error(request, error.status_code, detail, headers)

    @app.exception_handler(ClientDisconnect)
    async def gone(request: Request, error: ClientDisconnect) -> Response:
        return Response(status_code=_GONE)

    @app.exception_handler(Exception)
    async def failed(request: Request, error: Exception) -> Response:
        return _error(request, 500, _INTERNAL, {})


def _allowed_methods(request: Request) -> str:
    """Return all methods of a path: each route only knows its own."""
    template = getattr(request.scope.get("route"), "path", request.scope["path"])
    methods = {*request.app.openapi()["paths"].get(template, ("get",)), "options"}  # pages have only GET
    return ", ".join(sorted(map(str.upper, methods | {"head"} if "get" in methods else methods)))


def _is_deepl(request: Request) -> bool:
    return request.url.path.startswith(_DEEPL)


def _error(request: Request, status: int, message: str, headers: dict[str, str]) -> Response:
    content: dict[str, Any] = {"message" if _is_deepl(request) else "error": message}
    if not _is_deepl(request) and microsoft.is_asked(request):
        status, content = microsoft.error(status, message, request)
    return JSONResponse(content, status_code=status, headers=headers)


def page_router() -> APIRouter:
    """Return the routes of the page."""
    routes = APIRouter(include_in_schema=False)
    for kind, ending in (("text/javascript", ".js"), ("text/css", ".css"), ("image/svg+xml", ".svg")):
        mimetypes.add_type(kind, ending)  # the registry of Windows may have others
    files = StaticFiles(directory=Path(__file__).parent / "static")

    @routes.get("/")
    @routes.get("/static/{name}")
    async def file(request: Request, *, name: str = "index.html") -> Response:
        response = await files.get_response(name, request.scope)
        response.headers["Cache-Control"] = "no-cache"  # a browser asks whether the file has changed
        return response

    return routes


def operations_router(app: FastAPI, gateway: Gateway) -> APIRouter:
    """Return the routes."""
    routes = APIRouter(tags=["Operation"])

    @routes.get("/health")
    async def health() -> dict[str, str]:
        """Say that the server is up."""
        return {"status": "ok"}

    @routes.get("/metrics", response_class=Response, responses={200: {"content": {"text/plain": {}}}})
    async def metrics() -> Response:
        """Return numbers in Prometheus' form."""
        return Response(gateway.service.metrics.text(), media_type=CONTENT_TYPE_LATEST)

    @routes.get("/docs", response_class=HTMLResponse, include_in_schema=False)
    async def docs() -> str:
        return _page_of_operations(app.openapi())

    return routes


def _page_of_operations(spec: dict[str, Any]) -> str:
    """Return the operations of an OpenAPI document as HTML that needs neither scripts nor other servers."""
    rows = []
    for path, methods in spec["paths"].items():
        for method, operation in methods.items():
            names = [parameter["name"] for parameter in operation.get("parameters", [])]
            content = operation.get("requestBody", {}).get("content", {}).get("application/json", {})
            schema = content.get("schema", {})
            names += (schema.get("oneOf", [schema])[0]).get("properties", {})
            cells = (method.upper(), path, operation.get("description", ""), ", ".join(dict.fromkeys(names)))
            rows.append("".join(f"<td>{escape(cell)}</td>" for cell in cells))
    table = "\n".join(f"<tr>{row}</tr>" for row in rows)
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{escape(spec["info"]["title"])}'
        f"</title></head>\n<body><h1>{escape(spec['info']['title'])}</h1>\n"
        '<p>In OpenAPI\'s form: <a href="spec">spec</a></p>\n'
        f"<table><tr><th>method<th>path<th>does<th>parameters</tr>\n{table}\n</table></body></html>\n"
    )


def explanations_router(gateway: Gateway, explainer: Explainer) -> APIRouter:
    """Return the route."""
    missing: dict[str, Any] = {"model": LibreError, "description": "The model needs torch"}
    no_layer: dict[str, Any] = {"model": LibreError, "description": "The model has no such layer"}
    routes = APIRouter(tags=["Explanations"], responses={**REFUSALS, 404: no_layer, 501: missing})
    limits, catalogue = gateway.service.limits, gateway.service.catalogue
    schema = schema_of(
        ExplainRequest,
        q={"maxLength": limits.characters},
        source={"enum": [AUTO, *catalogue.sources]},
        target={"enum": [*catalogue.targets]},
    )

    @routes.post("/explain", openapi_extra=described_body(schema))
    async def explain(request: Request) -> Response:
        """Translate a text, and return its tokens, their probabilities, the n-best list and the attention."""
        client, asked = await gateway.parameters(request, ExplainRequest)
        answer = await unless_gone(request, explainer.explain(asked))
        await gateway.count_characters(client, len(asked.q))
        return JSONResponse(answer)

    return routes


def application(gateway: Gateway, *, proxies: Sequence[str] = ()) -> FastAPI:
    """Return the ASGI application; when it shuts down, what is waiting is translated first.

    Args:
        gateway: what the routes need.
        proxies: the addresses of proxies whose headers about their clients are believed.
    """
    explainer = Explainer(gateway.service)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        report_accept_errors(asyncio.get_running_loop())
        if gateway.documents is not None:
            gateway.documents.start()
        yield
        if gateway.documents is not None:
            await gateway.documents.close()
        explainer.close()
        gateway.service.close()
        await gateway.records.close()

    app = FastAPI(
        title="heedful", version=version("heedful"), lifespan=lifespan, openapi_url="/spec",
        docs_url=None, redoc_url=None, redirect_slashes=False
    )  # fmt: skip
    add_error_answers(app)
    app.include_router(libretranslate.router(gateway))
    app.include_router(operations_router(app, gateway))
    for found in iter_modules(serving.__path__):  # a dialect is a module of this folder with a router
        module = import_module(f"{serving.__name__}.{found.name}")
        if module is not libretranslate and hasattr(module, "router"):
            app.include_router(module.router(gateway))
    app.include_router(explanations_router(gateway, explainer))
    app.include_router(page_router())
    if gateway.origins:
        app.add_middleware(
            CORSMiddleware,
            allow_origins=list(gateway.origins),
            allow_methods=["GET", "POST", "PUT", "PATCH", "DELETE"],
            allow_headers=["*"],
            expose_headers=["Retry-After"],
            allow_private_network=True,  # a public page may ask a server of the user's network (Chrome)
        )
    app.add_middleware(MetricsMiddleware, metrics=gateway.service.metrics)
    if proxies:
        app.add_middleware(ProxyHeaders, trusted_hosts=list(proxies))
    return app
