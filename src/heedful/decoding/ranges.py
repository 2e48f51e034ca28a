"""Checks of settings: numbers in their range, names among those that there are."""

import math
from collections.abc import Sequence

from heedful.errors import InputError

_MOST = 2**31  # of every number that counts something


def check_range(name: str, value: float | None, least: float, most: float = math.inf) -> None:
    """Check that a number, where there is one, is finite and from `least` to `most`.

    Raises:
        InputError: it is not.
    """
    if value is None:
        return
    if not least <= value < math.inf:
        expected = f"at least {least}" if value < least else "a finite number"
        raise InputError(f"{name}={value}: must be {expected}")
    if isinstance(value, int):
        most = min(most, _MOST)
    if value > most:
        raise InputError(f"{name}={value}: must be at most {most:,}")


def check_choice(name: str, value: str, choices: Sequence[str]) -> None:
    """Check that a name is one of the choices.

    Raises:
        InputError: it is not.
    """
    if value not in choices:
        raise InputError(f"{name}={value!r}: must be one of {', '.join(map(repr, choices))}")
