"""benchmarks/gpu.py runs without a GPU, row by row, and a row that fails takes nothing else with it."""

import contextlib
import json
import math
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psutil
import pytest
from fake_gpu import fake_gpu
from tolerances import FLOAT64, close

from heedful.ops.graphs import GRAPHS_VARIABLE
from heedful.training.parallel import process_group

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"
sys.path.append(str(BENCHMARKS))

from gpu_rows import Run  # noqa: E402

import gpu  # noqa: E402

WRITE = (
    "import json, os, sys, time; open({results!r}, 'a').write(json.dumps({{'row': {row!r}, 'x': 1}}) + '\\n')"
)


def figures(results: Path, row: str) -> dict[str, Any]:
    """Return the figures of all records of a row, as one."""
    merged: dict[str, Any] = {}
    for each in gpu.read(results):
        if each["row"] == row:
            merged |= each
    return merged


def test_a_row_that_crashes_or_hangs_loses_only_itself(tmp_path: Path) -> None:
    results = tmp_path / "results.jsonl"
    results.touch()
    ends = {"crashes": "; os.abort()", "hangs": "; time.sleep(600)", "raises": "; 1 / 0", "lives": ""}
    commands = {
        row: [sys.executable, "-c", WRITE.format(results=str(results), row=row) + end]
        for row, end in ends.items()
    }
    limits = dict.fromkeys(ends, 60.0) | {"hangs": 0.5}
    statuses = gpu.measure(commands, limits, results=results, deadline=math.inf)
    assert statuses == {"crashes": "failed", "hangs": "timed out", "raises": "failed", "lives": "done"}
    for row, status in statuses.items():
        assert figures(results, row)["status"] == status
        assert row == "hangs" or figures(results, row)["x"] == 1  # written before its end
    assert "SIGABRT" in figures(results, "crashes")["reason"]
    assert "ZeroDivisionError" in figures(results, "raises")["reason"]


def test_what_a_row_started_ends_with_it(tmp_path: Path) -> None:
    results, pid = tmp_path / "results.jsonl", tmp_path / "pid"
    results.touch()
    start = f"import subprocess, sys; process = subprocess.Popen(['sleep', '600']); open({str(pid)!r}, 'w')"
    command = {"row": [sys.executable, "-c", f"{start}.write(str(process.pid))"]}
    assert gpu.measure(command, {"row": 60.0}, results=results, deadline=math.inf) == {"row": "done"}
    with contextlib.suppress(psutil.NoSuchProcess):
        while psutil.Process(int(pid.read_text())).status() != psutil.STATUS_ZOMBIE:
            time.sleep(0.01)


def test_without_time_a_row_is_skipped(tmp_path: Path) -> None:
    results = tmp_path / "results.jsonl"
    results.touch()
    command = {"late": [sys.executable, "-c", "raise SystemExit(1)"]}
    assert gpu.measure(command, {"late": 60.0}, results=results, deadline=0.0) == {"late": "skipped"}


def test_without_a_gpu_there_is_one_line(tmp_path: Path) -> None:
    command = [sys.executable, str(BENCHMARKS / "gpu.py"), "--out", str(tmp_path / "out")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (1, "")
    assert len(done.stderr.splitlines()) == 1
    assert not (tmp_path / "out").exists()


def test_a_row_runs_in_a_process_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["--device", "cpu", "--dry", "--rows", "ceilings", "--out", str(tmp_path)]
    monkeypatch.setattr(sys, "argv", ["gpu.py", *arguments])
    assert gpu.main() == 0
    last = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert last["statuses"] == {"ceilings": "done"}
    found = figures(tmp_path / "results.jsonl", "ceilings")
    assert found.keys() >= {"torch", "tflops", "gb_per_second", "status"}


def test_earlier_results_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / gpu.RESULTS).write_text("earlier", encoding="utf-8")
    monkeypatch.setattr(sys, "argv", ["gpu.py", "--device", "cpu", "--dry", "--out", str(tmp_path)])
    monkeypatch.setattr(gpu, "measure", lambda *_, **__: {})
    assert gpu.main() == 0
    assert [path.read_text("utf-8") for path in tmp_path.glob(f"{gpu.RESULTS}.*")] == ["earlier"]


def test_a_row_ends_with_the_measurement(tmp_path: Path) -> None:
    command = [sys.executable, str(BENCHMARKS / "gpu.py"), "--device", "cpu", "--dry", "--out", str(tmp_path)]
    environment = os.environ | {"TMPDIR": str(tmp_path)}
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment) as measurement:
        assert measurement.stderr is not None
        measurement.stderr.readline()  # the first row begins
        while not (rows := psutil.Process(measurement.pid).children()):
            time.sleep(0.01)
        measurement.terminate()
        assert measurement.wait() == 128 + signal.SIGTERM
    assert not any(row.is_running() and row.status() != psutil.STATUS_ZOMBIE for row in rows)
    assert not [*tmp_path.glob("heedful-gpu-*")]


@pytest.mark.slow
def test_steps_are_timed_and_profiled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(GRAPHS_VARIABLE, "off")  # which the row sets
    results = tmp_path / "results.jsonl"
    results.write_text('{"row": "ceilings", "tflops": 2.0}\n', encoding="utf-8")
    gpu.ROWS["training-eager"][1](Run("training-eager", "cpu", True, tmp_path, results, 60.0))
    found = figures(results, "training-eager")
    assert found["launches_per_step"] > 0
    assert len(found["costliest_ms"]) == 10
    rate = found["tokens_per_second"] * found["mflop_per_token"]
    assert found["share_of_product"] == close(rate / 2e6, FLOAT64.ELEMENT)
    assert gpu.tables(gpu.read(results)).count("| eager | adam, base |") == 1


def test_steps_are_timed_on_a_gpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process_group, "num_workers", lambda source, device: 0)
    monkeypatch.setenv(GRAPHS_VARIABLE, "off")  # which the row sets
    results = tmp_path / "results.jsonl"
    results.touch()
    with fake_gpu():
        gpu.ROWS["training-eager"][1](Run("training-eager", "cuda", True, tmp_path, results, 60.0))
    assert figures(results, "training-eager")["tokens_per_second"] > 0


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_every_row_runs(tmp_path: Path) -> None:
    command = [sys.executable, str(BENCHMARKS / "gpu.py"), "--device", "cpu", "--dry", "--out", str(tmp_path)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    assert json.loads(done.stdout.splitlines()[-1])["statuses"] == dict.fromkeys(gpu.ROWS, "done")
    results = tmp_path / "results.jsonl"
    assert figures(results, "tests")["passed"] == 1
    assert figures(results, "resume")["bits_equal"]
    assert figures(results, "recipe")["bleu"] >= 0.0
    greedy = [
        each for each in gpu.read(results) if "equal_outputs" in each and each["precision"] == "float32"
    ]
    assert greedy[0]["equal_outputs"] == 1.0
