"""Text with marks: segments, placeholders, projection, and the pipeline that translates them.

What other parts of heedful use is here; a name is looked up in its module when it is first used.
"""

from typing import TYPE_CHECKING

from heedful.front import front

if TYPE_CHECKING:
    from heedful.spans.parted import Parted
    from heedful.spans.pipeline import (
        Request,
        SentenceTranslator,
        Work,
        alignments_of,
        onwards,
        translate_units,
        translated,
    )

__all__ = [
    "Parted",
    "Request",
    "SentenceTranslator",
    "Work",
    "alignments_of",
    "onwards",
    "translate_units",
    "translated",
]

__getattr__ = front(
    __name__,
    {
        "parted": ("Parted",),
        "pipeline": (
            "Request",
            "SentenceTranslator",
            "Work",
            "alignments_of",
            "onwards",
            "translate_units",
            "translated",
        ),
    },
)
