"""`heedful serve` as a process of its own, and the plainest of clients."""

import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

_SECONDS = 600  # for an answer on a machine that is busy
_WITH_FEW_FILES = """
import resource, runpy
resource.setrlimit(resource.RLIMIT_NOFILE, ({0}, {0}))
runpy.run_module("heedful", run_name="__main__", alter_sys=True)
"""


@dataclass(frozen=True)
class Reply:
    """An answer."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:  # noqa: ANN401
        return json.loads(self.body)


class TranslationServer:
    """A running server."""

    def __init__(self, *arguments: object, max_files: int | None = None, program: str = "") -> None:
        program = program if max_files is None else _WITH_FEW_FILES.format(max_files)
        started = ["-c", program] if program else ["-m", "heedful"]
        command = [sys.executable, *started, "serve", *map(str, arguments), "--port", "0"]
        environment = os.environ | {"OMP_WAIT_POLICY": "PASSIVE"}
        self.is_on_ray = "ray" in arguments
        self.process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment)
        assert self.process.stderr is not None
        self.log: list[str] = []
        for line in self.process.stderr:
            self.log.append(line)
            if "running on" in line:
                break
        else:
            raise AssertionError("".join(self.log))
        self.url = next(word for word in self.log[-1].split() if word.startswith("http://"))
        address = urlsplit(self.url)
        self.host, self.port = str(address.hostname), int(address.port or 0)
        self._reader = threading.Thread(target=self._read_log, daemon=True)
        self._reader.start()

    def _read_log(self) -> None:
        assert self.process.stderr is not None
        self.log += self.process.stderr

    def ask(
        self, method: str, path: str, body: bytes | None = None, headers: dict[str, str] | None = None
    ) -> Reply:
        """Send a request on a connection of its own."""
        connection = http.client.HTTPConnection(self.host, self.port, timeout=_SECONDS)
        try:
            connection.request(method, path, body, headers or {})
            response = connection.getresponse()
            found = {name.lower(): value for name, value in response.getheaders()}
            return Reply(response.status, found, response.read())
        finally:
            connection.close()

    def post(self, path: str, content: object, **headers: str) -> Reply:
        """Send JSON."""
        return self.ask(
            "POST", path, json.dumps(content).encode(), {"Content-Type": "application/json"} | headers
        )

    def raw(self, request: bytes) -> bytes:
        """Send bytes, and read until the server closes the connection."""
        with socket.create_connection((self.host, self.port), timeout=60) as connection:
            connection.sendall(request)
            return b"".join(iter(lambda: connection.recv(65536), b""))

    def terminate(self) -> int:
        """Send SIGTERM; the exit code."""
        self.process.send_signal(signal.SIGTERM)
        code = self.process.wait(_SECONDS)
        self._reader.join(60)
        return code


@contextmanager
def translation_server(
    *arguments: object, max_files: int | None = None, program: str = ""
) -> Iterator[TranslationServer]:
    """Run a server until the end of the block, which may open so many files, or by a program of its own."""
    server = TranslationServer(*arguments, max_files=max_files, program=program)
    try:
        yield server
    finally:
        if server.process.poll() is None:
            server.terminate()
        server.process.stderr.close()  # type: ignore[union-attr]


_OF_SLOW_MACHINES = {
    "RAY_agent_register_timeout_ms": "900000",
    "RAY_worker_register_timeout_seconds": "900",
    "RAY_health_check_timeout_ms": "300000",
    "RAY_SERVE_PROXY_READY_CHECK_TIMEOUT_S": "300",
    "RAY_SERVE_PROXY_HEALTH_CHECK_TIMEOUT_S": "300",
    "RAY_SERVE_QUEUE_LENGTH_RESPONSE_DEADLINE_S": "2",
}


@contextmanager
def own_ray() -> Iterator[None]:
    """Let servers of the block start a Ray of their own, which ends with them, and join none that is there.

    A cluster is joined nevertheless where RAY_ADDRESS names one.
    """
    added = {name: value for name, value in _OF_SLOW_MACHINES.items() if name not in os.environ}
    added |= {} if "RAY_ADDRESS" in os.environ else {"RAY_ADDRESS": "local"}
    os.environ.update(added)
    try:
        yield
    finally:
        for name in added:
            del os.environ[name]
