"""The page at /, and the files that it is made of: plain HTML, CSS and scripts from static/."""

import hashlib
from dataclasses import dataclass
from importlib.resources import files

from fastapi import APIRouter, Request
from fastapi.responses import Response
from starlette.exceptions import HTTPException

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


def router() -> APIRouter:
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
