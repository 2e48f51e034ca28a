"""`heedful attention`: the attention maps of a model for one sentence."""

import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from heedful.cli.options import SearchOverrides
from heedful.cli.streams import argument_text
from heedful.errors import InputError
from heedful.settings.options import OUTPUT, Languages, Option, Run, Runtime, ShortlistFile

if TYPE_CHECKING:
    from heedful.analysis.attention_maps import AttentionMaps, MapChoice
    from heedful.decoding.options import SearchOptions
    from heedful.decoding.translator import Translator


@dataclass(frozen=True, kw_only=True)
class Attention:
    """Show the attention of a model while it translates a sentence.

    Prints the translation. A map of cross-attention has a row for each output token and a column for each
    input token. A page (.html) has all maps, and begins with the first one that you chose.
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
        str | None,
        Option("Layers to draw, counted from 1.", metavar="N,...|all", default="the last"),
    ] = None
    head: Annotated[
        str, Option("Heads to draw; all draws their mean and each.", metavar="N,...|mean|all")
    ] = "all"
    languages: Languages = field(default_factory=Languages)
    search: SearchOverrides = field(default_factory=dict)
    shortlist: ShortlistFile = None
    runtime: Runtime = field(default_factory=Runtime)


def attention(task: Attention) -> "AttentionMaps":
    """Translate a sentence, or use a reference translation, and write the attention maps to a file.

    Raises:
        BundleError: there is no usable bundle.
        InputError: no sentence, an unknown format, a layer or head that does not exist, or invalid settings.
        MissingExtraError: an image needs matplotlib, which is not installed.
    """
    from heedful.analysis.attention_maps import MapChoice
    from heedful.analysis.plotting import FORMATS, check_picture
    from heedful.decoding.options import search_options
    from heedful.runs.loading import load_translator
    from heedful.runs.output_checks import check_output

    check_output(task.output, models=[task.run], makes_folder=True)
    choice = MapChoice.parse(task.kind, layers=task.layer, heads=task.head)
    source = argument_text(task.text, "TEXT")
    target = None if task.target is None else argument_text(task.target, "--target")
    suffix = task.output.suffix.lower()
    if suffix not in (known := (*FORMATS, ".html", ".json")):
        raise InputError(f"{task.output}: unknown kind of file; end the name in {', '.join(known)}")
    if suffix in FORMATS:
        check_picture(task.output)
    if not source.strip():
        raise InputError("attention: the sentence is empty; give one")
    translator = load_translator(task.run, task.languages, task.runtime, shortlist=task.shortlist)
    options = search_options(task.search, translator.bundle.config.decode)
    maps = attention_of(translator, source, target=target, options=options)
    write_attention(maps, task.output, choice=choice)
    return maps


def attention_of(
    translator: "Translator",
    source: str,
    *,
    target: str | None = None,
    options: "SearchOptions | None" = None,
) -> "AttentionMaps":
    """Record the attention of a loaded model for one sentence, and its translation or a given one.

    >>> maps = attention_of(translator, "The house is small.")
    >>> maps.target
    'Das Haus ist klein.'

    Raises:
        InputError: no sentence, or a text that is too long.
    """
    from heedful.analysis.attention_maps import attention_maps
    from heedful.decoding.options import SearchOptions
    from heedful.decoding.texts import check_unsplit
    from heedful.text import SpecialTokens

    bundle = translator.bundle
    special_tokens = SpecialTokens.of(bundle.config, bundle.tokenizers)
    options = options or SearchOptions.from_config(bundle.config.decode)
    limit = options.source_limit(bundle.config)
    check_unsplit("attention: TEXT", special_tokens.source(bundle.tokenizers.src.encode(source)), limit)
    if target is not None:
        written = [*special_tokens.tgt_prefix, *bundle.tokenizers.tgt.encode(target)]
        check_unsplit("attention: --target", written, limit)
        return attention_maps(bundle, source, written, backend=translator.generator.backend)
    [translation] = translator.translations([source], options=options)
    if not translation.hypotheses:
        raise InputError("attention: the sentence is empty; give one")
    ids = translation.hypotheses[0].ids
    return attention_maps(bundle, source, ids, backend=translator.generator.backend)


def write_attention(maps: "AttentionMaps", output: Path, *, choice: "MapChoice | None" = None) -> None:
    """Write maps in the format of the file's suffix.

    Args:
        maps: of a sentence.
        output: `.png` or `.svg` for an image of the chosen maps, `.html` or `.json` for all maps.
        choice: the maps of the image, and the one that a page shows first; None: the last layer's
            cross-attention.
    """
    from heedful.analysis.attention_maps import LAST_CROSS, write_attention_json
    from heedful.analysis.attention_pictures import draw_attention, write_attention_page

    choice = choice or LAST_CROSS
    match output.suffix.lower():
        case ".html":
            write_attention_page(maps, output, choice=choice)
        case ".json":
            maps.select(choice)  # a layer that does not exist is an error in every format
            write_attention_json(maps, output)
        case _:
            draw_attention(maps, output, choice=choice)


def command(task: Attention) -> None:
    """Write the maps, and print the translation."""
    maps = attention(task)
    print(maps.target)
    print(f"wrote {task.output}", file=sys.stderr)
