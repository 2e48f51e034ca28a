"""`heedful export`: export a model for another system."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

from heedful.settings.options import OUTPUT, Languages, Option, Run


@dataclass(frozen=True, kw_only=True)
class Export:
    """Export a model for another system.

    ctranslate2: a directory for ctranslate2.Translator. marian: one for transformers' MarianMTModel and
    MarianTokenizer. t5gemma: one for its T5Gemma classes. onnx: an encoder and a decoder step for ONNX
    Runtime. The README.md in the directory shows its use. Models that the system does not support are refused
    before anything is written.

    Examples:
        heedful export runs/en-de --to ctranslate2 -o en-de-ct2
    """

    bundle: Run
    to: Annotated[str, Option("The system to export for.", metavar="ctranslate2|marian|onnx|t5gemma")]
    output: Annotated[Path, Option("The directory to create.", flags=OUTPUT)]
    quantization: Annotated[
        str | None,
        Option(
            "Type of the weights, for ctranslate2: int8, int8_float32, int8_float16, int8_bfloat16, int16, "
            "float16, bfloat16.",
            metavar="TYPE",
            default="float32",
        ),
    ] = None
    languages: Languages = field(default_factory=Languages)


def command(task: Export) -> None:
    """Export, and print the directory."""
    from heedful.tasks.exchange import export_model

    made = export_model(
        task.bundle,
        to=task.to,
        output=task.output,
        quantization=task.quantization,
        src_lang=task.languages.src_lang,
        tgt_lang=task.languages.tgt_lang,
    )
    print(made)
