"""Waiting for several things at once, and no longer than anybody needs them."""

import asyncio
from collections.abc import Awaitable, Sequence
from typing import TypeVar

T = TypeVar("T")


async def gathered(awaitables: Sequence[Awaitable[T]]) -> list[T]:
    """Return all results, in order; where one fails, the others are cancelled: nobody needs them."""
    tasks = [asyncio.ensure_future(each) for each in awaitables]
    try:
        return await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
