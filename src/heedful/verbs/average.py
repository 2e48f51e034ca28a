"""`heedful average`: average the weights of several checkpoints (6.1)."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from heedful.cli.streams import note
from heedful.settings.options import OUTPUT, Option


@dataclass(frozen=True, kw_only=True)
class Average:
    """Average the newest checkpoints of a run into a bundle.

    Examples:
        heedful average runs/en-de -o averaged
    """

    run: Annotated[Path, Option("A run directory.", metavar="RUN", is_argument=True)]
    output: Annotated[Path, Option("The bundle to write.", flags=OUTPUT)]
    last: Annotated[int, Option("How many of the newest checkpoints to average.", minimum=1)] = 5


def command(task: Average) -> None:
    """Average, and print the checkpoints."""
    from heedful.tasks.average import average

    for checkpoint in average(task.run, task.output, last=task.last, notify=note):
        print(checkpoint)
