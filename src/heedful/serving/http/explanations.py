"""The route that says how a text was translated: /explain."""

from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse, Response
from pydantic import BaseModel

from heedful.serving.explain import Explainer, ExplainRequest, Kind
from heedful.serving.http import schemas
from heedful.serving.http.answering import Gateway, unless_gone
from heedful.serving.http.fields import AUTO, NonEmptyText, read_object, validated
from heedful.serving.http.libretranslate import REFUSALS, LibreError


class _ExplainFields(BaseModel):
    q: NonEmptyText
    source: NonEmptyText
    target: NonEmptyText
    attention: Kind | None = None
    layer: int | None = None
    api_key: str = ""


def router(gateway: Gateway, explainer: Explainer) -> APIRouter:
    """Return the route."""
    missing: dict[str, Any] = {"model": LibreError, "description": "The server has no torch"}
    no_layer: dict[str, Any] = {"model": LibreError, "description": "The model has no such layer"}
    routes = APIRouter(tags=["Explanations"], responses={**REFUSALS, 404: no_layer, 501: missing})
    service = gateway.service
    body = schemas.body(schemas.explain(service.catalogue, service.limits))

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
