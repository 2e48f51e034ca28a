"""Commands that kill themselves at the n-th call of a function of `os`, with small chunks of work.

As a program: each case of the JSON in its argument runs in a fork of this process; prints the exit codes.
"""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Sequence

Case = tuple[str, int, Sequence[str]]  # the function, the number of its call, and the command


def assert_killed(cases: Sequence[Case]) -> None:
    """Run the commands; each must be killed."""
    assert struck(cases) == [-signal.SIGKILL] * len(cases)


def struck(cases: Sequence[Case]) -> list[int]:
    """Run the commands one after the other and return their exit codes."""
    command = [sys.executable, __file__, json.dumps(cases)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    codes: list[int] = json.loads(done.stdout.splitlines()[-1])
    return codes


def _run(name: str, left: int, arguments: list[str]) -> None:
    from heedful.cli.main import main

    original = getattr(os, name)

    def struck(*arguments: object, **options: object) -> object:
        nonlocal left
        left -= 1
        if not left:
            os.kill(os.getpid(), signal.SIGKILL)
        return original(*arguments, **options)

    setattr(os, name, struck)
    sys.argv[1:] = arguments
    main()


def _codes(cases: Sequence[Case]) -> list[int]:
    from heedful.bulk import lines, resumable
    from heedful.spans import pipeline
    from heedful.tasks import loading, synthetic  # noqa: F401  once for all forks

    lines.CHUNK_LINES, pipeline._CHUNK, resumable._SYNC_SHARE = 4, 2, 1e9
    codes = []
    for name, number, arguments in cases:
        child = os.fork()
        if not child:
            _run(name, number, [*arguments])
        codes.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    return codes


if __name__ == "__main__":
    json.dump(_codes(json.loads(sys.argv[1])), sys.stdout)
