"""`heedful attention`: a picture of what the model looked at."""

from pathlib import Path
from typing import Annotated

import typer

from heedful.cli import options as opt
from heedful.cli.streams import argument_text
from heedful.requests import Runtime, SearchRequest


def attention(
    run: opt.Run,
    text: Annotated[str, typer.Argument(metavar="TEXT", help="The sentence that the model reads.")],
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
    """Show what the model looked at as it translated.

    Prints the translation; the picture has a row for each piece that was written and a column for each that
    was read.
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
