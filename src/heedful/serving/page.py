"""The page at /: a placeholder."""

from fastapi import APIRouter
from fastapi.responses import HTMLResponse

_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>heedful</title></head>
<body><h1>heedful</h1><p>A translation service. <a href="docs">How to ask it</a></p></body></html>
"""


def router() -> APIRouter:
    """Return the routes of the page."""
    routes = APIRouter(include_in_schema=False)

    @routes.get("/", response_class=HTMLResponse)
    async def page() -> str:
        return _PAGE

    return routes
