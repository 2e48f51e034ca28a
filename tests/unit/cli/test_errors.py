import errno

import pytest

from heedful.cli.main import report_errors
from heedful.errors import ConfigError, CorpusError, Terminated


@pytest.mark.parametrize(
    ("mistake", "code", "line"),
    [
        (CorpusError("a.txt: empty;\n fill it"), 1, "error: a.txt: empty; fill it\n"),
        (ConfigError("unknown key"), 2, "error: unknown key\n"),
        (KeyboardInterrupt(), 130, "error: interrupted\n"),
        (BrokenPipeError(), 1, ""),
        (
            OSError(errno.ENOSPC, "No space left on device", "out.txt"),
            1,
            "error: out.txt: no space left on the disk",
        ),
        (PermissionError(errno.EACCES, "Permission denied", "x"), 1, "error: x: permission denied\n"),
        (OSError("odd"), 1, "error: odd\n"),
        (
            OSError(errno.ENAMETOOLONG, "File name too long", f"runs/{'x' * 5000}"),
            1,
            f"error: runs/{'x' * 40}... (5,000 characters): file name too long\n",
        ),
        (CorpusError(f"/{'x' * 255}/{'y' * 255}: empty"), 1, f"error: /{'x' * 255}/{'y' * 255}: empty\n"),
        (Terminated(), 0, ""),
        (MemoryError(), 1, "error: out of memory; free some and run the command again"),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory: 8 bytes"), 1, "error: out of memory; "),
        (RuntimeError("CUDA out of memory. Tried to allocate 2 MiB"), 1, "error: out of memory; "),
        (ImportError("libtorch.so: failed to map segment from shared object"), 1, "error: out of memory; "),
    ],
)
def test_a_mistake_becomes_one_line_and_an_exit_code(
    mistake: BaseException, code: int, line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    def verb() -> None:
        raise mistake

    with pytest.raises(SystemExit) as caught:
        report_errors()(verb)()
    assert caught.value.code == code
    said = capsys.readouterr().err
    assert said.startswith(line) if line else said == ""
    assert said.count("\n") <= 1


@pytest.mark.parametrize(
    "bug", [ZeroDivisionError, RuntimeError("shapes differ"), ImportError("no such name")]
)
def test_a_bug_keeps_its_traceback(bug: Exception) -> None:
    def verb() -> None:
        raise bug

    with pytest.raises(type(bug) if isinstance(bug, Exception) else bug):
        report_errors()(verb)()
