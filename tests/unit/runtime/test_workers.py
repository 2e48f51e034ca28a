"""Workers start from any program, and a worker that dies is noticed."""

import os
import signal
import subprocess
import sys
import zipfile
from pathlib import Path

import echo
import pytest

from heedful.runtime.workers import start_worker

PROGRAM = """
IS_THE_SCRIPT = True
print("begin")
from echo import answer
from heedful.runtime.workers import start_worker
process, pipe = start_worker(answer, bytes(1_000_000), 7)
print(pipe.recv())
process.join()
print(process.exitcode)
"""


@pytest.mark.parametrize("kind", ["script", "option", "stdin", "module", "archive"])
def test_a_program_without_a_guard_starts_workers(kind: str, tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(PROGRAM, encoding="utf-8")
    with zipfile.ZipFile(tmp_path / "program.zip", "w") as archive:
        archive.write(tmp_path / "program.py", "__main__.py")
    arguments = {
        "script": ["program.py"],
        "option": ["-c", PROGRAM],
        "stdin": ["-"],
        "module": ["-m", "program"],
        "archive": ["program.zip"],
    }
    done = subprocess.run(
        [sys.executable, *arguments[kind]],
        cwd=tmp_path,
        input=PROGRAM if kind == "stdin" else "",
        env=os.environ | {"PYTHONPATH": os.pathsep.join([str(Path(echo.__file__).parent), *sys.path])},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.stdout.splitlines(), done.stderr) == (["begin", "(1000000, 7, True, False)", "0"], "")


def test_a_worker_that_dies_closes_its_pipe_whatever_it_was_sent() -> None:
    process, pipe = start_worker(echo.die, bytes(10_000_000))
    with pytest.raises((EOFError, OSError)):
        pipe.recv()
    process.join()
    assert process.exitcode == -signal.SIGKILL


def test_starting_leaves_the_main_module_and_the_signals_as_they_were() -> None:
    main, blocked = sys.modules["__main__"], signal.pthread_sigmask(signal.SIG_BLOCK, ())
    process, pipe = start_worker(echo.answer, b"", 1)
    assert pipe.recv()[:2] == (0, 1)
    process.join()
    assert sys.modules["__main__"] is main
    assert signal.pthread_sigmask(signal.SIG_BLOCK, ()) == blocked
