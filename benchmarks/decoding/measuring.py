"""What every engine's script shares: its arguments, the sentences, the clock, and the JSON line."""

import argparse
import json
import resource
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import median, quantiles

Ids = list[int]
Translate = Callable[[list[Ids]], list[Ids]]  # framed sources to outputs without start, end token included

ABOUT_FILE = "about.json"
ROUNDS = 3
SINGLE = 100
WARM_UP = 5
LONGER_BY = 50


@dataclass(frozen=True)
class Task:
    """What one script is asked for, and what `material.py` wrote of the model.

    Attributes:
        material: the directory with the model in each engine's format.
        precision: of the products.
        layout: of the threads, or what else an engine has two of.
        beam: 1 is greedy search.
        batch_size: sentences that are translated together.
        threads: of the processor.
        outputs: the file for the ids that come out.
        exact_length: of every output; 0 leaves it to the model.
        pad_id: fills up the sources.
        unk_id: of unknown pieces.
        start_id: what the decoder is fed first.
        eos_id: ends an output.
        vocab_size: pieces.
        sources: the sentences.
    """

    material: Path
    precision: str
    layout: str
    beam: int
    batch_size: int
    threads: int
    outputs: Path
    exact_length: int
    pad_id: int
    unk_id: int
    start_id: int
    eos_id: int
    vocab_size: int
    sources: list[Ids]

    def max_length(self, sources: list[Ids]) -> int:
        """The most tokens of an output of these sources, its end token included."""
        return self.exact_length or max(map(len, sources)) + LONGER_BY

    def until_end(self, ids: Ids) -> Ids:
        """An output without what stands after its end token."""
        return ids[: ids.index(self.eos_id) + 1] if self.eos_id in ids else ids

    def padded(self, sources: list[Ids]) -> list[Ids]:
        """Sources of one length."""
        longest = max(map(len, sources))
        return [[*ids, *[self.pad_id] * (longest - len(ids))] for ids in sources]


def parse_task(description: str | None) -> Task:
    """Read a script's command line, and the sentences."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--material", type=Path, required=True, help="directory that material.py filled")
    parser.add_argument("--precision", required=True)
    parser.add_argument("--layout", default="")
    for name in ("beam", "batch-size", "threads"):
        parser.add_argument(f"--{name}", type=int, required=True)
    parser.add_argument("--outputs", type=Path, required=True, help="file for the ids that come out")
    given = parser.parse_args()
    about = json.loads((given.material / ABOUT_FILE).read_text(encoding="utf-8"))
    return Task(**vars(given), **about)


def in_batches(task: Task, translate: Translate) -> Translate:
    """For an engine that makes no batches itself: like lengths together, longest first; the order is kept."""

    def translate_all(sources: list[Ids]) -> list[Ids]:
        found: dict[int, Ids] = {}
        for batch in _batches(sources, task.batch_size):
            found.update(zip(batch, translate([sources[i] for i in batch]), strict=True))
        return [found[i] for i in range(len(sources))]

    return translate_all


def _batches(sources: list[Ids], size: int) -> Iterator[list[int]]:
    order = sorted(range(len(sources)), key=lambda i: (-len(sources[i]), i))
    return (order[start : start + size] for start in range(0, len(order), size))


def measure(task: Task, translate: Translate) -> None:
    """Translate everything several times and some sentences alone; write the outputs, print the JSON line."""
    outputs = translate(task.sources)
    if task.exact_length and any(len(ids) != task.exact_length for ids in outputs):
        raise SystemExit(f"an output has not the {task.exact_length} tokens that were asked for")
    seconds = [_seconds(translate, task.sources) for _ in range(ROUNDS)]
    for source in task.sources[:WARM_UP]:
        translate([source])
    latencies = [1e3 * _seconds(translate, [source]) for source in task.sources[:SINGLE]]
    line = {
        "output_tokens_per_second": sum(map(len, outputs)) / median(seconds),
        "median_latency_ms": median(latencies),
        "p99_latency_ms": quantiles(latencies, n=100)[-1],
        "peak_memory_mib": _peak_memory_mib(),
    }
    task.outputs.write_text(json.dumps(outputs), encoding="ascii")
    sys.stdout.write(json.dumps(line) + "\n")


def _seconds(translate: Translate, sources: list[Ids]) -> float:
    begun = time.perf_counter()
    translate(sources)
    return time.perf_counter() - begun


def _peak_memory_mib() -> float:
    """The most memory that this process ever had resident."""
    status = Path("/proc/self/status")
    if status.exists():  # not getrusage: that one remembers the process which started this one
        line = next(line for line in status.read_text().splitlines() if line.startswith("VmHWM"))
        return int(line.split()[1]) / 1024
    unit = 1024**2 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / unit
