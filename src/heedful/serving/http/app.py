"""The application: every dialect over one service."""

import asyncio
import hashlib
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from html import escape
from importlib.metadata import version
from importlib.resources import files
from typing import Any

from fastapi import APIRouter, FastAPI, Request
from fastapi.middleware.cors import CORSMiddleware
from fastapi.responses import HTMLResponse, JSONResponse, Response
from prometheus_client import CONTENT_TYPE_LATEST
from pydantic import BaseModel
from starlette.exceptions import HTTPException

from heedful.serving.explain import Explainer, ExplainRequest, Kind
from heedful.serving.http import deepl, fields, libretranslate
from heedful.serving.http.answering import Gateway, add_error_answers, unless_gone
from heedful.serving.http.fields import AUTO, NonEmptyText, read_object, validated
from heedful.serving.http.libretranslate import REFUSALS, LibreError
from heedful.serving.http.protocol import Observed, report_accept_errors

_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
_FRONT = "index.html"


@dataclass(frozen=True)
class StaticFile:
    """A file as browsers get it.

    Attributes:
        content: its bytes.
        media_type: what they are.
        tag: changes with the content, so that a browser asks for it again only then.
    """

    content: bytes
    media_type: str
    tag: str


def static_files() -> dict[str, StaticFile]:
    """Return the files of the page by their names."""
    by_path = {}
    for path in files("heedful.serving").joinpath("static").iterdir():
        kind = _TYPES.get("." + path.name.rpartition(".")[2])
        if kind is not None:
            content = path.read_bytes()
            tag = f'"{hashlib.sha256(content).hexdigest()[:16]}"'
            by_path[path.name] = StaticFile(content, kind, tag)
    return by_path


def page_router() -> APIRouter:
    """Return the routes of the page; nothing but the files that were there at the start is ever sent."""
    routes = APIRouter(include_in_schema=False)
    known = static_files()

    @routes.get("/")
    async def page(request: Request) -> Response:
        return _sent(known[_FRONT], request)

    @routes.get("/static/{name}")
    async def file(name: str, request: Request) -> Response:
        if name not in known:
            raise HTTPException(404)
        return _sent(known[name], request)

    return routes


def _sent(file: StaticFile, request: Request) -> Response:
    headers = {"ETag": file.tag, "Cache-Control": "no-cache"}
    if request.headers.get("if-none-match") == file.tag:
        return Response(status_code=304, headers=headers)
    return Response(file.content, media_type=file.media_type, headers=headers)


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

    @routes.post("/suggest", include_in_schema=False)
    @routes.post("/translate_file", include_in_schema=False)
    async def switched_off() -> Response:
        return JSONResponse({"error": "This is disabled on this server."}, status_code=403)

    return routes


def _page_of_operations(spec: dict[str, Any]) -> str:
    """Return the operations of an OpenAPI document as HTML that needs neither scripts nor other servers."""
    rows = []
    for path, methods in spec["paths"].items():
        for method, operation in methods.items():
            names = [each["name"] for each in operation.get("parameters", [])]
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


class _ExplainFields(BaseModel):
    q: NonEmptyText
    source: NonEmptyText
    target: NonEmptyText
    attention: Kind | None = None
    layer: int | None = None
    api_key: str = ""


def explanations_router(gateway: Gateway, explainer: Explainer) -> APIRouter:
    """Return the route."""
    missing: dict[str, Any] = {"model": LibreError, "description": "The server has no torch"}
    no_layer: dict[str, Any] = {"model": LibreError, "description": "The model has no such layer"}
    routes = APIRouter(tags=["Explanations"], responses={**REFUSALS, 404: no_layer, 501: missing})
    service = gateway.service
    body = fields.body(fields.explain(service.catalogue, service.limits))

    @routes.post("/explain", openapi_extra=body)
    async def explain(request: Request) -> Response:
        """Translate a text, and return its tokens, their probabilities, the n-best list and the attention."""
        fields = await read_object(request, service.limits)
        client = gateway.authorize(request, str(fields.get("api_key", "")))
        parameters = validated(_ExplainFields, fields)
        answer = await unless_gone(
            request,
            explainer.explain(
                ExplainRequest(
                    text=parameters.q,
                    source=None if parameters.source == AUTO else parameters.source,
                    target=parameters.target,
                    attention=parameters.attention,
                    layer=parameters.layer,
                )
            ),
        )
        gateway.clients.characters[client] += len(parameters.q)
        return JSONResponse(answer)

    return routes


def application(gateway: Gateway, *, origins: Sequence[str] = ()) -> FastAPI:
    """Return the ASGI application; when it shuts down, what is waiting is translated first.

    Args:
        gateway: what answers.
        origins: of pages that may ask from a browser; "*": all.
    """
    explainer = Explainer(gateway.service)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        report_accept_errors(asyncio.get_running_loop())
        yield
        explainer.close()
        gateway.service.close()

    app = FastAPI(
        title="heedful", version=version("heedful"), lifespan=lifespan, openapi_url="/spec",
        docs_url=None, redoc_url=None, redirect_slashes=False,
    )  # fmt: skip
    add_error_answers(app)
    app.include_router(libretranslate.router(gateway))
    app.include_router(operations_router(app, gateway))
    app.include_router(deepl.router(gateway))
    app.include_router(explanations_router(gateway, explainer))
    app.include_router(page_router())
    if origins:
        app.add_middleware(
            CORSMiddleware, allow_origins=list(origins), allow_methods=["GET", "POST"], allow_headers=["*"]
        )
    app.add_middleware(Observed, metrics=gateway.service.metrics)
    return app
