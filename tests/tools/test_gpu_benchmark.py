"""benchmarks/gpu.py runs without a GPU, row by row, and a row that fails takes nothing else with it."""

import json
import math
import subprocess
import sys
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"
sys.path.append(str(BENCHMARKS))

import gpu  # noqa: E402


def test_a_row_that_crashes_or_hangs_loses_only_itself(tmp_path: Path) -> None:
    (results := tmp_path / "results.jsonl").touch()
    ends = {"crashes": "os.abort()", "hangs": "time.sleep(600)", "raises": "1 / 0", "lives": ""}
    commands = {row: [sys.executable, "-c", f"import os, time; {end}"] for row, end in ends.items()}
    limits = dict.fromkeys(ends, 60.0) | {"hangs": 0.5}
    statuses = gpu.measure(commands, limits, results=results, deadline=math.inf)
    assert statuses == {"crashes": "failed", "hangs": "timed out", "raises": "failed", "lives": "done"}
    assert {each["row"]: each["status"] for each in gpu.read(results)} == statuses


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_every_row_runs_on_a_cpu(tmp_path: Path) -> None:
    command = [sys.executable, str(BENCHMARKS / "gpu.py"), "--device", "cpu", "--dry", "--out", str(tmp_path)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    assert json.loads(done.stdout.splitlines()[-1])["statuses"] == dict.fromkeys(gpu.ROWS, "done")
