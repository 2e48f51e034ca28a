"""From a trained model to text: searches over the steps of a backend, and the translator around them.

What other parts of heedful use is here; a name is looked up in its module when it is first used.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from heedful.decoding.glossary import Entry, PlacedTerm
    from heedful.decoding.texts import TextCodec

__all__ = [
    "Entry",
    "PlacedTerm",
    "TextCodec",
]

_HOMES = {
    "Entry": "glossary",
    "PlacedTerm": "glossary",
    "TextCodec": "texts",
}


def __getattr__(name: str) -> object:
    """Import a name from its module when it is first used."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
