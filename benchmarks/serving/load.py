"""Load a server: latency and throughput for several numbers of clients, overload, and SIGTERM under load.

    python benchmarks/serving/load.py runs/en-de en-de input.en --seconds 60 --requests 20000 --peer PYTHON

Every answer is compared with that of `heedful translate`. Each request is one line of the input, which
should have more lines than there will be requests: heedful remembers its answers. With --peer, a Python that
has requirements-flask.txt, flask_ctranslate2.py is loaded in turns with it.
"""

import argparse
import asyncio
import itertools
import json
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter, deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from threading import Thread
from urllib.parse import urlsplit

from heedful.documents.marked_text import find
from heedful.documents.segments import has_letters
from heedful.text.sentences import split_sentences

_MOST_SECONDS = 90  # for an answer
HEEDFUL = [sys.executable, "-m", "heedful"]


@dataclass
class Phase:
    """Everything that happened in a part of the load."""

    statuses: Counter[str] = field(default_factory=Counter)
    seconds: list[float] = field(default_factory=list)
    answers: dict[str, str] = field(default_factory=dict)
    without_retry_after: int = 0

    def summary(self, clients: int, duration: float) -> dict[str, object]:
        """Return the figures of a phase."""
        cuts = statistics.quantiles(self.seconds, n=100) if len(self.seconds) > 1 else [0.0] * 99
        return {
            "clients": clients,
            "requests_a_second": round(self.statuses["200"] / duration, 1),
            "p50_ms": round(1000 * cuts[49]),
            "p95_ms": round(1000 * cuts[94]),
            "p99_ms": round(1000 * cuts[98]),
            "statuses": dict(self.statuses),
        }


class Server:
    """A server on a free port, which it says on stderr."""

    def __init__(self, *command: str) -> None:
        """Start it, and wait until it listens."""
        self.process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        assert self.process.stderr is not None
        for line in self.process.stderr:
            if "running on" in line:
                address = urlsplit(next(word for word in line.split() if word.startswith("http://")))
                self.host, self.port = str(address.hostname), int(address.port or 0)
                # A server that writes to a pipe that nobody reads stops once it is full: waitress logs each
                # request that waits.
                Thread(target=deque, args=(self.process.stderr, 0), daemon=True).start()
                return
        raise SystemExit("the server did not start")

    def stop(self) -> tuple[int, float]:
        """Send SIGTERM; return the exit code and the seconds that it took."""
        started = time.monotonic()
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(120), time.monotonic() - started


class Client:
    """One connection, kept open."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def post(self, path: str, content: object) -> tuple[int, dict[str, str], bytes]:
        """Return status, headers and body of an answer.

        Raises:
            OSError: there is none.
        """
        if self._streams is None:
            self._streams = await asyncio.open_connection(self._server.host, self._server.port)
        reader, writer = self._streams
        body = json.dumps(content).encode()
        head = f"POST {path} HTTP/1.1\r\nHost: test\r\nContent-Type: application/json\r\n"
        try:
            writer.write(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
            await writer.drain()
            first, *lines = (await reader.readuntil(b"\r\n\r\n")).decode().strip().split("\r\n")
            headers = {name.lower(): value for name, value in (line.split(": ", 1) for line in lines)}
            answer = await reader.readexactly(int(headers["content-length"]))
        except asyncio.IncompleteReadError as error:
            self.close()
            if error.partial:
                raise SystemExit(f"an answer was cut off: {error.partial!r}") from None
            raise ConnectionResetError from None
        except OSError:
            self.close()
            raise
        if headers.get("connection") == "close":
            self.close()
        return int(first.split()[1]), headers, answer

    def close(self) -> None:
        """Close the connection."""
        if self._streams is not None:
            self._streams[1].close()
            self._streams = None


def serve(*arguments: str) -> Server:
    """Start `heedful serve`."""
    return Server(*HEEDFUL, "serve", *arguments, "--port", "0")


async def ask(
    server: Server, texts: Iterator[str], phase: Phase, until: float, pair: tuple[str, str]
) -> None:
    """Send one request after the other."""
    client = Client(server)
    while time.monotonic() < until:
        text = next(texts, None)
        if text is None:
            break
        started = time.monotonic()
        try:
            content = {"q": text, "source": pair[0], "target": pair[1]}
            async with asyncio.timeout(_MOST_SECONDS):
                status, headers, body = await client.post("/translate", content)
        except ConnectionRefusedError:  # the server listens no longer
            phase.statuses["refused"] += 1
            return
        except OSError:  # no answer in time is one, too
            phase.statuses["no answer"] += 1
            return
        phase.statuses[str(status)] += 1
        if status == 200:
            phase.seconds.append(time.monotonic() - started)
            phase.answers[text] = json.loads(body)["translatedText"]
        elif status == 429:
            phase.without_retry_after += "retry-after" not in headers
            await asyncio.sleep(0.1)
    client.close()


async def run_phase(
    server: Server, texts: Iterator[str], pair: tuple[str, str], clients: int, seconds: float
) -> Phase:
    """Let clients ask at once, until the time is over or there are no texts left."""
    phase, until = Phase(), time.monotonic() + seconds
    await asyncio.gather(*(ask(server, texts, phase, until, pair) for _ in range(clients)))
    return phase


async def terminate_under_load(
    server: Server, texts: Iterator[str], pair: tuple[str, str]
) -> dict[str, object]:
    """Send SIGTERM to a server that is busy."""
    phase = Phase()
    until = time.monotonic() + 30
    asking = [asyncio.create_task(ask(server, texts, phase, until, pair)) for _ in range(16)]
    await asyncio.sleep(3)
    code, seconds = await asyncio.to_thread(server.stop)
    await asyncio.gather(*asking)
    return {
        "exit_code": code,
        "seconds_to_exit": round(seconds, 2),
        "statuses": dict(phase.statuses),
        "phase": phase,
    }


def count_wrong(bundle: str, answers: dict[str, str], precision: str) -> int:
    """Return how many answers differ from those of `heedful translate`."""
    lines = [text for text in answers if "\n" not in text]
    done = subprocess.run(
        [*HEEDFUL, "translate", bundle, "--precision", precision],
        input="\n".join([*lines, ""]),
        capture_output=True,
        text=True,
        check=True,
    )
    expected = done.stdout.split("\n")[:-1]
    return sum(answers[line] != text for line, text in zip(lines, expected, strict=True))


def asked_once(lines: Sequence[str]) -> Iterator[str]:
    """Yield the lines, and then again, which is said: the server remembers its answers to them."""
    yield from lines
    print(json.dumps({"asked again": "from here on, answers are remembered ones"}), flush=True)
    yield from itertools.cycle(lines)


def resident_mb(server: Server) -> float:
    """Return the memory of the server in megabytes."""
    import psutil

    return round(psutil.Process(server.process.pid).memory_info().rss / 2**20)


def main() -> None:
    """Print one JSON object for each phase."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("bundle")
    parser.add_argument("pair")
    parser.add_argument("input", type=Path)
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("--clients", type=int, nargs="*", default=[1, 8, 64])
    parser.add_argument("--requests", type=int, help="in one more phase, for the memory")
    parser.add_argument("--peer", help="a Python with requirements-flask.txt")
    parser.add_argument("--peer-threads", default="", help="of one of the peer's translations; all cores")
    parser.add_argument("--precision", default="float32", help="of both servers")
    options = parser.parse_args()
    precision = ("--precision", options.precision)
    src, tgt = options.pair.split("-")
    pair = (src, tgt)
    lines = dict.fromkeys(options.input.read_text(encoding="utf-8").splitlines())
    sentences = (line for line in lines if has_letters(line) and len(split_sentences(line)) == 1)
    single = [
        line for line in sentences if not find(line)
    ]  # placeholders stay as they are in the service alone
    texts = asked_once(single)
    model = f"{options.pair}={options.bundle}"
    with tempfile.TemporaryDirectory() as folder:
        servers = {"heedful": serve(model, *precision)}
        if options.peer:
            servers["flask and ctranslate2"] = peer(
                options.peer,
                options.bundle,
                Path(folder) / "exported",
                options.precision,
                threads=options.peer_threads,
            )
        for server in servers.values():
            asyncio.run(run_phase(server, texts, pair, 2, 2))
        for clients in options.clients:
            for name, server in servers.items():
                phase = asyncio.run(run_phase(server, texts, pair, clients, options.seconds))
                figures = {"server": name} | phase.summary(clients, options.seconds)
                figures |= {"resident_mb": resident_mb(server)}
                if name == "heedful":
                    figures |= {"wrong": count_wrong(options.bundle, phase.answers, options.precision)}
                print(json.dumps(figures), flush=True)
        if options.peer:
            servers["flask and ctranslate2"].stop()
    server = servers["heedful"]
    if options.requests:
        for part in range(4):
            some = itertools.islice(texts, options.requests // 4)
            phase = asyncio.run(run_phase(server, some, pair, 64, 3600))
            figures = {"part": part + 1, "statuses": dict(phase.statuses), "resident_mb": resident_mb(server)}
            print(
                json.dumps(
                    figures | {"wrong": count_wrong(options.bundle, phase.answers, options.precision)}
                ),
                flush=True,
            )
    ended = asyncio.run(terminate_under_load(server, texts, pair))
    phase = ended.pop("phase")
    assert isinstance(phase, Phase)
    print(
        json.dumps(
            {"SIGTERM": ended, "wrong": count_wrong(options.bundle, phase.answers, options.precision)}
        ),
        flush=True,
    )
    small = serve(model, *precision, "--max-waiting", "1000", "--max-characters", "1000")
    phase = asyncio.run(run_phase(small, texts, pair, 64, options.seconds))
    figures = phase.summary(64, options.seconds)
    wrong = count_wrong(options.bundle, phase.answers, options.precision)
    after = asyncio.run(run_phase(small, texts, pair, 1, 1))  # at once after the load
    back = {"statuses": dict(after.statuses)}
    print(
        json.dumps(
            {
                "overload": figures,
                "without_retry_after": phase.without_retry_after,
                "wrong": wrong,
                "the second after": back,
            }
        )
    )
    small.stop()


def peer(python: str, bundle: str, exported: Path, precision: str, *, threads: str) -> Server:
    """Export a model, and serve it by Flask and CTranslate2."""
    command = [*HEEDFUL, "export", bundle, "--to", "ctranslate2", "--output", str(exported)]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    script = Path(__file__).parent / "flask_ctranslate2.py"
    settings = ["--compute-type", precision, *(["--threads", threads] if threads else [])]
    return Server(python, str(script), str(exported), *settings)


if __name__ == "__main__":
    main()
