"""The front of a package: names that come from its modules when they are first used.

A command loads what it needs, and others import from the package without knowing its modules.
"""

import sys
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module


def front(package: str, names: Mapping[str, Sequence[str]]) -> Callable[[str], object]:
    """Return the `__getattr__` of a package (PEP 562).

    Args:
        package: its name.
        names: by module of the package, the names that others use.
    """
    homes = {name: f"{package}.{module}" for module, of_module in names.items() for name in of_module}

    def look_up(name: str) -> object:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = getattr(import_module(homes[name]), name)
        setattr(sys.modules[package], name, value)
        return value

    return look_up
