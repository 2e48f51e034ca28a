"""Pictures of parts of the paper, of parallel text, and of a model's heads: what `heedful draw` needs."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from heedful.analysis import paper_pictures
from heedful.analysis.head_importance import HeadImportance, importance_figure, importance_on_text
from heedful.analysis.plotting import check_picture, save_figure
from heedful.data.files import read_parallel
from heedful.settings.loading import load_config
from heedful.settings.options import Device, Languages, Runtime, Settings
from heedful.tasks.loading import load_translator
from heedful.tasks.output_checks import check_output

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def _check(path: Path, *, inputs: Sequence[Path] = (), models: Sequence[Path] = ()) -> None:
    """Check, before the work, that a picture can be written and replaces no input or model."""
    check_output(path, inputs=inputs, models=models, makes_folder=True)
    check_picture(path)


def draw(
    name: str, path: Path, *, preset: str = "base", settings: Settings = (), text: Sequence[Path] = ()
) -> None:
    """Draw a part of the paper, or the lengths of parallel text, into a file.

    `name` is positions, masks, schedule, smoothing or lengths, which needs the `text` of source and target.
    """
    _check(path, inputs=text)
    config = load_config(preset=preset, overrides=settings)
    figures: dict[str, Callable[[], Figure]] = {
        "positions": lambda: paper_pictures.positions_figure(config.model),
        "masks": paper_pictures.masks_figure,
        "schedule": lambda: paper_pictures.schedule_figure(config),
        "smoothing": lambda: paper_pictures.smoothing_figure(config.train.label_smoothing),
        "lengths": lambda: paper_pictures.lengths_figure(*paper_pictures.lengths_of(*text)),
    }
    save_figure(figures[name](), path)


def draw_heads(
    path: Path,
    run: Path,
    text: tuple[Path, Path],
    *,
    pairs: int,
    languages: Languages,
    device: Device,
    on_progress: Callable[[str, float], None],
) -> HeadImportance:
    """Measure the importance of each head on parallel text, draw it into a file, and return it.

    `on_progress` is called with the current phase and its progress, 0 to 1.
    """
    _check(path, inputs=text, models=[run])
    lines = read_parallel(*text)
    translator = load_translator(run, languages, Runtime(device=device))
    importance = importance_on_text(translator, lines, pairs=pairs, on_progress=on_progress)
    save_figure(importance_figure(importance), path)
    return importance
