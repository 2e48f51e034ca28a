"""HTTP/1.1 as uvicorn has it, with a limit on how long a request's head may take."""

import asyncio
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

_HEAD_SECONDS = 10.0


class PunctualProtocol(H11Protocol):
    """Closes connections on which no whole head came in time: they would hold a place for ever."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Start the clock."""
        assert isinstance(transport, asyncio.Transport)
        super().connection_made(transport)
        self._clock = self.loop.call_later(_HEAD_SECONDS, self._check_head, transport)

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop the clock."""
        self._clock.cancel()
        super().connection_lost(exc)

    def _check_head(self, transport: asyncio.Transport) -> None:
        cycle: Any = self.cycle
        if cycle is None and not transport.is_closing():
            transport.close()
