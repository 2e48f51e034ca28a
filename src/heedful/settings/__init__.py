"""Settings: the options of commands, the schema of a run with the defaults of the paper, and presets.

What other parts of heedful use is here; a name is looked up in its module when it is first used.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from heedful.settings.options import Languages, Option, Runtime, check_options
    from heedful.settings.parsing import parse_json
    from heedful.settings.plugins import load_again, loaded_plugins

__all__ = [
    "Languages",
    "Option",
    "Runtime",
    "check_options",
    "load_again",
    "loaded_plugins",
    "parse_json",
]

_HOMES = {
    "Languages": "options",
    "Option": "options",
    "Runtime": "options",
    "check_options": "options",
    "load_again": "plugins",
    "loaded_plugins": "plugins",
    "parse_json": "parsing",
}


def __getattr__(name: str) -> object:
    """Import a name from its module when it is first used."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
