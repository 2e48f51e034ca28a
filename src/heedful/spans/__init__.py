"""Text with marks: segments, placeholders, projection, and the pipeline that translates them.

What other parts of heedful use is here; a name is looked up in its module when it is first used.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from heedful.spans.parted import Parted
    from heedful.spans.pipeline import Request, SentenceTranslator, onwards, translate_units, translated

__all__ = [
    "Parted",
    "Request",
    "SentenceTranslator",
    "onwards",
    "translate_units",
    "translated",
]

_HOMES = {
    "Parted": "parted",
    "Request": "pipeline",
    "SentenceTranslator": "pipeline",
    "onwards": "pipeline",
    "translate_units": "pipeline",
    "translated": "pipeline",
}


def __getattr__(name: str) -> object:
    """Import a name from its module when it is first used."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
