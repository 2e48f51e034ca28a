"""Export a bundle to the format of another system."""

from dataclasses import dataclass, replace
from pathlib import Path

from heedful.errors import InteropError, RunError, suggestion
from heedful.storage.bundle import load_bundle
from heedful.text.pair import choose_languages
from heedful.workflows.loading import local_bundle

TARGETS = ("ctranslate2", "marian", "onnx")


@dataclass(frozen=True, kw_only=True)
class ExportTask:
    """An export: the model, the target and the output.

    Attributes:
        bundle: a bundle, a run, or the id of one on the hub.
        target: the system, one of `TARGETS`.
        output: the directory to create.
        quantization: the type of weights, for ctranslate2; None: float32.
        src_lang: the source language of a multilingual model; None: as in the bundle.
        tgt_lang: its target language.
    """

    bundle: Path
    target: str
    output: Path
    quantization: str | None = None
    src_lang: str | None = None
    tgt_lang: str | None = None


def export(task: ExportTask) -> None:
    """Write a directory for another system, atomically.

    Raises:
        RunError: the output exists.
        InteropError: there is no such target, or it does not support the model.
        BundleError: there is no bundle, it is damaged, or it has no tokenizer.
        InputError: the model does not have that language.
        MissingExtraError: a library that the target needs is not installed.
    """
    if task.target not in TARGETS:
        raise InteropError(f"--to {task.target!r} does not exist{suggestion(task.target, TARGETS)}")
    if task.quantization is not None and task.target != "ctranslate2":
        raise InteropError(f"--quantization is for --to ctranslate2, not for {task.target}; leave it out")
    if task.output.exists():
        raise RunError(f"{task.output}: already exists; give another --output")
    bundle = load_bundle(local_bundle(task.bundle))
    config = choose_languages(
        bundle.config, bundle.tokenizers, src_lang=task.src_lang, tgt_lang=task.tgt_lang
    )
    bundle = replace(bundle, config=config)
    if task.target == "ctranslate2":
        from heedful.interop.ctranslate2 import export_ctranslate2

        export_ctranslate2(bundle, task.output, quantization=task.quantization)
    elif task.target == "marian":
        from heedful.interop.marian import export_marian

        export_marian(bundle, task.output)
    else:
        from heedful.interop.onnx.export import export_onnx

        export_onnx(bundle, task.output)
