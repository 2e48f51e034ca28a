"""Return freed memory to the system."""

import ctypes
import sys


def return_free_memory() -> None:
    """Have glibc return what was freed and kept for later; elsewhere nothing happens."""
    if sys.platform == "linux":
        trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
        if trim is not None:
            trim(0)
