"""What the benchmarks share: processes that print one JSON line, the machine, memory, and Markdown tables."""

import argparse
import json
import os
import resource
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
HEEDFUL = (sys.executable, "-m", "heedful")
Row = dict[str, Any]


def parser_of(description: str | None) -> argparse.ArgumentParser:
    """Return a parser that shows the description of a program as it stands."""
    return argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )


def compare(
    parser: argparse.ArgumentParser,
    measured: Callable[[argparse.Namespace, dict[str, str]], list[Row]],
    measure_here: Callable[[Row], int],
) -> int:
    """Measure one row in this process, or print a table of all rows; return 1 if one failed.

    Args:
        parser: the options of the program, besides those of every comparison.
        measured: returns all rows, given the options and the environment of their processes.
        measure_here: measures the row of an engine, and prints its JSON line.
    """
    parser.add_argument("--isa", help="hold everything to this level of the instruction set")
    parser.add_argument("--row", type=json.loads, help=argparse.SUPPRESS)  # of the process of an engine
    given = parser.parse_args()
    if given.row:
        return measure_here(given.row)
    environment = environment_of(given.isa)
    print(f"{machine_line(environment)}\n")
    rows = measured(given, environment)
    print(table(rows))
    return int(any("failure" in row for row in rows))


def environment_of(level: str | None) -> dict[str, str]:
    """Return the environment in which every library is held to a level of the instruction set, e.g. avx2."""
    if level is None:
        return dict(os.environ)
    sys.path.append(str(ROOT / "tools"))
    from machine_classes import HELD_DOWN, held_down_to

    if level not in HELD_DOWN:
        raise SystemExit(f"error: --isa {level}: must be one of {', '.join(HELD_DOWN)}")
    return os.environ | held_down_to(level) | {"HEEDFUL_ISA": level}


def last_json(command: Sequence[object], environment: Mapping[str, str] | None = None) -> Row:
    """Run a command; return the JSON object of its last line, or {"failure": the last line of stderr}."""
    arguments = [str(each) for each in command]
    done = subprocess.run(arguments, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        return {"failure": (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1][:200]}
    return dict(json.loads(done.stdout.splitlines()[-1]))


def machine_line(environment: Mapping[str, str]) -> str:
    """Return the CPU and its level, the versions, the date, and the load of other programs."""
    machine = last_json([*HEEDFUL, "inspect", "--machine", "--json"], environment)
    describe = ["git", "describe", "--always", "--dirty"]
    commit = subprocess.run(describe, cwd=ROOT, capture_output=True, text=True, check=False).stdout.strip()
    return (
        f"{machine['cpu']}, {machine['cores']} cores, native level {machine['level']}, "
        f"torch {machine['torch']}, commit {commit or 'unknown'}, {datetime.now(UTC):%Y-%m-%d}; "
        f"load of other programs {os.getloadavg()[0]:.1f}"
    )


def peak_memory_mib() -> float:
    """Return the most memory that this process ever had resident."""
    status = Path("/proc/self/status")
    if status.exists():  # getrusage also counts the process which started this one
        line = next(line for line in status.read_text().splitlines() if line.startswith("VmHWM"))
        return int(line.split()[1]) / 1024
    unit = 1024**2 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / unit


def table(rows: Sequence[Mapping[str, Any]], columns: Sequence[str] = ()) -> str:
    """Return a Markdown table; the columns are the keys of the rows, in order, unless they are given."""
    keys = list(columns) or list(dict.fromkeys(key for row in rows for key in row))
    lines = [[key.replace("_", " ") for key in keys], ["---"] * len(keys)]
    lines += [[_cell(row.get(key)) for key in keys] for row in rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _cell(value: object) -> str:
    if isinstance(value, Mapping):
        return "<br>".join(f"{_cell(each)} {name}" for name, each in value.items())
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"
    return "" if value is None else str(value).replace("|", "/")
