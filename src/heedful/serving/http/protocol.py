"""HTTP/1.1 as uvicorn has it, with a limit on how long a request's head may take."""

import asyncio
from typing import Any, cast

from uvicorn.protocols.http.h11_impl import H11Protocol

CLOSING = "heedful.closing"  # in the scope of a request that is its connection's last
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

    def shutdown(self) -> None:
        """Close the connection, after the answer that is on its way: `CLOSING` makes it say so."""
        if self.cycle is not None and not self.cycle.response_complete:
            cast(dict[str, Any], self.scope)[CLOSING] = True
        super().shutdown()

    def _check_head(self, transport: asyncio.Transport) -> None:
        cycle: Any = self.cycle
        if cycle is None and not transport.is_closing():
            transport.close()
