"""`heedful`, and `python -m heedful`, which is the same.

Ctrl-C while modules are imported ends the program here: an exception in an import becomes a traceback or
another error, or is lost.
"""

import os
import signal
import sys
from types import FrameType

_INTERRUPTED = 130  # 128 + SIGINT, as in shells


def main() -> None:
    """Run the command line."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _interrupt)
    from heedful.cli.main import main as command_line

    command_line()


def _interrupt(_: int, frame: FrameType | None) -> None:
    """Raise KeyboardInterrupt, but end the program at once during an import.

    Raises:
        KeyboardInterrupt: no module is being imported.
    """
    while frame is not None:
        if frame.f_code.co_filename.startswith("<frozen importlib"):
            if sys.__stderr__ is not None:
                os.write(sys.__stderr__.fileno(), b"error: interrupted\n")
            os._exit(_INTERRUPTED)
        frame = frame.f_back
    raise KeyboardInterrupt


if __name__ == "__main__":
    main()
