"""Print exceptions as one line on stderr, with an exit code. Bugs keep their traceback."""

import errno
import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TextIO

from heedful.errors import HeedfulError, Terminated, install_hint, is_out_of_memory

FAILURE = 1
USAGE = 2
INTERRUPTED = 130  # 128 + SIGINT, as in shells

_OUT_OF_MEMORY = (
    "out of memory; free some and run the command again (training continues with --resume), or use smaller "
    "batches: batch.tokens of a new run, --batch-tokens elsewhere"
)
_TOO_LONG = re.compile(r"[^/:\s]{256,}")  # for the name of a file, anywhere


@contextmanager
def report_errors() -> Iterator[None]:
    """Print errors that the user can fix as one line, `error: where: what; what to do`; also a decorator.

    Raises:
        SystemExit: with the exit code, after such an error.
    """
    try:
        yield
        sys.stdout.flush()
    except HeedfulError as error:
        exit_with_error(str(error), error.exit_code)
    except Terminated:  # the trainer has reported it
        sys.exit(0)
    except KeyboardInterrupt:
        exit_with_error("interrupted", INTERRUPTED)
    except BrokenPipeError:  # the reader, `head` for example, has seen enough
        _abandon(sys.stdout)
        sys.exit(FAILURE)
    except OSError as error:
        exit_with_error(_describe(error), FAILURE)
    except (MemoryError, RuntimeError, ImportError) as error:
        if isinstance(error, ModuleNotFoundError) and error.name == "torch":
            exit_with_error(f"this command needs torch: {install_hint('torch')}", FAILURE)
        if not is_out_of_memory(error):
            raise
        exit_with_error(_OUT_OF_MEMORY, FAILURE)
    finally:
        _flush_or_abandon(sys.stderr)


def exit_with_error(message: str, code: int) -> None:
    """Flush stdout, print one line, and end the program; names that no file can have are shortened.

    Raises:
        SystemExit: always.
    """
    _flush_or_abandon(sys.stdout)
    message = _TOO_LONG.sub(lambda name: f"{name[0][:40]}... ({len(name[0]):,} characters)", message)
    with suppress(OSError):
        print(f"error: {' '.join(message.split())}", file=sys.stderr, flush=True)
    sys.exit(code)


def _describe(error: OSError) -> str:
    if error.errno == errno.EBADF and sys.__stdout__ is None:
        return "stdout: is closed, so the results cannot be printed; redirect it to a file or to /dev/null"
    where = f"{os.fsdecode(error.filename)}: " if isinstance(error.filename, str | bytes) else ""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return f"{where}no space left on the disk; free some and run the command again"
    what = error.strerror or str(error) or type(error).__name__
    return f"{where}{what[0].lower()}{what[1:]}"


def _flush_or_abandon(stream: TextIO) -> None:
    try:
        stream.flush()
    except OSError:
        _abandon(stream)


def _abandon(stream: TextIO) -> None:
    """Redirect a stream to the null device: the interpreter's last flush would fail with a traceback."""
    with suppress(OSError, ValueError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stream.fileno())
        os.close(nowhere)
