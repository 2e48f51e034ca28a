"""Measure how long a short request takes while one client after the other sends garbage within the limits.

    python benchmarks/serving/garbage.py runs/en-de en-de input.en --seconds 30

Each kind of garbage is sent by --clients clients without a pause, and short lines of the input by one. No
line is asked twice, and each has a number, so that none is remembered.
"""

import argparse
import asyncio
import itertools
import json
import statistics
import time
from collections.abc import Iterator
from pathlib import Path

from load import Client, Server, serve

GARBAGE = {  # what is repeated, up to about 5,000 characters, and the format
    "nothing": ("", "text"),
    "CDATA": ("<![CDATA[" * 20, "html"),
    "tags": ("<a " * 60, "html"),
    "wbr": ("a<wbr>" * 30, "html"),
    "address": ("http://" + ")" * 180, "html"),
    "one letter": ("c" * 180, "text"),
    "four lines": ("c" * 990 + "\n", "text"),
}
_CHARACTERS = 4_950
_SHORT = 60  # characters
_AT_MOST = 70  # seconds for an answer


def garbage(repeated: str, number: int) -> str:
    """Return a text that has a number wherever it repeats itself, so that no part of it is remembered."""
    times = _CHARACTERS // (len(repeated) + 6)
    return "".join(f"{number:04}{part:02}{repeated}" for part in range(times))


async def send_garbage(
    client: Client, repeated: str, kind: str, numbers: Iterator[int], pair: tuple[str, str]
) -> None:
    """Send one text after the other."""
    for number in numbers:
        content = {"q": garbage(repeated, number), "source": pair[0], "target": pair[1], "format": kind}
        await client.post("/translate", content)


async def measure(
    server: Server,
    texts: list[str],
    pair: tuple[str, str],
    seconds: float,
    senders: list[asyncio.Task[None]],
) -> dict[str, object]:
    """Return the percentiles of the time for short requests."""
    client, times, statuses = Client(server), [], set()
    until = time.monotonic() + seconds
    await asyncio.sleep(0.5)
    while time.monotonic() < until:
        content = {"q": texts.pop(), "source": pair[0], "target": pair[1]}
        started = time.monotonic()
        async with asyncio.timeout(_AT_MOST):
            status, _, _ = await client.post("/translate", content)
        statuses.add(status)
        times.append(time.monotonic() - started)
        await asyncio.sleep(0.02)
    for sender in senders:
        sender.cancel()
    await asyncio.gather(*senders, return_exceptions=True)
    client.close()
    cuts = statistics.quantiles(times, n=100) if len(times) > 1 else times * 99
    figures = {
        name: round(1000 * cuts[n - 1]) for name, n in (("p50_ms", 50), ("p95_ms", 95), ("p99_ms", 99))
    }
    return {"requests": len(times), "statuses": sorted(statuses), **figures}


async def after_one_that_left(server: Server, text: str, short: str, pair: tuple[str, str]) -> float:
    """Return the milliseconds of a short request, after a client with much to do left after half a second."""
    gone, client = Client(server), Client(server)
    content = {"q": text, "source": pair[0], "target": pair[1]}
    task = asyncio.create_task(gone.post("/translate", content))
    await asyncio.sleep(0.5)
    task.cancel()
    gone.close()
    started = time.monotonic()
    await client.post("/translate", {"q": short, "source": pair[0], "target": pair[1]})
    client.close()
    return round(1000 * (time.monotonic() - started))


async def run(server: Server, lines: list[str], options: argparse.Namespace) -> None:
    """Print one JSON object for each kind."""
    src, tgt = options.pair.split("-")
    short = [line for line in lines if len(line) <= _SHORT]
    texts = [f"{number} {line}" for number, line in zip(range(10**6), itertools.cycle(short), strict=False)]
    numbers = itertools.count()
    for name, (repeated, kind) in GARBAGE.items():
        clients = [Client(server) for _ in range(options.clients if repeated else 0)]
        senders = [
            asyncio.create_task(send_garbage(each, repeated, kind, numbers, (src, tgt))) for each in clients
        ]
        figures = await measure(server, texts, (src, tgt), options.seconds, senders)
        for each in clients:
            each.close()
        print(json.dumps({"beside": name, "clients": len(clients)} | figures), flush=True)
    text = garbage(GARBAGE["four lines"][0], next(numbers))
    milliseconds = await after_one_that_left(server, text, texts.pop(), (src, tgt))
    print(json.dumps({"after": "four lines, client gone after 0.5 s", "ms": milliseconds}))


def main() -> None:
    """Start a server, and measure."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("bundle")
    parser.add_argument("pair")
    parser.add_argument("input", type=Path)
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--clients", type=int, default=1, help="that send garbage at the same time")
    options = parser.parse_args()
    server = serve(f"{options.pair}={options.bundle}")
    try:
        asyncio.run(run(server, options.input.read_text(encoding="utf-8").splitlines(), options))
    finally:
        server.stop()


if __name__ == "__main__":
    main()
