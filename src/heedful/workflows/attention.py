"""Write the attention maps of a model for one sentence."""

from pathlib import Path

from heedful.analysis.attention_maps import (
    LAST_CROSS,
    AttentionMaps,
    MapChoice,
    attention_maps,
    write_attention_json,
)
from heedful.analysis.attention_pictures import draw_attention, write_attention_page
from heedful.analysis.plotting import FORMATS as PICTURES
from heedful.analysis.plotting import check_picture
from heedful.decoding.inputs import check_unsplit
from heedful.decoding.translator import Translator
from heedful.errors import InputError
from heedful.settings.options import Runtime, SearchRequest
from heedful.text import SpecialTokens
from heedful.workflows.loading import load_translator, search_options

FORMATS = (*PICTURES, ".html", ".json")


def attention(
    run: Path,
    source: str,
    *,
    output: Path,
    target: str | None = None,
    choice: MapChoice = LAST_CROSS,
    request: SearchRequest,
    runtime: Runtime,
) -> AttentionMaps:
    """Translate a sentence, or use a reference translation, and write the attention maps to a file.

    Args:
        run: a run directory, a bundle, or the id of one on the hub.
        source: one sentence.
        output: `.png` or `.svg` for an image of the chosen maps, `.html` or `.json` for all maps.
        target: the translation to explain; None: the model's own.
        choice: the maps of the image, and the one that a page shows first.
        request: overrides of the search, and the languages of a multilingual model.
        runtime: how to compute.

    Raises:
        BundleError: there is no usable bundle.
        InputError: no sentence, an unknown format, a layer or head that does not exist, or invalid settings.
        MissingExtraError: an image needs matplotlib, which is not installed.
    """
    if output.suffix.lower() not in FORMATS:
        raise InputError(f"{output}: unknown kind of file; end the name in {', '.join(FORMATS)}")
    if output.suffix.lower() in PICTURES:
        check_picture(output)
    if not source.strip():
        raise InputError("attention: the sentence is empty; give one")
    translator = load_translator(run, request, runtime)
    maps = attention_of(translator, source, target=target, request=request)
    write_attention(maps, output, choice=choice)
    return maps


def attention_of(
    translator: Translator, source: str, *, target: str | None = None, request: SearchRequest | None = None
) -> AttentionMaps:
    """Record the attention of a loaded model for one sentence; see `attention`."""
    bundle = translator.bundle
    framing = SpecialTokens.of(bundle.config, bundle.tokenizers)
    options = search_options(request or SearchRequest(), bundle.config.decode)
    limit = options.source_limit(bundle.config)
    check_unsplit("attention: TEXT", framing.source(bundle.tokenizers.src.encode(source)), limit)
    if target is not None:
        written = [*framing.tgt_prefix, *bundle.tokenizers.tgt.encode(target)]
        check_unsplit("attention: --target", written, limit)
        return attention_maps(bundle, source, written)
    [translation] = translator.translations([source], options=options)
    if not translation.hypotheses:
        raise InputError("attention: the sentence is empty; give one")
    return attention_maps(bundle, source, translation.hypotheses[0].ids)


def write_attention(maps: AttentionMaps, output: Path, *, choice: MapChoice = LAST_CROSS) -> None:
    """Write maps in the format of the file's suffix."""
    match output.suffix.lower():
        case ".html":
            write_attention_page(maps, output, choice=choice)
        case ".json":
            maps.select(choice)  # a layer that does not exist is an error in every format
            write_attention_json(maps, output)
        case _:
            draw_attention(maps, output, choice=choice)
