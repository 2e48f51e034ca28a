"""Parts that the dialects share: who asks, answers nobody waits for, and the form of errors."""

import asyncio
import logging
from collections.abc import Awaitable
from dataclasses import dataclass
from typing import TypeVar

from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse, Response
from starlette.exceptions import HTTPException

from heedful.serving.access import Clients
from heedful.serving.http.fields import AUTO
from heedful.serving.refusals import (
    BodyTooLargeError,
    ClientGoneError,
    LanguageError,
    RefusedError,
    SlowBodyError,
    TextTooLongError,
)
from heedful.serving.service import Answer, TranslationRequest, TranslationService

T = TypeVar("T")
_DEEPL = ("/v2/", "/v3/")
_SCHEMES = ("deepl-auth-key", "bearer")
_INTERNAL = "Internal error; its reason is in the server's log"
_GONE = 499  # as other servers note it; nobody reads it
_log = logging.getLogger("heedful.serving")


@dataclass(frozen=True)
class Gateway:
    """The way of all dialects to the service, past its keys and rates.

    Attributes:
        service: translates.
        clients: says who may ask.
        log_text: whether texts are logged.
    """

    service: TranslationService
    clients: Clients
    log_text: bool = False

    def authorize(self, request: Request, key: str = "") -> str:
        """Return the name of the client: see `Clients.authorize`. A key may be in a header as well."""
        words = request.headers.get("authorization", "").split(None, 1)
        api_key = key or (words[1] if len(words) == 2 and words[0].lower() in _SCHEMES else "")
        api_key = api_key or request.headers.get("ocp-apim-subscription-key", "")
        return self.clients.authorize(api_key, request.client.host if request.client else "")

    async def translate(self, request: Request, client: str, asked: TranslationRequest) -> list[Answer]:
        """Return the answers, unless the client goes away before.

        Raises:
            ClientGoneError: it did; its place is free again.
        """
        if self.log_text:
            _log.info("%s -> %s: %r", asked.source or AUTO, asked.target, asked.texts)
        answers = await unless_gone(request, self.service.translate(asked))
        self.clients.characters[client] += sum(map(len, asked.texts))
        return answers


async def unless_gone(request: Request, work: Awaitable[T]) -> T:
    """Return the result of work, which is given up when the client closes its connection.

    The body must have been read.

    Raises:
        ClientGoneError: it did.
    """

    async def until_gone() -> None:
        while (await request.receive())["type"] != "http.disconnect":
            pass

    task = asyncio.ensure_future(work)
    watch = asyncio.ensure_future(until_gone())
    try:
        await asyncio.wait((task, watch), return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            raise ClientGoneError
        return task.result()
    finally:
        for each in (task, watch):
            each.cancel()
        await asyncio.gather(task, watch, return_exceptions=True)


def add_error_answers(app: FastAPI) -> None:
    """Tell every mistake in the form of its dialect: {"error"}, or {"message"} for DeepL's."""

    @app.exception_handler(RefusedError)
    async def refused(request: Request, error: RefusedError) -> Response:
        headers = {} if error.retry_after is None else {"Retry-After": str(error.retry_after)}
        if isinstance(error, BodyTooLargeError | SlowBodyError):
            headers["Connection"] = "close"  # the rest of the body is not read
        status, message = error.status, error.message
        if _is_deepl(request):
            status = 413 if isinstance(error, TextTooLongError) else status
            if isinstance(error, LanguageError):
                message = f"Value for '{error.parameter}_lang' not supported."
        return _error(request, status, message, headers)

    @app.exception_handler(HTTPException)
    async def unknown(request: Request, error: HTTPException) -> Response:
        detail, headers = str(error.detail), dict(error.headers or {})
        if error.status_code == 404 and _is_deepl(request):
            detail = "Not found: this server does not support it"
        elif error.status_code == 405:
            operations = request.app.openapi()["paths"].get(request.url.path)  # a route knows its own method
            if operations:
                methods = {*map(str.upper, operations), *(["HEAD"] if "get" in operations else [])}
                headers["Allow"] = ", ".join(sorted(methods))
        return _error(request, error.status_code, detail, headers)

    @app.exception_handler(ClientGoneError)
    async def gone(request: Request, error: ClientGoneError) -> Response:
        return Response(status_code=_GONE)

    @app.exception_handler(Exception)
    async def failed(request: Request, error: Exception) -> Response:
        return _error(request, 500, _INTERNAL, {})


def _is_deepl(request: Request) -> bool:
    return request.url.path.startswith(_DEEPL)


def _error(request: Request, status: int, message: str, headers: dict[str, str]) -> Response:
    key = "message" if _is_deepl(request) else "error"
    return JSONResponse({key: message}, status_code=status, headers=headers)
