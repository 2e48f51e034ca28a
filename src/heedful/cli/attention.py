"""`heedful attention`: an image of the attention weights."""

from pathlib import Path
from typing import Annotated

import typer

from heedful.cli import options as opt
from heedful.cli.streams import argument_text
from heedful.settings.options import Runtime, SearchRequest


def attention(
    run: opt.Run,
    text: Annotated[str, typer.Argument(metavar="TEXT", help="The source sentence.")],
    output: Annotated[
        Path, typer.Option("--output", "-o", help="A .png or .svg file, or .html or .json (everything).")
    ] = Path("attention.png"),
    target: Annotated[
        str | None, typer.Option(help="The translation to explain. [default: the model's own]")
    ] = None,
    kind: Annotated[
        str,
        typer.Option(
            "--attention",
            metavar="KIND,...|all",
            help="Attention of the picture: cross (decoder on source), encoder, decoder.",
        ),
    ] = "cross",
    layer: Annotated[
        str | None,
        typer.Option(metavar="N,...|all", help="Layers of the picture, from 1. [default: the last]"),
    ] = None,
    head: Annotated[
        str,
        typer.Option(metavar="N,...|mean|all", help="Heads of the picture; all: their mean, and each."),
    ] = "all",
    search: SearchRequest = SearchRequest(),
    runtime: Runtime = Runtime(),
) -> None:
    """Show the attention of a model while it translates a sentence.

    Prints the translation. A map of cross-attention has a row for each output token and a column for each
    input token. A page (.html) begins with the first map of the chosen ones, and has all others too.
    """
    from heedful.analysis.attention_maps import MapChoice
    from heedful.workflows.attention import attention as show_attention
    from heedful.workflows.outputs import check_output

    check_output(output, models=[run], makes_folder=True)
    choice = MapChoice.parse(kind, layer, head)
    maps = show_attention(
        run,
        argument_text(text, "TEXT"),
        output=output,
        target=None if target is None else argument_text(target, "--target"),
        choice=choice,
        request=search,
        runtime=runtime,
    )
    print(maps.target)
    typer.echo(f"wrote {output}", err=True)
