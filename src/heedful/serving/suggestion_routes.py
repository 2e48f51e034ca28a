"""LibreTranslate's /suggest, which stores better translations."""

import asyncio
from datetime import UTC, datetime

from fastapi import APIRouter, Request
from pydantic import BaseModel

from heedful.serving.gateway import Gateway, NonEmptyText, described_body, schema_of
from heedful.serving.libretranslate import REFUSALS
from heedful.serving.refusals import UnauthorizedError
from heedful.serving.suggestions import Suggestion


class _Fields(BaseModel):
    q: NonEmptyText
    s: NonEmptyText
    source: NonEmptyText
    target: NonEmptyText
    api_key: str = ""


class Stored(BaseModel):
    """A suggestion that is on the disk."""

    success: bool


def router(gateway: Gateway) -> APIRouter:
    """Return the route."""
    routes = APIRouter(tags=["LibreTranslate"], responses=REFUSALS)

    @routes.post("/suggest", openapi_extra=described_body(schema_of(_Fields)))
    async def suggest(request: Request) -> Stored:
        """Store a better translation (`s`) of a text (`q`)."""
        if gateway.suggestions is None:
            raise UnauthorizedError("Suggestions are not stored by this server (--suggestions)")
        gateway.check_origin(request)
        client, parameters = await gateway.parameters(request, _Fields)
        gateway.service.check_size(1, len(parameters.q) + len(parameters.s))
        source, target = gateway.service.catalogue.languages(parameters.source, parameters.target)
        suggestion = Suggestion(
            time=datetime.now(UTC),
            client=client,
            source=source or "",
            target=target,
            q=parameters.q,
            s=parameters.s,
        )
        await asyncio.to_thread(gateway.suggestions.add, suggestion)
        return Stored(success=True)

    return routes
