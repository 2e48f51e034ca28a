"""`heedful`, and `python -m heedful`, which is the same.

Ctrl-C and SIGTERM end a command by an exception: outputs that are half written are removed, or named. In an
import such an exception becomes a traceback or another error, or is lost: Ctrl-C ends the program there at
once, and SIGTERM after the import.
"""

import os
import signal
import sys
from threading import Timer
from types import FrameType

_INTERRUPTED = 128 + signal.SIGINT  # as in shells
_TERMINATED = 128 + signal.SIGTERM
_AGAIN = 0.02  # seconds until a signal that came during an import is sent again


def main() -> None:
    """Run the command line."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _interrupt)
    signal.signal(signal.SIGTERM, _terminate)  # training and the server replace it
    from heedful.cli.main import main as command_line

    command_line()


def _interrupt(_: int, frame: FrameType | None) -> None:
    """Raise KeyboardInterrupt, but end the program at once during an import.

    Raises:
        KeyboardInterrupt: no module is being imported.
    """
    if _is_importing(frame):
        if sys.__stderr__ is not None:
            os.write(sys.__stderr__.fileno(), b"error: interrupted\n")
        os._exit(_INTERRUPTED)
    raise KeyboardInterrupt


def _terminate(number: int, frame: FrameType | None) -> None:
    """Raise SystemExit, but wait for the end of an import.

    Raises:
        SystemExit: no module is being imported.
    """
    if not _is_importing(frame):
        sys.exit(_TERMINATED)
    again = Timer(_AGAIN, signal.raise_signal, [number])
    again.daemon = True
    again.start()


def _is_importing(frame: FrameType | None) -> bool:
    while frame is not None:
        if frame.f_code.co_filename.startswith("<frozen importlib"):
            return True
        frame = frame.f_back
    return False


if __name__ == "__main__":
    main()
