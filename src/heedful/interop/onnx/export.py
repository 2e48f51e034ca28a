"""Export a bundle to ONNX: two graphs, tokenizer files, settings, and a README."""

import logging
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from heedful.bundle import CARD_FILE, Bundle
from heedful.errors import MissingExtraError, install_hint
from heedful.interop.new_directory import new_directory
from heedful.interop.onnx.graphs import DecoderStepGraph, EncoderGraph, exportable
from heedful.interop.onnx.readme import readme
from heedful.interop.onnx.settings import ENCODER_FILE, SETTINGS_FILE, STEP_FILE, settings_of
from heedful.model import Transformer

if TYPE_CHECKING:
    from torch.onnx import ONNXProgram

OPSET = 18  # the native one of torch's exporter; others need a conversion
_CHATTY = ("torch.onnx", "torch.export", "onnxscript", "onnx_ir")


def export_onnx(bundle: Bundle, output: Path) -> None:
    """Write a model as ONNX files for `OnnxTranslator`, or any program with ONNX Runtime.

        encoder.onnx        src (B, S) -> source_mask (B, S), and for each layer i of the decoder
                            memory_keys_i (B, H, S, d_k) and memory_values_i (B, H, S, d_v)
        decoder_step.onnx   ids (B,), the encoder's outputs, past_keys_i (B, H, P, d_k) and past_values_i
                            (B, H, P, d_v) -> log_probs (B, V), and keys_i and values_i of P + 1 positions
        onnx_model.json     special ids and the default search: `OnnxSettings`
        README.md           how to use them; the tokenizer files are in the same directory

    B, S and P are dynamic; P is 0 at the first step. Weights are float32. Those of a graph above 2 GB, the
    limit of the format, are in a separate file.

    Args:
        bundle: the model; it is not changed.
        output: the directory to create, atomically.

    Raises:
        RunError: the output exists.
        InteropError: a part of the model cannot be exported, or the files cannot be written.
        MissingExtraError: onnx or onnxscript is not installed.
    """
    _check_libraries()
    model = exportable(bundle.model)
    settings = settings_of(bundle)
    with new_directory(output) as directory:
        encoder, step = export_graphs(model)
        encoder.save(directory / ENCODER_FILE)
        step.save(directory / STEP_FILE)
        bundle.tokenizers.save(directory)
        (directory / SETTINGS_FILE).write_text(settings.model_dump_json(indent=2) + "\n", encoding="utf-8")
        (directory / CARD_FILE).write_text(readme(bundle), encoding="utf-8")


def _check_libraries() -> None:
    try:
        for name in ("onnx", "onnxscript"):
            import_module(name)
    except ImportError:
        raise MissingExtraError(
            f"exporting to ONNX needs onnx and onnxscript: {install_hint('interop')}"
        ) from None


def export_graphs(model: Transformer) -> tuple["ONNXProgram", "ONNXProgram"]:
    """Trace encoder and decoder step of an `exportable` model; the example sizes are arbitrary."""
    encoder, step = EncoderGraph(model), DecoderStepGraph(model)
    src = torch.zeros(2, 3, dtype=torch.int64)
    with torch.no_grad():
        source_mask, *memories = encoder(src)
    pasts = [memory.new_zeros(*memory.shape[:2], 5, memory.shape[3]) for memory in memories]
    source, memory, past = {0: "batch", 1: "source"}, {0: "batch", 2: "source"}, {0: "batch", 2: "past"}
    memory_names, past_names, present_names = (
        [f"{prefix}{part}_{i}" for i in range(len(model.decoder.layers)) for part in ("keys", "values")]
        for prefix in ("memory_", "past_", "")
    )
    encoder_program = _trace(
        encoder, (src,), (source,), input_names=["src"], output_names=["source_mask", *memory_names]
    )
    step_program = _trace(
        step,
        (src[:, 0], source_mask, memories, pasts),
        ({0: "batch"}, source, [memory] * len(memories), [past] * len(pasts)),
        input_names=["ids", "source_mask", *memory_names, *past_names],
        output_names=["log_probs", *present_names],
    )
    return encoder_program, step_program


def _trace(
    graph: EncoderGraph | DecoderStepGraph,
    examples: tuple[Any, ...],
    dynamic_shapes: tuple[Any, ...],
    *,
    input_names: Sequence[str],
    output_names: Sequence[str],
) -> "ONNXProgram":
    with _quiet():
        program = torch.onnx.export(
            graph.eval(),
            examples,
            dynamo=True,
            dynamic_shapes=dynamic_shapes,
            input_names=input_names,
            output_names=output_names,
            opset_version=OPSET,
            verbose=False,
        )
    assert program is not None
    for node in program.model.graph:
        node.metadata_props.clear()  # lines and paths of the Python source
    return program


@contextmanager
def _quiet() -> Iterator[None]:
    """Suppress the exporter's logs and warnings, which are for its developers."""
    loggers = [logging.getLogger(name) for name in _CHATTY]
    levels = [logger.level for logger in loggers]
    try:
        for logger in loggers:
            logger.setLevel(logging.ERROR)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)
