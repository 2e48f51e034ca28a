"""Headers that every answer has."""

import asyncio
from typing import Any

from starlette.types import Message, Receive, Send

from heedful.serving.app import MetricsMiddleware
from heedful.serving.metrics import Metrics
from heedful.serving.server import CLOSING


def headers(scope: dict[str, Any]) -> dict[str, str]:
    """Those of an empty answer."""
    sent: list[Message] = []

    async def app(scope: Message, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    async def receive() -> Message:
        return {"type": "http.request"}

    async def send(message: Message) -> None:
        sent.append(message)

    asyncio.run(MetricsMiddleware(app, Metrics())({"type": "http", "method": "GET", **scope}, receive, send))
    return {name.decode(): value.decode() for name, value in sent[0]["headers"]}


def test_answers_are_for_the_asker_alone() -> None:
    found = headers({})
    assert found["x-content-type-options"] == "nosniff"
    assert found["x-frame-options"] == "DENY"
    assert found["referrer-policy"] == "no-referrer"
    assert found["cache-control"] == "no-store"
    assert "frame-ancestors 'none'" in found["content-security-policy"]
    assert "connection" not in found


def test_the_last_answer_of_a_connection_says_so() -> None:
    assert headers({CLOSING: True})["connection"] == "close"
