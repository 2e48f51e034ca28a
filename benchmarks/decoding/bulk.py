"""Measure `heedful translate` of files: its throughput beside one batched call, and its peak memory.

    python benchmarks/decoding/bulk.py throughput RUN --src TEXT [--rounds 3]
    python benchmarks/decoding/bulk.py memory RUN --lines 50000 5000000

Throughput: the sentences of a text in one call of the translator, as `heedful bench decode` times them, and
the command that reads and writes files, in turns; CPU seconds, so that others on the machine change little,
and seconds. Loading the model counts for the command. Memory: of a process for each length, with a beam of
one and lines of one word.
"""

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from heedful import Translator
from heedful.verbs.translate import Translate, command

_MIB = 2**20
_WORDS = ("a", "the", "cat", "dog")


def measured(work: Callable[[], object]) -> tuple[float, float]:
    """Return the CPU seconds and the seconds of a call."""
    cpu, wall = time.process_time(), time.perf_counter()
    work()
    return time.process_time() - cpu, time.perf_counter() - wall


def throughput(run: Path, source: Path, rounds: int) -> None:
    """Print the times of both, and their ratio."""
    translator = Translator.load(run)
    texts = [line for line in source.read_text(encoding="utf-8").splitlines() if line.strip()]
    with tempfile.TemporaryDirectory() as folder:
        text, out = Path(folder, "in.txt"), Path(folder, "out.txt")
        text.write_text("".join(f"{line}\n" for line in texts), encoding="utf-8")
        task = Translate(run=run, source=str(text), output=str(out))
        translator.translations(texts)  # warm-up
        times: dict[str, list[tuple[float, float]]] = {"one call": [], "translate -i -o": []}
        for _ in range(rounds):
            times["one call"].append(measured(lambda: translator.translations(texts)))
            times["translate -i -o"].append(measured(lambda: command(task)))
    best = {name: [min(column) for column in zip(*rows, strict=True)] for name, rows in times.items()}
    for name, rows in times.items():
        cpu, wall = (statistics.median(column) for column in zip(*rows, strict=True))
        print(
            f"{name:16} {cpu:8.2f} CPU s, {wall:8.2f} s (medians of {rounds}); "
            f"at least {best[name][0]:.2f} CPU s"
        )
    ratios = [a[0] / b[0] for a, b in zip(times["one call"], times["translate -i -o"], strict=True)]
    print(
        f"throughput of the command: {statistics.median(ratios):.1%} of one call by CPU time, "
        f"{len(texts):,} lines"
    )


def memory(run: Path, sizes: list[int]) -> None:
    """Print the peak memory of a translation of each length, and its time."""
    for size in sizes:
        with tempfile.TemporaryDirectory() as folder:
            source = Path(folder, "in.txt")
            with source.open("w", encoding="utf-8") as file:
                file.writelines(f"{_WORDS[number % 4]}\n" for number in range(size))
            started = time.perf_counter()
            process = subprocess.Popen(
                [sys.executable, "-m", "heedful", "translate", run, "-i", source,
                 "-o", Path(folder, "out.txt"), "--beam-size", "1", "--max-length", "2"]
            )  # fmt: skip
            _, status, usage = os.wait4(process.pid, 0)
            seconds = time.perf_counter() - started
            with Path(folder, "out.txt").open("rb") as file:
                lines = sum(1 for _ in file)
        cpu = usage.ru_utime + usage.ru_stime
        print(
            f"{size:10,} lines: {usage.ru_maxrss * 1024 / _MIB:7.1f} MiB, {cpu:8.1f} CPU s, "
            f"{seconds:8.1f} s, exit code {os.waitstatus_to_exitcode(status)}, {lines:,} lines out",
            flush=True,
        )


def main() -> None:
    """Read the arguments, and measure."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=["throughput", "memory"])
    parser.add_argument("run", type=Path)
    parser.add_argument("--src", type=Path)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--lines", type=int, nargs="+", default=[50_000, 5_000_000])
    arguments = parser.parse_args()
    if arguments.what == "throughput":
        throughput(arguments.run, arguments.src, arguments.rounds)
    else:
        memory(arguments.run, arguments.lines)


if __name__ == "__main__":
    main()
