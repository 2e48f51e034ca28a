"""`heedful serve --on ray`: right answers though replicas are killed, models by turns, and an orderly end."""

import json
import random
import re
import signal
import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from http.client import HTTPException
from pathlib import Path

import psutil
import pytest
from command_line import heedful
from tiny_bundle import PAIRS, save_memorised
from translation_server import Reply, TranslationServer, own_ray, translation_server

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(3600),
    pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="no kill -9"),
]
CLIENTS, TEXTS_OF_EACH = 64, 10
PATIENCE = ("--timeout", 3000, "--max-waiting", 10**6)  # of a machine that is slow
WORDS = sorted({word for english, _ in PAIRS for word in english.split() if word.isalpha()})


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("ray.serve")
    return save_memorised(tmp_path_factory.mktemp("served") / "tiny")


@pytest.fixture(scope="module")
def server(bundle: Path) -> Iterator[TranslationServer]:
    """Two replicas of the application, and two of the model."""
    options = ("--on", "ray", "--workers", 2, "--replicas", 2, *PATIENCE)
    with own_ray(), translation_server(f"en-de={bundle}", *options) as running:
        yield running


def ask(server: TranslationServer, text: str) -> Reply:
    return server.post("/translate", {"q": text, "source": "en", "target": "de"})


def replicas(server: TranslationServer, name: str) -> list[psutil.Process]:
    """The processes of a Ray Serve application, which have its name."""
    found = []
    for process in psutil.Process(server.process.pid).children(recursive=True):
        with suppress(psutil.Error):
            if f"ServeReplica:{name}:" in " ".join(process.cmdline()):
                found.append(process)
    return found


class Clients:
    """Clients that ask again for what was not answered."""

    def __init__(self, server: TranslationServer, expected: dict[str, str]) -> None:
        self.server, self.expected = server, expected
        self.answered = 0
        self.repeated: list[str] = []  # why, for each request that was sent again
        self.wrong: list[tuple[str, Reply]] = []
        self._lock = threading.Lock()

    def run(self, texts: list[str]) -> None:
        for text in texts:
            while not self._asked(text):
                time.sleep(0.2)

    def _asked(self, text: str) -> bool:
        try:
            reply = ask(self.server, text)
            problem = "" if reply.status == 200 else f"{reply.status} {reply.body[:200]!r}"
        except (OSError, HTTPException) as error:
            problem = repr(error)
        with self._lock:
            if problem:
                self.repeated.append(problem)
                return False
            self.answered += 1
            if reply.json != {"translatedText": self.expected[text]}:
                self.wrong.append((text, reply))
        return True


# This test starts a Ray of its own: it comes before the one of the tests after it.
def has_begun(server: TranslationServer) -> bool:
    """Whether characters beyond those of the requests before are worked on."""
    metrics = server.ask("GET", "/metrics").body.decode()
    return re.search(r"^heedful_admitted_characters\{.*\} [1-9]", metrics, re.MULTILINE) is not None


def test_models_take_turns_and_sigterm_lets_what_has_begun_end(bundle: Path, tmp_path: Path) -> None:
    """Two models, of which a replica holds one; the end waits for what needs both."""
    other = save_memorised(tmp_path / "other")
    models = (f"en-de={bundle}", f"de-nl={other}")
    options = ("--on", "ray", "--models-per-replica", 1, *PATIENCE)
    with own_ray(), translation_server(*models, *options) as server:
        for english, german in PAIRS[:3]:
            assert ask(server, english).json == {"translatedText": german}
            reply = server.post("/translate", {"q": english, "source": "de", "target": "nl"})
            assert reply.json == {"translatedText": german}  # it is the same model
        lines = [f"the cat sees the dog {number}" for number in range(40)]
        body = json.dumps({"q": lines, "source": "en", "target": "nl"}).encode()
        head = "POST /translate HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
        with socket.create_connection((server.host, server.port), timeout=3000) as client:
            client.sendall(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
            while not has_begun(server):
                time.sleep(0.01)
            assert server.terminate() == 0
            answer = b"".join(iter(lambda: client.recv(65536), b""))
    assert answer.startswith(b"HTTP/1.1 200")
    assert len(json.loads(answer.split(b"\r\n\r\n", 1)[1])["translatedText"]) == 40


@pytest.mark.parametrize("killed", ["heedful-1", "heedful"])
def test_no_answer_is_wrong_or_lost_though_a_replica_is_killed(
    server: TranslationServer, bundle: Path, killed: str
) -> None:
    """A model's batches go to another replica; requests to the application are the client's to repeat."""
    rng = random.Random(len(killed))
    texts = [" ".join(rng.choices(WORDS, k=rng.randint(2, 9))) for _ in range(CLIENTS * TEXTS_OF_EACH)]
    text = "".join(f"{each}\n" for each in texts).encode()
    expected = dict(zip(texts, heedful("translate", bundle, stdin=text).out.splitlines(), strict=True))
    clients = Clients(server, expected)
    before = {process.pid for process in replicas(server, killed)}
    assert len(before) == 2
    with ThreadPoolExecutor(CLIENTS) as threads:
        done = [threads.submit(clients.run, texts[n::CLIENTS]) for n in range(CLIENTS)]
        while clients.answered < len(texts) // 4:
            time.sleep(0.01)
        psutil.Process(before.pop()).kill()
        assert clients.answered < len(texts)
        for each in done:
            each.result()
    assert clients.wrong == []
    assert clients.answered == len(texts)
    if killed == "heedful":  # those in the replica, and those that met it before it was missed
        assert 0 < len(clients.repeated) <= 2 * CLIENTS, clients.repeated
    else:
        assert clients.repeated == []
    while len(replicas(server, killed)) < 2:
        assert server.process.poll() is None
        time.sleep(0.1)


def test_health_metrics_and_explanations_are_answered(server: TranslationServer) -> None:
    assert server.ask("GET", "/health").json == {"status": "ok"}
    ask(server, PAIRS[0][0])
    metrics = server.ask("GET", "/metrics").body.decode()
    assert 'heedful_characters_total{pair="en-de",replica="' in metrics
    fields = {"q": PAIRS[0][0], "source": "en", "target": "de"}
    explained = server.post("/explain", fields).json["sentences"][0]
    assert explained["hypotheses"][0]["text"] == PAIRS[0][1]
