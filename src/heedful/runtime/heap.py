"""The heap of this process, if glibc manages it; elsewhere nothing happens."""

import ctypes
import sys


def return_free_memory() -> None:
    """Return freed memory to the system."""
    _call("malloc_trim", 0)


def set_malloc(parameter: int, value: int) -> None:
    """Set a parameter of malloc, by its number in `malloc.h`: see `man mallopt`."""
    _call("mallopt", parameter, value)


def _call(name: str, *arguments: int) -> None:
    if sys.platform == "linux" and (function := getattr(ctypes.CDLL(None), name, None)) is not None:
        function(*arguments)
