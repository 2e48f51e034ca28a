"""`heedful plot`: learning curves."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from heedful.settings.options import OUTPUT, Option


@dataclass(frozen=True, kw_only=True)
class Plot:
    """Draw the learning curves of one or more runs.

    Loss, scores, learning rate and speed over the logged steps. Runs that differ only in their seeds are one
    line, their mean, with a band of one standard deviation to each side.

    Examples:
        heedful plot runs/a runs/b -o curves.png
    """

    runs: Annotated[list[Path], Option("Run directories.", metavar="RUN...", is_argument=True)]
    output: Annotated[
        Path | None,
        Option(
            "A .png or .svg file.",
            default="curves.png, in RUN if there is one, else here",
            flags=OUTPUT,
            is_file=True,
        ),
    ] = None


def command(task: Plot) -> None:
    """Draw, and print the path."""
    from heedful.tasks.inspection import plot

    print(plot(task.runs, task.output))
