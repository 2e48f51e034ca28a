"""A service without a server, for requests to all of its routes."""

import asyncio
from pathlib import Path
from typing import Any

import httpx
from small_services import rule_service

from heedful.serving.access import KeyRing
from heedful.serving.app import application
from heedful.serving.document_jobs import DocumentJobs
from heedful.serving.gateway import Gateway
from heedful.serving.memories import MemoryStore
from heedful.serving.records import ClientRecords

PAGE = "https://a.example"


def ask(
    method: str,
    path: str,
    *,
    directory: Path | None = None,
    keys: KeyRing | None = None,
    memories: MemoryStore | None = None,
    **options: Any,  # noqa: ANN401
) -> httpx.Response:
    """Return the answer of a service that --cors lets a page use, behind a proxy on this machine."""

    async def answered() -> httpx.Response:
        service = rule_service()
        documents = None if directory is None else DocumentJobs(service, directory)
        gateway = Gateway(
            service, ClientRecords(keys), documents=documents, memories=memories, origins=(PAGE,)
        )
        app = application(gateway, proxies=("127.0.0.1",))
        async with (
            app.router.lifespan_context(app),
            httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://inside") as client,
        ):
            return await client.request(method, path, **options)

    return asyncio.run(answered())
