"""Who may write into a run directory, and when."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from heedful.config import preset
from heedful.errors import RunError
from heedful.workflows.run_directory import RunDirectory

HOLD = """
import sys
from pathlib import Path
from heedful.workflows.run_directory import RunDirectory
with RunDirectory(Path(sys.argv[1])).held(resume=True, overwrite=False):
    print("held", flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def run(tmp_path: Path) -> RunDirectory:
    run = RunDirectory(tmp_path / "run")
    run.path.mkdir()
    run.write_config(preset("tiny"))
    return run


@contextmanager
def another_process_in(run: RunDirectory) -> "Iterator[subprocess.Popen[bytes]]":
    command = [sys.executable, "-c", HOLD, str(run.path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"held\n"
        yield process


def enter(run: RunDirectory) -> None:
    with run.held(resume=True, overwrite=False):
        pass


def test_only_one_process_trains_in_a_directory(run: RunDirectory) -> None:
    run.check(resume=True, overwrite=False)
    with another_process_in(run):
        for attempt in (enter, lambda run: run.check(resume=True, overwrite=False)):
            with pytest.raises(RunError, match="another process is training there") as caught:
                attempt(run)
            assert str(caught.value).startswith(str(run.path))
            assert "\n" not in str(caught.value)
    enter(run)
    run.check(resume=True, overwrite=False)


def test_a_process_that_was_killed_locks_nobody_out(run: RunDirectory) -> None:
    with another_process_in(run) as process:
        process.kill()
        process.wait()
        enter(run)


def test_a_run_that_began_since_the_check_is_not_replaced(tmp_path: Path) -> None:
    run = RunDirectory(tmp_path / "new")
    run.check(resume=False, overwrite=False)
    assert not run.path.exists()
    run.path.mkdir()
    run.write_config(preset("tiny"))
    with pytest.raises(RunError, match="already holds a run"), run.held(resume=False, overwrite=False):
        pytest.fail("the directory was given")


def test_a_directory_that_cannot_be_locked_is_refused(run: RunDirectory) -> None:
    (run.path / ".lock").mkdir()
    with pytest.raises(RunError, match=r"\.lock: cannot be locked"):
        enter(run)
