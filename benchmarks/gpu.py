"""Measure heedful on a machine with a GPU, in less than ten minutes: make gpu.

    python benchmarks/gpu.py --out DIR              # everything, most informative first
    python benchmarks/gpu.py --device cpu --dry     # every row at toy size: finds mistakes without a GPU
    python benchmarks/gpu.py --page DIR             # write docs/results/gpu.md from these results

Each row is a process with a time limit: if it crashes or hangs, the other rows run all the same. Rows are
skipped if no time is left for them (--minutes). DIR/results.jsonl gets a record as soon as there is one.
Progress goes to standard error, and the last line of standard output is one JSON object of all. The exit code
is 1 if a row failed.

    ceilings            the machine; the rates of a bf16 product of 8192^3 and of a copy on the device
    tests               pytest -m gpu, four workers: passed, failed and why, what came nearest to its bound
    training-VARIANT    base, 25k + 25k tokens, bf16, by Adam and by Muon: ms a step (median of 40), target
                        tokens/s, operations of a target token with its source token, their share of the
                        product's rate, GB; from torch.profiler in 3 steps, kernel launches of a step, share
                        of idle time, the ten costliest kernels. VARIANT is compiled-graphs, graphs, eager or
                        compiled (`training_run` in gpu_rows.py)
    decoding-off, -on   base, greedy and beam 4, batches of 1, 64, 256 and 1,024, bf16 and fp16: tokens/s and
                        BLEU, without CUDA graphs and with them
    decoding-marian     transformers' MarianMTModel, the same weights: tokens/s, share of equal outputs
    training-sizes      the fastest variant, by Adam, with batches of 12k, 50k and 100k tokens, and
                        the preset small
    resume              a training killed by kill -9 and resumed: whether its weights have the same bits
    recipe              Multi30k, seed 1: BLEU every 200 steps and its time, time to 39.0, BLEU of the test

Sentences to train on are random words with the lengths of image captions, as in `training_speed.py`. Those
to translate are one to five of the embedded phrase book, on which base is trained for 250 steps.
"""

import argparse
import json
import math
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import psutil
from gpu_rows import (
    ROOT,
    Run,
    SkippedError,
    ceilings,
    decoding,
    marian,
    recipe,
    resume,
    sizes,
    tests,
    training,
)
from measuring import table

# Name, seconds at most, and the function, most informative first.
ROWS: dict[str, tuple[int, Callable[[Run], None]]] = {
    "ceilings": (60, ceilings),
    "tests": (150, tests),
    "training-graphs": (75, partial(training, variant="graphs")),
    "training-compiled-graphs": (150, partial(training, variant="compiled-graphs")),
    "training-eager": (75, partial(training, variant="eager")),
    "decoding-off": (120, partial(decoding, graphs="off")),
    "decoding-on": (75, partial(decoding, graphs="on")),
    "decoding-marian": (75, marian),
    "training-sizes": (75, sizes),
    "resume": (75, resume),
    "training-compiled": (150, partial(training, variant="compiled")),
    "recipe": (165, recipe),
}
RESULTS = "results.jsonl"
PAGE = ROOT / "docs" / "results" / "gpu.md"
SKIPPED = 3  # the exit code of a row that cannot be measured here
_SLOWER = 5  # times, a dry run on a busy CPU
_LEAST = 5.0  # seconds; no row starts with less
Record = dict[str, Any]


def main() -> int:
    """Measure the chosen rows; return 1 if one failed."""
    given = _parse()
    if given.page:
        return write_page(given.page)
    if given.row:
        return _measure_here(given)
    if problem := _problem_of(given.device):
        print(f"error: {problem}", file=sys.stderr)
        return 1
    given.out.mkdir(parents=True, exist_ok=True)
    results = given.out / RESULTS
    if results.exists():  # a GPU may be hard to get again
        results.replace(given.out / f"{RESULTS}.{time.time_ns()}")
    results.touch()
    deadline = time.monotonic() + 60 * given.minutes
    folder = tempfile.TemporaryDirectory(prefix="heedful-gpu-", ignore_cleanup_errors=True)
    with _exit_on_sigterm(), folder as work:
        command = [sys.executable, __file__, "--out", str(given.out), "--device", given.device]
        command += ["--work", work, *(["--dry"] if given.dry else [])]
        statuses = measure(
            {name: [*command, "--row", name] for name in given.rows},
            {name: ROWS[name][0] * (_SLOWER if given.dry else 1) for name in given.rows},
            results=results,
            deadline=math.inf if given.dry else deadline,
            environment=_environment(Path(work), dry=given.dry),
        )
    records = [{key: each[key] for key in each if key != "costliest_ms"} for each in read(results)]
    print(json.dumps({"statuses": statuses, "records": records}, ensure_ascii=False))
    return int(any(status in ("failed", "timed out") for status in statuses.values()))


@contextmanager
def _exit_on_sigterm() -> Iterator[None]:
    """Leave the block on SIGTERM: the row in progress ends first, and the folder of work goes."""

    def end(*_: object) -> None:
        rows = psutil.Process().children(recursive=True)
        for row in rows:
            with suppress(psutil.NoSuchProcess):
                row.kill()
        psutil.wait_procs(rows)
        sys.exit(128 + signal.SIGTERM)

    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, default=Path("build/gpu"), help="the folder of results.jsonl")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--dry", action="store_true", help="toy sizes")
    parser.add_argument("--rows", default=",".join(ROWS), help="names, separated by commas")
    parser.add_argument("--minutes", type=float, default=9.5, help="when all of it ends")
    parser.add_argument("--page", type=Path, metavar="DIR", help="write docs/results/gpu.md from DIR")
    for name, kind in (("--row", str), ("--work", Path), ("--limit", float)):  # of the process of a row
        parser.add_argument(name, type=kind, help=argparse.SUPPRESS)
    given = parser.parse_args()
    given.rows = given.rows.split(",")
    if unknown := set(given.rows) - set(ROWS):
        parser.error(f"--rows {', '.join(sorted(unknown))}: must be of {', '.join(ROWS)}")
    if given.out.exists() and not given.out.is_dir():
        parser.error(f"--out {given.out}: is a file; name a folder")
    if given.page and not (given.page / RESULTS).is_file():
        parser.error(f"--page {given.page}: has no {RESULTS}")
    if given.device == "cpu" and not given.dry:
        parser.error("--device cpu needs --dry: the sizes are for a GPU")
    return given


def _problem_of(device: str) -> str:
    if find_spec("torch") is None:
        return "torch is not installed"
    import torch

    if device == "cuda" and not torch.cuda.is_available():
        return f"torch {torch.__version__} finds no GPU here; --device cpu --dry tries every row without one"
    return ""


def _environment(work: Path, *, dry: bool) -> dict[str, str]:
    """Return the environment of the rows: caches in a folder that can be written, heedful, no network."""
    names = ("TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR", "XDG_CACHE_HOME", "HF_HOME", "MPLCONFIGDIR")
    environment = os.environ | {name: str(work / "caches" / name.lower()) for name in names}
    environment |= {"HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}
    if dry:
        environment["OMP_NUM_THREADS"] = "1"
    if find_spec("heedful") is None:  # not installed: without the native library
        path = (str(ROOT / "src"), os.environ.get("PYTHONPATH"))
        environment["PYTHONPATH"] = os.pathsep.join(filter(None, path))
    return environment


def measure(
    commands: Mapping[str, Sequence[str]],
    limits: Mapping[str, float],
    *,
    results: Path,
    deadline: float,
    environment: Mapping[str, str] | None = None,
) -> dict[str, str]:
    """Run the processes of rows one after the other, and append a record of how each ended.

    Args:
        commands: by row; --limit and its seconds are added.
        limits: seconds of each row, less if the deadline comes first.
        results: the file of records.
        deadline: by the monotonic clock, when all must have ended.
        environment: of the processes.

    Returns:
        "done", "failed", "timed out" or "skipped" for each row.
    """
    statuses, start = {}, time.monotonic()
    for name, command in commands.items():
        print(f"[{time.monotonic() - start:5.0f} s] {name}", file=sys.stderr, flush=True)
        limit = min(limits[name], deadline - time.monotonic())
        begun = time.monotonic()
        if limit < _LEAST and limit < limits[name]:
            statuses[name], reason = "skipped", "no time is left"
        else:
            statuses[name], reason = _run([*command, "--limit", f"{limit:.1f}"], limit, environment)
        record = {"row": name, "status": statuses[name], "seconds": round(time.monotonic() - begun, 1)}
        with results.open("a", encoding="utf-8") as file:
            file.write(json.dumps(record | ({"reason": reason} if reason else {}), ensure_ascii=False) + "\n")
        if reason:
            print(f"          {statuses[name]}: {reason}", file=sys.stderr, flush=True)
    return statuses


def _run(command: Sequence[str], limit: float, environment: Mapping[str, str] | None) -> tuple[str, str]:
    """Run a command for at most `limit` s, then end all that it started; return how it ended, and why."""
    with tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as output:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, env=environment, process_group=0
        )
        try:
            code = process.wait(limit)
        except subprocess.TimeoutExpired:
            return "timed out", f"after {limit:.0f} s"
        finally:
            with suppress(ProcessLookupError):  # all have ended
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        output.seek(0)
        last = ([line for line in output.read().splitlines() if line.strip()] or [""])[-1]
    if code == 0:
        return "done", ""
    if code == SKIPPED:
        return "skipped", last
    return "failed", f"{signal.Signals(-code).name if code < 0 else f'exit code {code}'}: {last[:300]}"


def _measure_here(given: argparse.Namespace) -> int:
    run = Run(given.row, given.device, given.dry, given.work, given.out / RESULTS, given.limit)
    try:
        ROWS[given.row][1](run)
    except SkippedError as reason:
        print(reason)
        return SKIPPED
    return 0


def read(results: Path) -> list[Record]:
    """Return the records of a file."""
    return [json.loads(line) for line in results.read_text(encoding="utf-8").splitlines()]


def write_page(directory: Path) -> int:
    """Write the tables of docs/results/gpu.md from the results of a folder."""
    head, begin, rest = PAGE.read_text(encoding="utf-8").partition("<!-- begin gpu -->\n")
    _, end, tail = rest.partition("<!-- end gpu -->")
    PAGE.write_text(f"{head}{begin}{tables(read(directory / RESULTS))}\n{end}{tail}", encoding="utf-8")
    return 0


def tables(records: Sequence[Record]) -> str:
    """Return the tables of docs/results/gpu.md: how the rows ended, then what each kind of row measured."""
    if not records:
        return "Nothing was measured."
    parts = [table([each for each in records if "status" in each], ("row", "status", "seconds", "reason"))]
    figures = [each for each in records if "status" not in each]
    for kind in dict.fromkeys(each["row"].partition("-")[0] for each in figures):
        parts.append(f"### {kind.capitalize()}")
        of_kind = [each for each in figures if each["row"].partition("-")[0] == kind]
        for keys in dict.fromkeys(tuple(each)[1:] for each in of_kind):  # a table for each set of columns
            parts.append(table([each for each in of_kind if tuple(each)[1:] == keys], keys))
    return "\n\n".join(parts)


if __name__ == "__main__":
    sys.exit(main())
