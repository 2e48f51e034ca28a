"""`heedful attention`: an image of the attention weights."""

from pathlib import Path
from typing import Annotated

import typer

from heedful.cli import options as opt
from heedful.cli.streams import argument_text
from heedful.requests import Runtime, SearchRequest


def attention(
    run: opt.Run,
    text: Annotated[str, typer.Argument(metavar="TEXT", help="The source sentence.")],
    output: Annotated[
        Path, typer.Option("--output", "-o", help="A .png (one layer), .html or .json file (everything).")
    ] = Path("attention.png"),
    target: Annotated[
        str | None, typer.Option(help="The translation to explain. [default: the model's own]")
    ] = None,
    layer: Annotated[
        int | None, typer.Option(min=1, help="The decoder layer of the picture. [default: the last]")
    ] = None,
    search: SearchRequest = SearchRequest(),
    runtime: Runtime = Runtime(),
) -> None:
    """Show the attention of a model while it translates a sentence.

    Prints the translation; the picture has a row for each output token and a column for each input token.
    """
    from heedful.workflows.attention import attention as show_attention
    from heedful.workflows.outputs import check_output

    check_output(output, models=[run], makes_folder=True)
    maps = show_attention(
        run,
        argument_text(text, "TEXT"),
        output=output,
        target=None if target is None else argument_text(target, "--target"),
        layer=layer,
        request=search,
        runtime=runtime,
    )
    print(maps.target)
    typer.echo(f"wrote {output}", err=True)
