import errno

import pytest

from heedful.cli.mistakes import one_line_for_mistakes
from heedful.errors import ConfigError, CorpusError


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
    ],
)
def test_a_mistake_becomes_one_line_and_an_exit_code(
    mistake: BaseException, code: int, line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    def verb() -> None:
        raise mistake

    with pytest.raises(SystemExit) as caught:
        one_line_for_mistakes()(verb)()
    assert caught.value.code == code
    said = capsys.readouterr().err
    assert said.startswith(line) if line else said == ""
    assert said.count("\n") <= 1


def test_a_bug_keeps_its_traceback() -> None:
    def verb() -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        one_line_for_mistakes()(verb)()
