"""`heedful export`: export a model for another system."""

from pathlib import Path
from typing import Annotated

import typer

from heedful.cli import options as opt
from heedful.settings.options import Languages


def export(
    bundle: opt.Run,
    to: Annotated[str, typer.Option(metavar="ctranslate2|marian|onnx", help="The system.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="The directory to create.")],
    quantization: Annotated[
        str | None,
        typer.Option(
            metavar="TYPE",
            help="Of the weights, for ctranslate2: int8, int8_float32, int8_float16, int8_bfloat16, int16, "
            "float16, bfloat16. [default: float32]",
        ),
    ] = None,
    languages: Languages = Languages(),
) -> None:
    """Export a model for another system.

    ctranslate2: a directory for ctranslate2.Translator. marian: one for transformers' MarianMTModel and
    MarianTokenizer. onnx: an encoder and a decoder step for ONNX Runtime. The README.md in it shows its use;
    models that the system does not support are refused before anything is written.
    """
    from heedful.workflows.export import ExportTask
    from heedful.workflows.export import export as run_export

    run_export(
        ExportTask(
            bundle=bundle,
            target=to,
            output=output,
            quantization=quantization,
            src_lang=languages.src_lang,
            tgt_lang=languages.tgt_lang,
        )
    )
    print(output)
