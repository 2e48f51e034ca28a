"""The route that says how a text was translated: /explain."""

from typing import Annotated, Any

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse, Response
from pydantic import BaseModel, Field

from heedful.serving.explain import Explainer, ExplainRequest, Kind
from heedful.serving.http import schemas
from heedful.serving.http.answering import Context, unless_gone
from heedful.serving.http.fields import read_fields, validated
from heedful.serving.http.libretranslate import REFUSALS, LibreError
from heedful.serving.refusals import InvalidError

_AUTO = "auto"
_Text = Annotated[str, Field(min_length=1)]


class _ExplainFields(BaseModel):
    q: _Text
    source: _Text
    target: _Text
    attention: Kind | None = None
    layer: int | None = None
    api_key: str = ""


def router(context: Context, explainer: Explainer) -> APIRouter:
    """Return the route."""
    missing: dict[str, Any] = {"model": LibreError, "description": "The server has no torch"}
    no_layer: dict[str, Any] = {"model": LibreError, "description": "The model has no such layer"}
    routes = APIRouter(tags=["Explanations"], responses={**REFUSALS, 404: no_layer, 501: missing})
    service = context.service
    body = schemas.body(schemas.explain(service.catalogue, service.limits))

    @routes.post("/explain", openapi_extra=body)
    async def explain(request: Request) -> Response:
        """Translate a text, and return its tokens, their probabilities, the n-best list and the attention."""
        fields = await read_fields(request, service.limits)
        if isinstance(fields, list):
            raise InvalidError("Invalid JSON format: must be an object")
        client = context.admit(request, str(fields.get("api_key", "")))
        parameters = validated(_ExplainFields, fields)
        answer = await unless_gone(
            request,
            explainer.explain(
                ExplainRequest(
                    text=parameters.q,
                    source=None if parameters.source == _AUTO else parameters.source,
                    target=parameters.target,
                    attention=parameters.attention,
                    layer=parameters.layer,
                )
            ),
        )
        context.clients.characters[client] += len(parameters.q)
        return JSONResponse(answer)

    return routes
