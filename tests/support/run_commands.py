"""Run commands one after the other in one process: `python run_commands.py < JSON` prints JSON.

Read are lists of arguments and the text of stdin; printed are exit code, stdout and stderr of each.
"""

import contextlib
import io
import json
import sys
from unittest.mock import patch

from heedful.cli.main import main


def run(arguments: list[str], text: str) -> tuple[int, str, str]:
    stdin, out, err = (io.TextIOWrapper(io.BytesIO(each)) for each in (text.encode(), b"", b""))
    code: object = 0
    with (
        patch("sys.argv", ["heedful", *arguments]),
        patch("sys.stdin", stdin),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
    ):
        try:
            main()
        except SystemExit as end:
            code = end.code
    shown = []
    for stream in (out, err):
        stream.flush()
        shown.append(stream.buffer.getvalue().decode())  # type: ignore[attr-defined]
    return (code if isinstance(code, int) else int(code is not None)), shown[0], shown[1]


if __name__ == "__main__":
    json.dump([run(*each) for each in json.load(sys.stdin)], sys.stdout)
