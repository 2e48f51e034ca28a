"""`heedful attention`: the attention maps of a model for one sentence."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

from heedful.cli.options import SearchOverrides
from heedful.cli.streams import argument_text, notify
from heedful.settings.options import OUTPUT, Languages, Option, Run, Runtime, ShortlistFile


@dataclass(frozen=True, kw_only=True)
class Attention:
    """Show the attention of a model in a translation.

    Prints the translation. A map of cross-attention has a row for each output token and a column for each
    input token. A page (.html) has all maps, and begins with the first one that you chose.

    Examples:
        heedful attention runs/en-de "The dog sleeps." -o attention.html
    """

    run: Run
    text: Annotated[str, Option("The source sentence.", metavar="TEXT", is_argument=True)]
    output: Annotated[
        Path, Option("A .png or .svg file, or .html or .json (everything).", flags=OUTPUT, is_file=True)
    ] = Path("attention.png")
    target: Annotated[str | None, Option("The translation to explain.", default="the model's own")] = None
    kind: Annotated[
        str,
        Option(
            "Kinds of attention to draw: cross (decoder on source), encoder, decoder.",
            metavar="KIND,...|all",
            flags=("--attention",),
        ),
    ] = "cross"
    layer: Annotated[
        str | None, Option("Layers to draw, counted from 1.", metavar="N,...|all", default="the last")
    ] = None
    head: Annotated[
        str, Option("Heads to draw; all draws their mean and each.", metavar="N,...|mean|all")
    ] = "all"
    languages: Languages = field(default_factory=Languages)
    search: SearchOverrides = field(default_factory=dict)
    shortlist: ShortlistFile = None
    runtime: Runtime = field(default_factory=Runtime)


def command(task: Attention) -> None:
    """Write the maps of a translation, the model's own or a given one, and print it."""
    from heedful.analysis.attention_maps import MapChoice, attention_of
    from heedful.analysis.attention_pictures import check_attention_file, write_attention
    from heedful.decoding.options import search_options
    from heedful.tasks.loading import load_translator
    from heedful.tasks.output_checks import check_output

    check_output(task.output, models=[task.run], makes_folder=True)
    choice = MapChoice.parse(task.kind, layers=task.layer, heads=task.head)
    source = argument_text(task.text, "TEXT")
    target = None if task.target is None else argument_text(task.target, "--target")
    check_attention_file(task.output)
    translator = load_translator(task.run, task.languages, task.runtime, shortlist=task.shortlist)
    options = search_options(task.search, translator.bundle.config.decode)
    maps = attention_of(translator, source, target=target, options=options)
    write_attention(maps, task.output, choice=choice)
    print(maps.target)
    notify(f"wrote {task.output}")
