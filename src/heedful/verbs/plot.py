"""`heedful plot`: learning curves."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from heedful.errors import RunError
from heedful.settings.options import OUTPUT, Option

PICTURE = "curves.png"


@dataclass(frozen=True, kw_only=True)
class Plot:
    """Draw the learning curves of one or more runs.

    Loss, scores, learning rate and speed over the logged steps.
    """

    runs: Annotated[list[Path], Option("Run directories.", metavar="RUN...", is_argument=True)]
    output: Annotated[
        Path | None,
        Option(
            "A .png or .svg file.",
            default=f"{PICTURE}, in RUN if there is one, else here",
            flags=OUTPUT,
            is_file=True,
        ),
    ] = None


def plot(task: Plot) -> Path:
    """Draw the curves of runs, each once; return the path of the image.

    Raises:
        InputError: the name is not that of a picture, or it cannot be written.
        MissingExtraError: matplotlib is not installed.
        RunError: there is no run, or nothing was logged yet.
    """
    from heedful.analysis.curves import draw_curves, read_curves
    from heedful.analysis.plotting import check_picture
    from heedful.runs.directory import LOG
    from heedful.runs.output_checks import check_output

    runs = list(dict.fromkeys(task.runs))
    if task.output is not None:
        check_output(task.output, models=runs, makes_folder=True)
    path = task.output or (runs[0] / PICTURE if len(runs) == 1 else Path(PICTURE))
    check_picture(path)
    for run in runs:
        if not run.is_dir():
            raise RunError(f"{run}: no such run; give a directory that `heedful train` made")
    names = _names(runs)
    draw_curves({name: read_curves(run / LOG) for name, run in zip(names, runs, strict=True)}, path)
    return path


def command(task: Plot) -> None:
    """Draw, and print the path."""
    print(plot(task))


def _names(runs: Sequence[Path]) -> list[str]:
    """Return the names of the directories, or, where two are equal, their paths."""
    names = [_printable(run.resolve().name) for run in runs]
    return names if len(set(names)) == len(names) else [_printable(str(run)) for run in runs]


def _printable(name: str) -> str:
    """Return a printable name: a directory's need not be UTF-8."""
    return name.encode("utf-8", "replace").decode("utf-8")
