"""`heedful draw ...`: pictures of parts of the paper, of parallel text, and of a model's heads."""

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from heedful.cli.streams import bar
from heedful.settings.options import (
    DEVICE,
    OUTPUT,
    PRESET,
    Languages,
    Option,
    Run,
    Runtime,
    settings_like,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from heedful.settings.run import Config

_Output = Annotated[
    Path | None, Option("A .png or .svg file.", default="NAME.png", flags=OUTPUT, is_file=True)
]
_Preset = Annotated[str, PRESET]
_Settings = Annotated[
    list[str] | None, settings_like("A setting of heedful train, such as model.d_model=128.")
]


@dataclass(frozen=True, kw_only=True)
class Positions:
    """Draw the positional encodings (3.5): the value of each dimension, and dot products of positions."""

    preset: _Preset = "base"
    settings: _Settings = None
    output: _Output = None


@dataclass(frozen=True, kw_only=True)
class Masks:
    """Draw the masks (3.2.3): which tokens of a batch of two sentence pairs may attend to which."""

    output: _Output = None


@dataclass(frozen=True, kw_only=True)
class Schedule:
    """Draw the learning rate over the steps (5.3), up to train.max_steps, or else the paper's 100,000."""

    preset: _Preset = "base"
    settings: _Settings = None
    output: _Output = None


@dataclass(frozen=True, kw_only=True)
class Smoothing:
    """Draw the target of label smoothing (5.4), and the loss over the correct token's probability.

    train.label_smoothing is ε.
    """

    settings: _Settings = None
    output: _Output = None


@dataclass(frozen=True, kw_only=True)
class Lengths:
    """Draw histograms of the lengths of parallel text, in words separated by spaces."""

    src: Annotated[Path, Option("Source lines; .gz too.")]
    tgt: Annotated[Path, Option("Their translations, line by line.")]
    output: _Output = None


@dataclass(frozen=True, kw_only=True)
class Heads:
    """Draw the importance of each head: how much the loss rises without it (Michel et al., 2019).

    Masks each head in turn by setting its output to zero. The loss is the negative log-likelihood of the
    translations, in nats per target token. Prints a line for each head, with tabs between the kind of
    attention, the layer, the head and the increase.
    """

    run: Run
    src: Annotated[Path, Option("Source lines to measure on; .gz too.")]
    tgt: Annotated[Path, Option("Their translations, line by line.")]
    pairs: Annotated[int, Option("Measure on this number of pairs, from the first on.", minimum=1)] = 200
    output: _Output = None
    languages: Languages = field(default_factory=Languages)
    device: Annotated[str, DEVICE] = "auto"


def draw_positions(task: Positions) -> None:
    """Draw the encodings of a configuration, if they need no trained model."""
    from heedful.analysis.paper_pictures import positions_figure

    config = _config(task.preset, task.settings)
    _draw(task.output, "positions", lambda: positions_figure(config.model))


def draw_masks(task: Masks) -> None:
    """Draw the masks."""
    from heedful.analysis.paper_pictures import masks_figure

    _draw(task.output, "masks", masks_figure)


def draw_schedule(task: Schedule) -> None:
    """Draw the schedule of a configuration."""
    from heedful.analysis.paper_pictures import schedule_figure

    config = _config(task.preset, task.settings)
    _draw(task.output, "schedule", lambda: schedule_figure(config))


def draw_smoothing(task: Smoothing) -> None:
    """Draw the targets and the loss of a configuration."""
    from heedful.analysis.paper_pictures import smoothing_figure

    config = _config("base", task.settings)
    _draw(task.output, "smoothing", lambda: smoothing_figure(config.train.label_smoothing))


def draw_lengths(task: Lengths) -> None:
    """Draw the lengths of parallel text."""
    from heedful.analysis.paper_pictures import lengths_figure
    from heedful.data.files import read_parallel

    def figure() -> "Figure":
        text = read_parallel(task.src, task.tgt)
        return lengths_figure(*([len(line.split()) for line in lines] for lines in (text.src, text.tgt)))

    _draw(task.output, "lengths", figure, inputs=[task.src, task.tgt])


def _config(preset: str, settings: list[str] | None) -> "Config":
    from heedful.settings.loading import load_config, parse_override

    return load_config(preset=preset, overrides=[parse_override(setting) for setting in settings or []])


def _draw(
    output: Path | None, name: str, figure: Callable[[], "Figure"], *, inputs: Sequence[Path] = ()
) -> None:
    """Draw a figure, and print the path of the picture.

    Raises:
        InputError: a name that is not that of a picture, or a file that cannot be written.
        MissingExtraError: matplotlib is not installed.
    """
    from heedful.analysis.plotting import save_figure

    path = _checked(output, name, inputs=inputs)
    save_figure(figure(), path)
    print(path)


def _checked(
    output: Path | None, name: str, *, inputs: Sequence[Path] = (), models: Sequence[Path] = ()
) -> Path:
    from heedful.analysis.plotting import check_picture
    from heedful.runs.output_checks import check_output

    path = output or Path(f"{name}.png")
    check_output(path, inputs=inputs, models=models, makes_folder=True)
    check_picture(path)
    return path


def draw_heads(task: Heads) -> None:
    """Measure the importance of each head on parallel text, draw and print it.

    Raises:
        BundleError: no usable bundle.
        CorpusError: files that cannot be read, are not parallel, or have no pair that the model can take.
        InputError: a name that is not that of a picture.
        MissingExtraError: matplotlib is not installed.
    """
    from heedful.analysis.head_importance import importance_figure, importance_on_text
    from heedful.analysis.plotting import save_figure
    from heedful.data.files import read_parallel
    from heedful.runs.loading import load_translator

    path = _checked(task.output, "heads", inputs=[task.src, task.tgt], models=[task.run])
    with bar() as show:
        text = read_parallel(task.src, task.tgt)
        translator = load_translator(task.run, task.languages, Runtime(device=task.device))
        importance = importance_on_text(translator, text, pairs=task.pairs, on_progress=show)
    save_figure(importance_figure(importance), path)
    for kind, increases in importance.increases.items():
        for layer, row in enumerate(increases, start=1):
            for head, increase in enumerate(row, start=1):
                print(f"{kind}\t{layer}\t{head}\t{increase:.6f}")
    print(f"wrote {path}", file=sys.stderr)


COMMANDS = {
    "positions": draw_positions,
    "masks": draw_masks,
    "schedule": draw_schedule,
    "smoothing": draw_smoothing,
    "lengths": draw_lengths,
    "heads": draw_heads,
}
