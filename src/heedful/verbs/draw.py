"""`heedful draw ...`: pictures of parts of the paper, of parallel text, and of a model's heads."""

import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

from heedful.cli.streams import bar
from heedful.settings.options import (
    DEVICE,
    OUTPUT,
    PRESET,
    Device,
    Languages,
    Option,
    Run,
    Settings,
    settings_like,
)


@dataclass(frozen=True, kw_only=True)
class _Picture:
    output: Annotated[
        Path | None, Option("A .png or .svg file.", default="NAME.png", flags=OUTPUT, is_file=True)
    ] = None


@dataclass(frozen=True, kw_only=True)
class Smoothing(_Picture):
    """Draw the target of label smoothing (5.4), and the loss over the correct token's probability.

    train.label_smoothing is ε.
    """

    settings: Annotated[
        Settings, settings_like("A setting of heedful train, for example model.d_model=128; repeatable.")
    ] = ()


@dataclass(frozen=True, kw_only=True)
class Positions(Smoothing):
    """Draw the positional encodings (3.5): the value of each dimension, and dot products of positions."""

    preset: Annotated[str, PRESET] = "base"


@dataclass(frozen=True, kw_only=True)
class Schedule(Positions):
    """Draw the learning rate over the steps (5.3), up to train.max_steps, or else the paper's 100,000."""


@dataclass(frozen=True, kw_only=True)
class Masks(_Picture):
    """Draw the masks (3.2.3): which tokens of a batch of two sentence pairs may attend to which."""


@dataclass(frozen=True, kw_only=True)
class Lengths(_Picture):
    """Draw histograms of the lengths of parallel text, in words separated by spaces."""

    src: Annotated[Path, Option("Source lines; .gz too.")]
    tgt: Annotated[Path, Option("Their translations, line by line.")]


@dataclass(frozen=True, kw_only=True)
class Heads(_Picture):
    """Draw the importance of each head: how much the loss rises without it (Michel et al., 2019).

    Masks each head in turn by setting its output to zero. The loss is the negative log-likelihood of the
    translations, in nats per target token. Prints a line for each head, with tabs between the kind of
    attention, the layer, the head and the increase.
    """

    run: Run
    src: Annotated[Path, Option("Source lines to measure on; .gz too.")]
    tgt: Annotated[Path, Option("Their translations, line by line.")]
    pairs: Annotated[int, Option("Measure on this number of pairs, from the first on.", minimum=1)] = 200
    languages: Languages = field(default_factory=Languages)
    device: Annotated[Device, DEVICE] = "auto"


def draw_smoothing(task: Smoothing) -> None:
    """Draw the targets and the loss of a configuration."""
    _draw("smoothing", task, settings=task.settings)


def draw_positions(task: Positions) -> None:
    """Draw the encodings of a configuration, if they need no trained model."""
    _draw("positions", task, settings=task.settings, preset=task.preset)


def draw_schedule(task: Schedule) -> None:
    """Draw the schedule of a configuration."""
    _draw("schedule", task, settings=task.settings, preset=task.preset)


def draw_masks(task: Masks) -> None:
    """Draw the masks."""
    _draw("masks", task)


def draw_lengths(task: Lengths) -> None:
    """Draw the lengths of parallel text."""
    _draw("lengths", task, text=(task.src, task.tgt))


def draw_heads(task: Heads) -> None:
    """Measure the importance of each head on parallel text, draw and print it."""
    from heedful.tasks import pictures

    path, text = task.output or Path("heads.png"), (task.src, task.tgt)
    with bar() as show:
        importance = pictures.draw_heads(
            path,
            task.run,
            text,
            pairs=task.pairs,
            languages=task.languages,
            device=task.device,
            on_progress=show,
        )
    for kind, increases in importance.increases.items():
        for layer, row in enumerate(increases, start=1):
            for head, increase in enumerate(row, start=1):
                print(f"{kind}\t{layer}\t{head}\t{increase:.6f}")
    print(f"wrote {path}", file=sys.stderr)


def _draw(
    name: str, task: _Picture, *, preset: str = "base", settings: Settings = (), text: Sequence[Path] = ()
) -> None:
    """Draw a picture, and print its path."""
    from heedful.tasks import pictures

    path = task.output or Path(f"{name}.png")
    pictures.draw(name, path, preset=preset, settings=settings, text=text)
    print(path)


_ALL = (draw_positions, draw_masks, draw_schedule, draw_smoothing, draw_lengths, draw_heads)
COMMANDS = {run.__name__.removeprefix("draw_"): run for run in _ALL}
