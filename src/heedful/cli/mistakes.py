"""From exceptions to one line on stderr and an exit code. A real bug keeps its traceback."""

import errno
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import wraps
from typing import ParamSpec

import typer

from heedful.errors import HeedfulError

INTERRUPTED = 130  # 128 + SIGINT, as shells have it

P = ParamSpec("P")


def one_line_for_mistakes(verb: Callable[P, None]) -> Callable[P, None]:
    """Wrap a verb so that what its user can mend becomes one line, `error: where: what; what to do`."""

    @wraps(verb)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        with _reporting():
            verb(*args, **kwargs)
            sys.stdout.flush()

    return run


def one_line(text: str) -> str:
    """Join the lines of a message."""
    return " ".join(text.split())


@contextmanager
def _reporting() -> Iterator[None]:
    try:
        yield
    except HeedfulError as error:
        raise _exit(str(error), error.exit_code) from None
    except KeyboardInterrupt:
        raise _exit("interrupted", INTERRUPTED) from None
    except BrokenPipeError:  # the reader, `head` for example, has seen enough
        _abandon_stdout()
        raise typer.Exit(1) from None
    except OSError as error:
        raise _exit(_describe(error), 1) from None


def _exit(message: str, code: int) -> typer.Exit:
    """Print what went wrong; results that are still on their way out go first."""
    try:
        sys.stdout.flush()
    except OSError:
        _abandon_stdout()
    with suppress(OSError):
        print(f"error: {one_line(message)}", file=sys.stderr, flush=True)
    return typer.Exit(code)


def _describe(error: OSError) -> str:
    where = f"{os.fsdecode(error.filename)}: " if isinstance(error.filename, str | bytes) else ""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return f"{where}no space left on the disk; free some and run the command again"
    what = error.strerror or str(error) or type(error).__name__
    return f"{where}{what[0].lower()}{what[1:]}"


def _abandon_stdout() -> None:
    """Let the interpreter's last flush go nowhere: it would fail again, with a message nobody can catch."""
    with suppress(OSError, ValueError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)
