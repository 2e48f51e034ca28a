"""Training, checkpoints, decoding, scores, attention and commands on a GPU give what they give on a CPU."""

import tempfile
from functools import cache
from pathlib import Path

import pytest
from device_cases import CASES, Result, assert_equal
from fake_gpu import OnGpu

QUICK = {
    "decoding: greedy",
    "decoding: beam",
    "decoding: sampling",
    "decoding: bf16",
    "scores: plain",
    "attention: maps of every head",
    "model: paper",
    "training: adam",
    "training: bf16",
}


@cache
def on_cpu(name: str) -> Result:
    if (wanted := CASES[name].wanted) is not None:
        return wanted
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        return CASES[name].run("cpu", Path(folder))


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[] if name in QUICK else pytest.mark.slow) for name in CASES]
)
def test_results_are_those_of_a_cpu(name: str, on_gpu: OnGpu, tmp_path: Path) -> None:
    wanted = on_cpu(name)
    with on_gpu() as device:
        result = CASES[name].run(device, tmp_path)
    assert_equal(result, wanted, CASES[name].bound)
