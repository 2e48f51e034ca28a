"""A test that leaves the state of the process changed fails, and its message names what is changed."""

import os
import subprocess
import sys
from pathlib import Path

SUPPORT = Path(__file__).resolve().parent.parent / "support"
TESTS = """\
import os, torch
def test_leaves_a_variable(): os.environ["HEEDFUL_LEFT"] = "1"
def test_leaves_a_dtype(): torch.set_default_dtype(torch.float64)
def test_finds_both(): assert os.environ["HEEDFUL_LEFT"] == "1" and torch.get_default_dtype() == torch.float64
"""


def test_a_test_that_leaves_a_change_fails_and_the_next_one_passes(tmp_path: Path) -> None:
    (tmp_path / "test_three.py").write_text(TESTS)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "process_state", "-p", "no:cacheprovider"]
    environment = {**os.environ, "PYTHONPATH": str(SUPPORT), "PYTEST_ADDOPTS": ""}
    done = subprocess.run(
        [*command, "test_three.py"], cwd=tmp_path, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 1
    assert "3 passed, 2 errors" in done.stdout
    assert "leaves behind: environment: HEEDFUL_LEFT" in done.stdout
    assert "leaves behind: torch default dtype" in done.stdout
