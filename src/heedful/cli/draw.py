"""`heedful draw ...`: pictures of parts of the paper, of parallel text, and of a model's heads."""

from pathlib import Path
from typing import Annotated

import typer

from heedful.cli import options as opt
from heedful.settings.options import Languages

_Output = Annotated[
    Path | None, typer.Option("--output", "-o", help="A .png or .svg file. [default: NAME.png]")
]
_Preset = Annotated[
    str, typer.Option(help="tiny, small, base, big, a row of Table 3, or a published system.")
]
_Settings = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="A setting of heedful train, such as model.d_model=128."),
]


def positions(preset: _Preset = "base", settings: _Settings = None, output: _Output = None) -> None:
    """Draw the positional encodings (3.5): the value of each dimension, and dot products of positions."""
    _draw_config("positions", preset, settings, output)


def masks(output: _Output = None) -> None:
    """Draw the masks (3.2.3): which tokens of a batch of two sentence pairs may attend to which."""
    _draw_config("masks", "base", None, output)


def schedule(preset: _Preset = "base", settings: _Settings = None, output: _Output = None) -> None:
    """Draw the learning rate over the steps (5.3), up to train.max_steps, or else the paper's 100,000."""
    _draw_config("schedule", preset, settings, output)


def smoothing(settings: _Settings = None, output: _Output = None) -> None:
    """Draw the target of label smoothing (5.4), and the loss over the correct token's probability.

    train.label_smoothing is ε.
    """
    _draw_config("smoothing", "base", settings, output)


def lengths(
    src: Annotated[Path, typer.Option(help="Source lines; .gz too.")],
    tgt: Annotated[Path, typer.Option(help="Their translations, line by line.")],
    output: _Output = None,
) -> None:
    """Draw histograms of the lengths of parallel text, in words, which are what is between spaces."""
    from heedful.workflows.draw import draw_lengths

    path = _checked(output, "lengths", inputs=[src, tgt])
    draw_lengths(src, tgt, path)
    print(path)


def heads(
    run: opt.Run,
    src: Annotated[Path, typer.Option(help="Source lines to measure on; .gz too.")],
    tgt: Annotated[Path, typer.Option(help="Their translations, line by line.")],
    pairs: Annotated[int, typer.Option(min=1, help="Measure on the first pairs only, so many.")] = 200,
    output: _Output = None,
    languages: Languages = Languages(),
) -> None:
    """Draw the importance of each head: how much the loss rises without it (Michel et al., 2019).

    The loss is the negative log-likelihood of the translations, in nats per target token; each head in turn
    is masked, its output set to zero. Prints a line for each head: the kind of attention, the layer, the head
    and the increase, between tabs.
    """
    from heedful.cli.bar import bar
    from heedful.workflows.draw import draw_heads

    path = _checked(output, "heads", inputs=[src, tgt], models=[run])
    with bar() as show:
        importance = draw_heads(run, src, tgt, path, num_pairs=pairs, languages=languages, on_progress=show)
    for kind, increases in importance.increases.items():
        for layer, row in enumerate(increases, start=1):
            for head, increase in enumerate(row, start=1):
                print(f"{kind}\t{layer}\t{head}\t{increase:.6f}")
    typer.echo(f"wrote {path}", err=True)


DRAWINGS = (positions, masks, schedule, smoothing, lengths, heads)


def _draw_config(name: str, preset: str, settings: list[str] | None, output: Path | None) -> None:
    from heedful.settings.loading import load_config, parse_override
    from heedful.workflows.draw import draw_config

    path = _checked(output, name)
    config = load_config(preset=preset, overrides=[parse_override(setting) for setting in settings or []])
    draw_config(name, config, path)
    print(path)


def _checked(
    output: Path | None, name: str, *, inputs: list[Path] | None = None, models: list[Path] | None = None
) -> Path:
    from heedful.workflows.outputs import check_output

    path = output or Path(f"{name}.png")
    check_output(path, inputs or [], models=models or [], makes_folder=True)
    return path
