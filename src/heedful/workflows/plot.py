"""Draw the learning curves of a run."""

from pathlib import Path

from heedful.analysis.curves import draw_curves, read_curves
from heedful.errors import InputError, RunError

LOG = "log.jsonl"
PICTURE = "curves.png"


def plot(run: Path, *, output: Path | None = None) -> Path:
    """Draw the learning curves of a run; return the path of the image, by default `RUN/curves.png`.

    Raises:
        InputError: the name does not end in .png.
        MissingExtraError: matplotlib is not installed.
        RunError: there is no run, or nothing was logged yet.
    """
    path = run / PICTURE if output is None else output
    if path.suffix.lower() != ".png":
        raise InputError(f"{path}: learning curves are drawn as PNG; end the name in .png")
    if not run.is_dir():
        raise RunError(f"{run}: no such run; give a directory that `heedful train` made")
    draw_curves(read_curves(run / LOG), path, title=f"Learning curves of {_printable(run.resolve().name)}")
    return path


def _printable(name: str) -> str:
    """Return a printable name: a directory's need not be UTF-8."""
    return name.encode("utf-8", "replace").decode("utf-8")
