"""`heedful average`: average the weights of several checkpoints."""

from pathlib import Path
from typing import Annotated

import typer


def average(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A run directory.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="The bundle to write.")],
    last: Annotated[int, typer.Option(min=1, help="How many of the newest checkpoints to average.")] = 5,
) -> None:
    """Write a bundle whose weights are the mean over the newest checkpoints of a run."""
    from heedful.workflows.average import average as run_average

    for checkpoint in run_average(run, output, last=last):
        print(checkpoint)
