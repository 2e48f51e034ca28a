"""A dialect of the service: GET /plain?q=...&source=en&target=de answers with plain text.

`application(gateway)` is a FastAPI application: `app.include_router(router(gateway))` adds the route.
"""

from fastapi import APIRouter, Request
from fastapi.responses import PlainTextResponse

from heedful.serving.gateway import Gateway
from heedful.serving.service import TranslationRequest


def router(gateway: Gateway) -> APIRouter:
    """Return the route; the gateway checks keys and rates, translates, and counts."""
    routes = APIRouter(tags=["Plain text"])

    @routes.get("/plain")
    async def translate(
        request: Request, q: str, source: str, target: str, key: str = ""
    ) -> PlainTextResponse:
        """Translate a text."""
        client = await gateway.authorize(request, key)
        asked = TranslationRequest(texts=(q,), source=source, target=target)
        [answer] = await gateway.translate(request, client, asked)
        return PlainTextResponse(answer.text)

    return routes
