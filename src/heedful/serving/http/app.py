"""The application: every dialect over one service."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from importlib.metadata import version

from fastapi import FastAPI
from fastapi.middleware.cors import CORSMiddleware

from heedful.serving import page
from heedful.serving.explain import Explainer
from heedful.serving.http import deepl, explanations, libretranslate, operations
from heedful.serving.http.answering import Gateway, add_error_answers
from heedful.serving.http.middleware import Observed
from heedful.serving.http.protocol import report_accept_errors


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
    app.include_router(operations.router(app, gateway))
    app.include_router(deepl.router(gateway))
    app.include_router(explanations.router(gateway, explainer))
    app.include_router(page.router())
    if origins:
        app.add_middleware(
            CORSMiddleware, allow_origins=list(origins), allow_methods=["GET", "POST"], allow_headers=["*"]
        )
    app.add_middleware(Observed, metrics=gateway.service.metrics)
    return app
