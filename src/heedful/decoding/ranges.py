"""Checks of settings: numbers in their range, names among those that there are."""

import math
from collections.abc import Sequence
from numbers import Integral, Real

from heedful.errors import InputError
from heedful.settings.options import SearchRequest, options_of

_MAX_COUNT = 2**31  # of every number that counts something


def range_of(name: str) -> tuple[float, float]:
    """Return the least and the greatest value of a search's setting, which are those of its option."""
    option = options_of(SearchRequest)[name]
    least = -math.inf if option.minimum is None else option.minimum
    return least, math.inf if option.maximum is None else option.maximum


def check_range(name: str, value: float | None, least: float, most: float) -> None:
    """Check that a number, where there is one, is finite and from `least` to `most`.

    Raises:
        InputError: it is not.
    """
    if value is None:
        return
    check_number(name, value)
    if not least <= value < math.inf:
        expected = f"at least {least}" if value < least else "a finite number"
        raise InputError(f"{name}={value}: must be {expected}")
    if isinstance(value, int):
        most = min(most, _MAX_COUNT)
    if value > most:
        raise InputError(f"{name}={value}: must be at most {most:,}")


def check_number(name: str, value: object) -> None:
    """Check that a value, where there is one, is a number.

    Raises:
        InputError: it is not.
    """
    if value is not None and (isinstance(value, bool) or not isinstance(value, Real)):
        raise InputError(f"{name}={value!r}: must be a number")


def check_whole(name: str, value: int | None, least: float, most: float) -> None:
    """Check that a whole number, where there is one, is from `least` to `most`.

    Raises:
        InputError: it is not.
    """
    check_range(name, value, least, most)
    if value is not None and not isinstance(value, Integral):
        raise InputError(f"{name}={value}: must be a whole number")


def check_choice(name: str, value: str, choices: Sequence[str]) -> None:
    """Check that a name is one of the choices.

    Raises:
        InputError: it is not.
    """
    if value not in choices:
        raise InputError(f"{name}={value!r}: must be one of {', '.join(map(repr, choices))}")
