"""A test that leaves the state of the process changed fails, and its message names what is changed."""

import os
import signal
import subprocess
import sys
import warnings
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from process_state import changes, process_state

from heedful.runtime.threads import using_threads

SUPPORT = Path(__file__).resolve().parent.parent / "support"
CHANGES: dict[str, Callable[[pytest.MonkeyPatch], object]] = {
    "environment": lambda patch: patch.setenv("HEEDFUL_OF_A_TEST", "1"),
    "working directory": lambda patch: patch.chdir("/"),
    "warning format": lambda patch: patch.setattr(warnings, "formatwarning", str),
    "signal handlers": lambda patch: patch.setattr(signal, "getsignal", lambda _: None),
    "torch default dtype": lambda _: torch.set_default_dtype(torch.float64),
    "torch deterministic": lambda _: torch.use_deterministic_algorithms(True),
    "torch gradients": lambda _: torch.set_grad_enabled(False),
    "denormals": lambda _: torch.set_flush_denormal(True),
}


@pytest.mark.parametrize("name", CHANGES)
def test_each_change_is_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    before = process_state()
    CHANGES[name](monkeypatch)
    try:
        found = changes(before, process_state())
    finally:
        monkeypatch.undo()
        torch.set_default_dtype(torch.float32)
        torch.use_deterministic_algorithms(False)
        torch.set_grad_enabled(True)
        torch.set_flush_denormal(False)
    assert [each.partition(":")[0] for each in found] == [name]
    assert changes(before, process_state()) == []


def test_threads_are_found() -> None:
    before = process_state()
    with using_threads(torch.get_num_threads() + 1):
        assert changes(before, process_state())
    assert changes(before, process_state()) == []


def test_a_test_that_leaves_a_change_fails_and_the_next_one_passes(tmp_path: Path) -> None:
    (tmp_path / "test_two.py").write_text(
        "import os\n"
        "def test_leaves_it(): os.environ['HEEDFUL_LEFT'] = '1'\n"
        "def test_has_it(): assert os.environ['HEEDFUL_LEFT'] == '1'\n"
    )
    command = [sys.executable, "-m", "pytest", "-q", "-p", "process_state", "-p", "no:cacheprovider"]
    done = subprocess.run(
        [*command, "test_two.py"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(SUPPORT), "PYTEST_ADDOPTS": ""},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 1
    assert "2 passed, 1 error" in done.stdout
    assert "HEEDFUL_LEFT" in done.stdout
