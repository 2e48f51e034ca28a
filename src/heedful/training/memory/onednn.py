"""The memory that oneDNN, which multiplies matrices on CPUs, takes for compiled kernels."""

import os

_CAPACITY = "40"  # kernels, in each process


def limit_onednn_cache() -> None:
    """Have oneDNN cache fewer compiled matrix multiplications than its thousand.

    Each process has one for each shape, 60 to 80 MiB of them after forty steps of tiny or small; fewer cost
    no speed (docs/log.md). oneDNN reads the setting once, before its first multiplication; a setting that is
    there already stays.
    """
    os.environ.setdefault("ONEDNN_PRIMITIVE_CACHE_CAPACITY", _CAPACITY)
