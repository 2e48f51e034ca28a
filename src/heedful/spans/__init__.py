"""Text with marks: segments, placeholders, projection, and the pipeline that translates them.

What other parts of heedful use is here; a name is looked up in its module when it is first used.
"""

from typing import TYPE_CHECKING

from heedful.front import front

if TYPE_CHECKING:
    from heedful.spans.keep import KeepRule, keeping, literal_rules
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
    "KeepRule",
    "Parted",
    "Request",
    "SentenceTranslator",
    "Work",
    "alignments_of",
    "keeping",
    "literal_rules",
    "onwards",
    "translate_units",
    "translated",
]

__getattr__ = front(
    __name__,
    {
        "keep": ("KeepRule", "keeping", "literal_rules"),
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
