"""A service that translates by a rule, behind real sockets, in a thread."""

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import uvicorn
from small_services import RuleTranslator, rule_model

from heedful.serving.access import ApiKey, KeyRing
from heedful.serving.app import application
from heedful.serving.gateway import Gateway
from heedful.serving.limits import Limits
from heedful.serving.metrics import Metrics
from heedful.serving.records import ClientRecords
from heedful.serving.server import HeaderTimeoutProtocol
from heedful.serving.service import TranslationService


class Running:
    """A server in a thread, and the translator behind it."""

    def __init__(self, max_connections: int | None, keys: tuple[ApiKey, ...] | None) -> None:
        self.translator = RuleTranslator(str.upper)
        limits = Limits(body_seconds=1.0, cached_characters=0)
        service = TranslationService([rule_model("m", self.translator)], limits, Metrics())
        app = application(Gateway(service, ClientRecords(keys and KeyRing(keys))))
        config = uvicorn.Config(
            app,
            http=HeaderTimeoutProtocol,
            loop="asyncio",
            ws="none",
            log_level="error",
            limit_concurrency=max_connections,
        )
        self.server = uvicorn.Server(config)
        listening = socket.socket()  # of no named protocol, as uvicorn makes it for several workers
        listening.bind(("127.0.0.1", 0))
        self.address = listening.getsockname()
        self._thread = threading.Thread(target=self.server.run, args=([listening],))
        self._thread.start()
        while not self.server.started:
            time.sleep(0.001)
        self.url = "http://{}:{}".format(*self.address)

    def connect(self, sent: bytes = b"") -> socket.socket:
        """Return a connection on which something was sent."""
        connection = socket.create_connection(self.address, timeout=60)
        connection.sendall(sent)
        return connection

    def num_connections(self) -> int:
        return len(self.server.server_state.connections)

    def stop(self) -> None:
        self.translator.gate.set()
        self.server.should_exit = True
        self._thread.join(60)
        assert not self._thread.is_alive()


@contextmanager
def running(
    *, max_connections: int | None = None, keys: tuple[ApiKey, ...] | None = None
) -> Iterator[Running]:
    """Run a service until the end of the block."""
    server = Running(max_connections, keys)
    try:
        yield server
    finally:
        server.stop()
