"""Return freed memory to the system."""

import ctypes
import sys


def return_free_memory() -> None:
    """Have glibc return freed memory to the system; elsewhere nothing happens."""
    if sys.platform == "linux":
        trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
        if trim is not None:
            trim(0)
