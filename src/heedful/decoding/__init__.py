"""From a trained model to text: searches over the steps of a backend, and the translator around them.

What other parts of heedful use is here; a name is looked up in its module when it is first used.
"""

from typing import TYPE_CHECKING

from heedful.front import front

if TYPE_CHECKING:
    from heedful.decoding.alignment import Alignment
    from heedful.decoding.glossary import Entry, PlacedTerm
    from heedful.decoding.texts import TextCodec
    from heedful.decoding.translation import MemoryMatch

__all__ = [
    "Alignment",
    "Entry",
    "MemoryMatch",
    "PlacedTerm",
    "TextCodec",
]

__getattr__ = front(
    __name__,
    {
        "alignment": ("Alignment",),
        "glossary": ("Entry", "PlacedTerm"),
        "texts": ("TextCodec",),
        "translation": ("MemoryMatch",),
    },
)
