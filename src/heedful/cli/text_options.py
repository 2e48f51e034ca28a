"""The options of `heedful inspect` about the filters of parallel text, in a group."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from heedful.settings.options import TEXT, Option


@dataclass(frozen=True, kw_only=True)
class Filtering:
    """Filters of parallel text, and what to do with the pairs that they find."""

    src_lang: Annotated[
        str | None,
        Option(
            "Expected language of the source, such as en.",
            TEXT,
            metavar="CODE",
            default="that of most lines",
        ),
    ] = None
    tgt_lang: Annotated[
        str | None,
        Option(
            "Expected language of the target, such as de.",
            TEXT,
            metavar="CODE",
            default="that of most lines",
        ),
    ] = None
    examples: Annotated[int, Option("Examples shown of each filter.", TEXT, minimum=0)] = 3
    fix: Annotated[
        Path | None,
        Option("Write the text without faulty pairs into a new directory.", TEXT, metavar="DIR"),
    ] = None
    keep: Annotated[
        list[str] | None,
        Option("With --fix, keep the pairs that this filter finds; can be repeated.", TEXT, metavar="FILTER"),
    ] = None
    remove: Annotated[
        list[str] | None,
        Option(
            "With --fix, remove the pairs that this filter finds; can be repeated.", TEXT, metavar="FILTER"
        ),
    ] = None
