"""`heedful plot`: learning curves."""

from pathlib import Path
from typing import Annotated

import typer


def plot(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN...", help="Run directories.")],
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            help="A .png or .svg file. [default: curves.png, in RUN if there is one, else here]",
        ),
    ] = None,
) -> None:
    """Draw the learning curves of a run, or of several in the same axes.

    Loss, scores, learning rate and speed over the logged steps.
    """
    from heedful.workflows.outputs import check_output
    from heedful.workflows.plot import plot as draw

    if output is not None:
        check_output(output, models=runs, makes_folder=True)
    print(draw(list(dict.fromkeys(runs)), output=output))
