"""The options of `heedful inspect` for parallel text."""

from pathlib import Path
from typing import Annotated

import typer

TEXT = "Parallel text"  # heading of the help

ValidSrc = Annotated[
    Path | None, typer.Option(help="Source side of the validation text.", rich_help_panel=TEXT)
]
ValidTgt = Annotated[
    Path | None, typer.Option(help="Target side of the validation text.", rich_help_panel=TEXT)
]
ValidPairs = Annotated[
    Path | None, typer.Option(help="Both sides of it in one .tsv or .jsonl file.", rich_help_panel=TEXT)
]
TestSrc = Annotated[Path | None, typer.Option(help="Source side of the test text.", rich_help_panel=TEXT)]
TestTgt = Annotated[Path | None, typer.Option(help="Target side of the test text.", rich_help_panel=TEXT)]
TestPairs = Annotated[
    Path | None, typer.Option(help="Both sides of it in one .tsv or .jsonl file.", rich_help_panel=TEXT)
]
SrcKey = Annotated[str, typer.Option(help="Key of the source in a .jsonl line.", rich_help_panel=TEXT)]
TgtKey = Annotated[str, typer.Option(help="Key of the target in a .jsonl line.", rich_help_panel=TEXT)]
SrcLang = Annotated[
    str | None,
    typer.Option(
        metavar="CODE",
        help="Language that the source should be in, as en. [default: that of most lines]",
        rich_help_panel=TEXT,
    ),
]
TgtLang = Annotated[
    str | None,
    typer.Option(
        metavar="CODE",
        help="Language that the target should be in, as de. [default: that of most lines]",
        rich_help_panel=TEXT,
    ),
]
Examples = Annotated[int, typer.Option(min=0, help="Examples shown of each filter.", rich_help_panel=TEXT)]
Fix = Annotated[
    Path | None,
    typer.Option(
        metavar="DIR", help="Write the text without faulty pairs into a new directory.", rich_help_panel=TEXT
    ),
]
Keep = Annotated[
    list[str] | None,
    typer.Option(
        metavar="FILTER",
        help="With --fix, keep what this filter finds; give it again for more.",
        rich_help_panel=TEXT,
    ),
]
Remove = Annotated[
    list[str] | None,
    typer.Option(
        metavar="FILTER",
        help="With --fix, remove what this filter finds; give it again for more.",
        rich_help_panel=TEXT,
    ),
]
