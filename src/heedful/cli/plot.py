"""`heedful plot`: learning curves."""

from pathlib import Path
from typing import Annotated

import typer


def plot(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A run directory.")],
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="A .png file. [default: RUN/curves.png]")
    ] = None,
) -> None:
    """Draw the learning curves of a run.

    Loss, perplexity, scores, learning rate and speed over the logged steps.
    """
    from heedful.workflows.outputs import check_output
    from heedful.workflows.plot import plot as draw

    if output is not None:
        check_output(output, models=[run], makes_folder=True)
    print(draw(run, output=output))
