"""The number of threads and processes that compute."""

import os
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from heedful.errors import ConfigError

_ALWAYS_ALLOWED = 64  # on any machine; more than it has cores only wait for each other


def set_threads(name: str, count: int) -> None:
    """Let torch compute with so many threads.

    Args:
        name: of the setting, for the message.
        count: at least 1.

    Raises:
        ConfigError: more than this machine can make use of, which may end it.
    """
    check_workers(name, count)
    torch.set_num_threads(count)


def check_workers(name: str, count: int) -> None:
    """Refuse numbers of threads or processes that are far beyond what this machine can make use of.

    Raises:
        ConfigError: as said.
    """
    cores = os.cpu_count() or 1
    most = max(_ALWAYS_ALLOWED, 4 * cores)
    if count > most:
        raise ConfigError(f"{name}={count}: this machine has {cores} cores; give at most {most}")


@contextmanager
def using_threads(count: int) -> Iterator[None]:
    """Compute with so many threads inside the block."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)
