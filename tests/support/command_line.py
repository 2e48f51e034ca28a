"""`heedful ...` in the test's own process: as the console script runs it, but without a new Python."""

import io
import os
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import pytest

from heedful.cli.main import main
from heedful.runtime.threads import restored_threads


@dataclass(frozen=True)
class Outcome:
    """What a command left behind."""

    code: int
    out: str
    err: str


def heedful(*args: object, stdin: bytes = b"") -> Outcome:
    """Run one command."""
    out, err = io.BytesIO(), io.BytesIO()
    with _restored_environment(), restored_threads(), pytest.MonkeyPatch.context() as patch:
        patch.setattr(warnings, "formatwarning", warnings.formatwarning)
        patch.setattr(sys, "argv", ["heedful", *map(str, args)])
        patch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin), encoding="utf-8"))
        patch.setattr(sys, "stdout", io.TextIOWrapper(out, encoding="utf-8"))
        patch.setattr(sys, "stderr", io.TextIOWrapper(err, encoding="utf-8"))
        with pytest.raises(SystemExit) as end:
            main()
        sys.stdout.flush()
        sys.stderr.flush()
        return Outcome(int(end.value.code or 0), out.getvalue().decode(), err.getvalue().decode())


@contextmanager
def _restored_environment() -> Iterator[None]:
    """Restore the environment after the block: a command sets variables for its own process."""
    before = dict(os.environ)
    try:
        yield
    finally:
        for name in os.environ.keys() - before:
            del os.environ[name]
        os.environ.update(before)


def text(lines: list[str]) -> bytes:
    """What a file or stdin holds that has these lines."""
    return "".join(line + "\n" for line in lines).encode()


def refusal(outcome: Outcome) -> str:
    """What a command said that was refused in one line."""
    assert outcome.code in (1, 2)
    assert outcome.out == ""
    assert outcome.err.startswith("error: ")
    assert outcome.err.count("\n") == 1
    return outcome.err


def assert_one_clear_line(outcome: Outcome, code: int, *parts: str, out: str = "") -> None:
    assert (outcome.code, outcome.out, outcome.err.count("\n")) == (code, out, 1), outcome
    assert outcome.err.startswith("error: ")
    for part in parts:
        assert part in outcome.err
