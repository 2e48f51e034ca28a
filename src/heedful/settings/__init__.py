"""Settings: the options of commands, the schema of a run with the defaults of the paper, and presets.

What other parts of heedful use is here; a name is looked up in its module when it is first used.
"""

from typing import TYPE_CHECKING

from heedful.front import front

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

__getattr__ = front(
    __name__,
    {
        "options": ("Languages", "Option", "Runtime", "check_options"),
        "plugins": ("load_again", "loaded_plugins"),
        "parsing": ("parse_json",),
    },
)
