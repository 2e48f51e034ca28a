"""The picture of `heedful draw heads`."""

from collections.abc import Callable
from pathlib import Path

from heedful.analysis.head_importance import HeadImportance, importance_figure, importance_on_text
from heedful.analysis.plotting import check_picture, save_figure
from heedful.data.files import read_parallel
from heedful.settings.options import Device, Languages, Runtime
from heedful.tasks.loading import load_translator
from heedful.tasks.output_checks import check_output


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
    check_output(path, inputs=text, models=[run], makes_folder=True)
    check_picture(path)
    lines = read_parallel(*text)
    translator = load_translator(run, languages, Runtime(device=device))
    importance = importance_on_text(translator, lines, pairs=pairs, on_progress=on_progress)
    save_figure(importance_figure(importance), path)
    return importance
