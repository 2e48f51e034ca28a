"""Arguments and options that several verbs share, so that they read the same everywhere."""

from pathlib import Path
from typing import Annotated

import typer

Run = Annotated[
    Path,
    typer.Argument(
        metavar="RUN",
        help="A run directory (its best bundle is used), a bundle, or USER/MODEL[@REVISION] on the hub.",
    ),
]
BeamSize = Annotated[
    int | None,
    typer.Option(min=1, help="Hypotheses kept in the search; 1 is greedy. [default: as in the bundle]"),
]
LengthPenalty = Annotated[
    float | None,
    typer.Option(min=0.0, help="Alpha of the length penalty. [default: as in the bundle]"),
]
LengthNormalization = Annotated[
    str | None,
    typer.Option(
        metavar="gnmt|average",
        help="Scores over ((5 + length) / 6)^alpha, or over length^alpha. [default: as in the bundle]",
    ),
]
EarlyStopping = Annotated[
    str | None,
    typer.Option(
        metavar="optimal|estimate|first",
        help="When a search may end: nothing can win, would win now, or enough ended. "
        "[default: as in the bundle]",
    ),
]
MaxLengthOffset = Annotated[
    int | None,
    typer.Option(min=0, help="An output may be this much longer than its input, in pieces."),
]
BatchTokens = Annotated[
    int | None,
    typer.Option(min=1, help="Source pieces decoded together. [default: as in the bundle]"),
]
Threads = Annotated[
    int | None,
    typer.Option(min=1, help="Processor threads. [default: as many as there are cores]"),
]
Precision = Annotated[
    str,
    typer.Option(metavar="float32|bf16", help="Arithmetic; bf16 is faster on some processors."),
]
Device = Annotated[
    str,
    typer.Option(metavar="auto|cpu|cuda", help="Where to compute; auto: a GPU where there is one."),
]
SrcLang = Annotated[
    str | None,
    typer.Option(metavar="TAG", help="Language to translate from. [default: as in the bundle]"),
]
TgtLang = Annotated[
    str | None,
    typer.Option(metavar="TAG", help="Language to translate into. [default: as in the bundle]"),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
