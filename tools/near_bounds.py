"""Print how close the tests' comparisons of floats come to their tolerances, at each instruction set.

    python tools/near_bounds.py                             # or make bounds
    python tools/near_bounds.py --levels avx2,best -n 2     # further arguments are pytest's

Runs the quick tests that compare by tests/support/tolerances.py at each level of the native library that
this machine has, and prints the comparisons that come nearest to their bounds. If a difference is more than
half of its bound, the test could fail on another machine: then the exit code is 1, as it is if a test fails.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from machine_classes import classes, levels_between_commas

ROOT = Path(__file__).resolve().parent.parent
VARIABLE = "HEEDFUL_NEARNESS"
ALLOWED = 0.5
SHOWN = 5


def nearest(rows: Sequence[dict[str, object]]) -> list[dict[str, object]]:
    """Return the nearest comparison of each line of a test, nearest first."""
    found: dict[object, dict[str, object]] = {}
    for row in sorted(rows, key=lambda row: float(str(row["ratio"]))):
        found[row["line"]] = row
    return sorted(found.values(), key=lambda row: -float(str(row["ratio"])))


def main() -> int:
    """Run the tests at each instruction set and return the exit code."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--levels", type=levels_between_commas, default="", help="levels between commas; all by default"
    )
    given, of_pytest = parser.parse_known_args()
    if not any(each.startswith("tests") for each in of_pytest):
        tests = sorted((ROOT / "tests").rglob("test_*.py"))
        of_pytest += [str(path) for path in tests if "from tolerances import" in path.read_text("utf-8")]
    failed = False
    tried: set[str] = set()
    for environment in classes(given.levels):
        level = environment["HEEDFUL_ISA"]
        if level in tried:  # bf16 forced the other way
            continue
        tried.add(level)
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "nearness.jsonl"
            done = subprocess.run(
                [sys.executable, "-m", "pytest", *of_pytest],
                cwd=ROOT,
                env=os.environ | environment | {VARIABLE: str(file)},
                capture_output=True,
                text=True,
                check=False,
            )
            lines = file.read_text("utf-8").splitlines() if file.exists() else []
        rows = [json.loads(line) for line in lines]
        lines_of_tests = nearest(rows)
        too_near = [row for row in lines_of_tests if float(str(row["ratio"])) > ALLOWED]
        print(f"{level}: {len(rows)} comparisons, {len(too_near)} lines above {ALLOWED} of their bound")
        for row in lines_of_tests[: max(SHOWN, len(too_near))]:
            print(f"    {float(str(row['ratio'])):.3f}  {row['bound']}  {row['line']}  {row['test']}")
        if done.returncode:
            print(done.stdout + done.stderr)
        sys.stdout.flush()
        failed |= bool(done.returncode or too_near or not rows)
    return int(failed)


if __name__ == "__main__":
    raise SystemExit(main())
