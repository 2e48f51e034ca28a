"""A Redis server of the test's own, where redis-server is installed."""

import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import pytest


@contextmanager
def redis_server() -> Iterator[str]:
    """Yield the URL of a server that stores nothing on disk."""
    redis = pytest.importorskip("redis")
    program = shutil.which("redis-server")
    if program is None:
        pytest.skip("no redis-server")
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    command = [program, "--port", str(port), "--save", "", "--appendonly", "no", "--bind", "127.0.0.1"]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    url = f"redis://127.0.0.1:{port}/0"
    try:
        with redis.Redis.from_url(url) as client:
            while process.poll() is None:
                with suppress(redis.exceptions.ConnectionError):
                    client.ping()
                    break
                time.sleep(0.01)
        yield url
    finally:
        process.kill()
        process.wait()
