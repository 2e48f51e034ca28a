"""Draw the learning curves of runs."""

from collections.abc import Sequence
from pathlib import Path

from heedful.analysis.curves import draw_curves, read_curves
from heedful.analysis.plotting import check_picture
from heedful.errors import RunError

LOG = "log.jsonl"
PICTURE = "curves.png"


def plot(runs: Sequence[Path], *, output: Path | None = None) -> Path:
    """Draw the learning curves of a run, or of several in the same axes; return the path of the image.

    Args:
        runs: their directories, at least one.
        output: a `.png` or `.svg` file; None: `curves.png`, in the directory of a single run, else here.

    Raises:
        InputError: the name is not that of a picture.
        MissingExtraError: matplotlib is not installed.
        RunError: there is no run, or nothing was logged yet.
    """
    path = output or (runs[0] / PICTURE if len(runs) == 1 else Path(PICTURE))
    check_picture(path)
    for run in runs:
        if not run.is_dir():
            raise RunError(f"{run}: no such run; give a directory that `heedful train` made")
    names = _names(runs)
    draw_curves({name: read_curves(run / LOG) for name, run in zip(names, runs, strict=True)}, path)
    return path


def _names(runs: Sequence[Path]) -> list[str]:
    """Return the names of the directories, or, where two are equal, their paths."""
    names = [_printable(run.resolve().name) for run in runs]
    return names if len(set(names)) == len(names) else [_printable(str(run)) for run in runs]


def _printable(name: str) -> str:
    """Return a printable name: a directory's need not be UTF-8."""
    return name.encode("utf-8", "replace").decode("utf-8")
