"""`heedful export`: export a model for another system."""

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated

from heedful.errors import InteropError, RunError, suggestion
from heedful.settings.options import OUTPUT, Languages, Option, Run

TARGETS = ("ctranslate2", "marian", "onnx")


@dataclass(frozen=True, kw_only=True)
class Export:
    """Export a model for another system.

    ctranslate2: a directory for ctranslate2.Translator. marian: one for transformers' MarianMTModel and
    MarianTokenizer. onnx: an encoder and a decoder step for ONNX Runtime. The README.md in the directory
    shows its use. Models that the system does not support are refused before anything is written.
    """

    bundle: Run
    to: Annotated[str, Option("The system to export for.", metavar="|".join(TARGETS))]
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


def export(task: Export) -> None:
    """Write a directory for another system, atomically.

    Raises:
        RunError: the output exists.
        InteropError: there is no such target, or it does not support the model.
        BundleError: there is no bundle, it is damaged, or it has no tokenizer.
        InputError: the model does not have that language.
        MissingExtraError: a library that the target needs is not installed.
    """
    from heedful.runs.loading import local_bundle
    from heedful.storage.bundle import load_bundle
    from heedful.text.pair import choose_languages

    if task.to not in TARGETS:
        raise InteropError(f"--to {task.to!r} does not exist{suggestion(task.to, TARGETS)}")
    if task.quantization is not None and task.to != "ctranslate2":
        raise InteropError(f"--quantization is for --to ctranslate2, not for {task.to}; leave it out")
    if task.output.exists():
        raise RunError(f"{task.output}: already exists; give another --output")
    bundle = load_bundle(local_bundle(task.bundle))
    config = choose_languages(
        bundle.config,
        bundle.tokenizers,
        src_lang=task.languages.src_lang,
        tgt_lang=task.languages.tgt_lang,
    )
    bundle = replace(bundle, config=config)
    if task.to == "ctranslate2":
        from heedful.interop.ctranslate2.export import export_ctranslate2

        export_ctranslate2(bundle, task.output, quantization=task.quantization)
    elif task.to == "marian":
        from heedful.interop.marian import export_marian

        export_marian(bundle, task.output)
    else:
        from heedful.interop.onnx.export import export_onnx

        export_onnx(bundle, task.output)


def command(task: Export) -> None:
    """Export, and print the directory."""
    export(task)
    print(task.output)
