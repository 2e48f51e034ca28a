"""Load `heedful serve`: latency and throughput for several numbers of clients, overload, SIGTERM under load.

    python benchmarks/serving.py runs/en-de en-de input.en --seconds 60 --clients 1 8 64

Every answer is compared with `heedful translate`. Each request is one line of the input, which should have
more lines than there will be requests, because heedful remembers its answers. Prints one JSON object for each
phase. With --url, another server that knows LibreTranslate's /translate is loaded instead.
"""

import asyncio
import itertools
import json
import signal
import statistics
import subprocess
import time
from collections import Counter, deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from threading import Thread

import httpx
import psutil
from measuring import HEEDFUL, Row, parser_of

from heedful.spans.placeholders import find
from heedful.spans.spanned_text import has_letters
from heedful.text.sentences import split_sentences

_MOST_SECONDS = 90.0  # for an answer


@dataclass
class Phase:
    """What happened in one part of the load."""

    statuses: Counter[str] = field(default_factory=Counter)
    seconds: list[float] = field(default_factory=list)
    answers: dict[str, str] = field(default_factory=dict)

    def summary(self, clients: int, duration: float) -> Row:
        """Return the figures."""
        cuts = statistics.quantiles(self.seconds, n=100) if len(self.seconds) > 1 else [0.0] * 99
        figures: Row = {"clients": clients, "requests_a_second": round(self.statuses["200"] / duration, 1)}
        figures |= {f"p{part}_ms": round(1000 * cuts[part - 1]) for part in (50, 95, 99)}
        return figures | {"statuses": dict(self.statuses)}


class Server:
    """`heedful serve` on a free port, which it says on stderr."""

    def __init__(self, *arguments: str) -> None:
        command = [*HEEDFUL, "serve", *arguments, "--port", "0"]
        self.process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        assert self.process.stderr is not None
        for line in self.process.stderr:
            if "running on" in line:
                self.url = next(word for word in line.split() if word.startswith("http://"))
                Thread(target=deque, args=(self.process.stderr, 0), daemon=True).start()  # reads the rest
                return
        raise SystemExit("error: the server did not start")

    def stop(self) -> tuple[int, float]:
        """Send SIGTERM; return the exit code and the seconds that it took."""
        started = time.monotonic()
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(120), time.monotonic() - started

    def resident_mib(self) -> int:
        """Return the memory of the server."""
        return round(psutil.Process(self.process.pid).memory_info().rss / 2**20)


async def _ask(url: str, texts: Iterator[str], phase: Phase, until: float, pair: str) -> None:
    """Send one request after the other, on one connection."""
    src, tgt = pair.split("-")
    async with httpx.AsyncClient(base_url=url, timeout=_MOST_SECONDS) as client:
        while time.monotonic() < until and (text := next(texts, None)) is not None:
            started = time.monotonic()
            try:
                answer = await client.post("/translate", json={"q": text, "source": src, "target": tgt})
            except httpx.ConnectError:  # the server listens no longer
                phase.statuses["refused"] += 1
                return
            except httpx.HTTPError:
                phase.statuses["no answer"] += 1
                return
            phase.statuses[str(answer.status_code)] += 1
            if answer.status_code == 200:
                phase.seconds.append(time.monotonic() - started)
                phase.answers[text] = answer.json()["translatedText"]
            elif answer.status_code == 429:
                phase.statuses["429 without Retry-After"] += "retry-after" not in answer.headers
                await asyncio.sleep(0.1)


async def load(url: str, texts: Iterator[str], pair: str, clients: int, seconds: float) -> Phase:
    """Let clients ask at once, until the time is over."""
    phase, until = Phase(), time.monotonic() + seconds
    await asyncio.gather(*(_ask(url, texts, phase, until, pair) for _ in range(clients)))
    return phase


async def _terminated(server: Server, texts: Iterator[str], pair: str) -> tuple[Phase, int, Row]:
    """Send SIGTERM to the server three seconds after 16 clients have begun."""
    asking = asyncio.create_task(load(server.url, texts, pair, 16, 30))
    await asyncio.sleep(3)
    code, seconds = await asyncio.to_thread(server.stop)
    return await asking, 16, {"phase": "SIGTERM", "exit_code": code, "seconds_to_exit": round(seconds, 2)}


def num_wrong(bundle: str, answers: dict[str, str], precision: str) -> int:
    """Return how many answers differ from `heedful translate`."""
    command = [*HEEDFUL, "translate", bundle, "--precision", precision]
    text = "".join(f"{line}\n" for line in answers)
    done = subprocess.run(command, input=text, capture_output=True, text=True, check=True)
    return sum(map(str.__ne__, answers.values(), done.stdout.split("\n")[:-1]))


def main() -> None:
    """Print one JSON object for each phase."""
    parser = parser_of(__doc__)
    parser.add_argument("bundle")
    parser.add_argument("pair")
    parser.add_argument("input", type=Path)
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("--clients", type=int, nargs="*", default=[1, 8, 64])
    parser.add_argument("--precision", default="float32")
    parser.add_argument("--url", help="another server's, e.g. http://127.0.0.1:5000")
    given = parser.parse_args()
    lines = dict.fromkeys(given.input.read_text(encoding="utf-8").splitlines())
    single = [
        line for line in lines if has_letters(line) and len(split_sentences(line)) == 1 and not find(line)
    ]
    texts, pair = itertools.cycle(single), given.pair

    def show(phase: Phase, clients: int, more: Row) -> None:
        figures = phase.summary(clients, given.seconds) | more
        print(
            json.dumps(figures | {"wrong": num_wrong(given.bundle, phase.answers, given.precision)}),
            flush=True,
        )

    arguments = (f"{pair}={given.bundle}", "--precision", given.precision)
    server = None if given.url else Server(*arguments)
    url = server.url if server else given.url
    asyncio.run(load(url, texts, pair, 2, 2))  # warm-up
    for clients in given.clients:
        phase = asyncio.run(load(url, texts, pair, clients, given.seconds))
        show(phase, clients, {"resident_mib": server.resident_mib()} if server else {})
    if server:
        show(*asyncio.run(_terminated(server, texts, pair)))
        small = Server(*arguments, "--max-waiting", "1000", "--max-characters", "1000")
        show(asyncio.run(load(small.url, texts, pair, 64, given.seconds)), 64, {"phase": "overload"})
        show(asyncio.run(load(small.url, texts, pair, 1, 1)), 1, {"phase": "the second after"})
        small.stop()


if __name__ == "__main__":
    main()
