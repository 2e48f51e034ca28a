"""Arguments and options that several verbs share, so that they read the same everywhere."""

from pathlib import Path
from typing import Annotated

import typer

from heedful.settings.options import OUTPUTS

Run = Annotated[
    Path,
    typer.Argument(
        metavar="RUN",
        help="A run directory (its best bundle is used), a bundle, or USER/MODEL[@REVISION] on the hub.",
    ),
]
Prefix = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help="For each line of the input what its output begins with: whole words, or nothing.",
        rich_help_panel=OUTPUTS,
    ),
]
Ensemble = Annotated[
    list[Path] | None,
    typer.Option(
        metavar="RUN",
        help="Another model, whose probabilities are averaged with those of RUN; give it again for more.",
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
