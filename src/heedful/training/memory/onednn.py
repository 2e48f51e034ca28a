"""The memory of kernels that oneDNN compiles for matrix multiplications on CPUs."""

import os

_CAPACITY = "40"  # kernels, in each process


def limit_onednn_cache() -> None:
    """Have oneDNN cache fewer compiled matrix multiplications than its default of a thousand.

    Each process caches one for each shape, 60 to 80 MiB after forty steps of tiny or small; fewer cost no
    speed (docs/log.md). oneDNN reads the variable once, before its first multiplication; one that the user
    has set stays.
    """
    os.environ.setdefault("ONEDNN_PRIMITIVE_CACHE_CAPACITY", _CAPACITY)
