"""Draw the learning curves of a run."""

from pathlib import Path

from heedful.analysis.curves import draw_curves, read_curves
from heedful.errors import InputError, RunError

LOG = "log.jsonl"
PICTURE = "curves.png"


def plot(run: Path, *, output: Path | None = None) -> Path:
    """Read a run's log and draw it; gives the path of the picture, by default `RUN/curves.png`.

    Raises:
        InputError: a name that does not end in .png.
        MissingExtraError: matplotlib is not installed.
        RunError: no run there, or nothing logged yet.
    """
    path = run / PICTURE if output is None else output
    if path.suffix.lower() != ".png":
        raise InputError(f"{path}: learning curves are drawn as PNG; end the name in .png")
    if not run.is_dir():
        raise RunError(f"{run}: no such run; give a directory that `heedful train` made")
    draw_curves(read_curves(run / LOG), path, title=f"Learning curves of {_printable(run.resolve().name)}")
    return path


def _printable(name: str) -> str:
    """A name as a picture can show it: a directory need not be UTF-8."""
    return name.encode("utf-8", "replace").decode("utf-8")
