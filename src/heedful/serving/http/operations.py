"""Routes for those who run the service: health, numbers, and a page of its operations."""

from html import escape
from typing import Any

from fastapi import APIRouter, FastAPI
from fastapi.responses import HTMLResponse, JSONResponse, Response
from prometheus_client import CONTENT_TYPE_LATEST

from heedful.serving.http.answering import Gateway


def router(app: FastAPI, gateway: Gateway) -> APIRouter:
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
