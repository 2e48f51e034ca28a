"""A server that is killed at any point has each correction that it answered with success, and none twice."""

import json
import os
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPConnection, HTTPException
from itertools import chain, count
from pathlib import Path
from threading import Semaphore

import pytest
from translation_server import TranslationServer, translation_server

from heedful.serving.memories import MemoryStore

_CLIENTS = 4


def suggest(server: TranslationServer, text: str) -> bool:
    """Send a correction; return whether it was answered with success."""
    connection = HTTPConnection(server.host, server.port, timeout=600)
    body = json.dumps({"q": text, "s": f"Das ist {text}", "source": "en", "target": "de"})
    try:
        connection.request("POST", "/suggest", body, {"Content-Type": "application/json"})
        return connection.getresponse().status == 200
    except (OSError, HTTPException):
        return False
    finally:
        connection.close()


@pytest.mark.skipif(os.name == "nt", reason="there is no SIGKILL")
@pytest.mark.representatives(1)
@pytest.mark.parametrize("kills", [2, 20])
def test_a_killed_server_loses_no_correction_and_doubles_none(tmp_path: Path, run: Path, kills: int) -> None:
    answered: list[str] = []
    unanswered: list[str] = []
    numbers = count()

    def client(server: TranslationServer, enough: Semaphore, texts: Iterator[str]) -> None:
        """Send corrections until the server is gone; those without an answer are sent to the next one."""
        for text in texts:
            if not suggest(server, text):
                unanswered.append(text)
                return
            answered.append(text)
            enough.release()

    for kill in range(kills):
        enough = Semaphore(0)
        again, unanswered = unanswered, []
        with (
            translation_server(f"en-de={run}", "--memories", tmp_path) as server,
            ThreadPoolExecutor(_CLIENTS) as pool,
        ):
            for number in range(_CLIENTS):
                new = (f"text {next(numbers)} of {number}" for _ in count())
                pool.submit(client, server, enough, chain(again[number : number + 1], new))
            for _ in range(5 + 3 * kill % 17):
                assert enough.acquire(timeout=600)
            server.process.kill()
            server.process.wait(600)
    listed = Counter(segment.source for segment in MemoryStore(tmp_path).corrections("", "en").listed())
    assert len(answered) >= 5 * kills
    assert set(answered) <= set(listed) <= {*answered, *unanswered}
    assert set(listed.values()) == {1}
