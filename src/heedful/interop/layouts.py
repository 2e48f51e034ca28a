"""The layouts that can be imported, by name: files of weights, and directories of transformers."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from heedful.errors import InteropError, suggestion
from heedful.interop import fairseq, marian, torch_transformer, worked_examples
from heedful.interop.conversion import Conversion, Imported
from heedful.interop.huggingface import bart, m2m100
from heedful.interop.huggingface.pretrained import (
    ImportedBundle,
    ImportOptions,
    PretrainedDirectory,
    read_pretrained,
)

LAYOUTS: dict[str, Callable[[Conversion], Imported]] = {
    "abhishek-thread": worked_examples.read_abhishek_thread,
    "nptel-lecture": worked_examples.read_nptel_lecture,
    "kaggle-notebook": worked_examples.read_kaggle_notebook,
    "adeveloperdiary": worked_examples.read_adeveloperdiary,
    "jadore": worked_examples.read_jadore,
    "jadore-prj": worked_examples.read_jadore_prj,
    "torch": torch_transformer.read,
    "annotated": worked_examples.read_annotated,
    fairseq.LAYOUT: fairseq.read,
}
DIRECTORY_LAYOUTS: dict[str, Callable[[PretrainedDirectory, ImportOptions], ImportedBundle]] = {
    marian.LAYOUT: marian.read_marian,
    m2m100.LAYOUT: m2m100.read_m2m100,
    bart.LAYOUT: bart.read_bart,
}


def read_layout(
    layout: str,
    tensors: Mapping[str, Tensor],
    *,
    settings: Mapping[str, Any] | None = None,
    origin: Path | str = "weights",
    beside: Mapping[str, Any] | None = None,
) -> Imported:
    """Convert the tensors of a checkpoint to a configuration and weights with the same outputs.

    Args:
        layout: one of `LAYOUTS`.
        tensors: by the checkpoint's names; they are not changed.
        settings: that cannot be inferred, for example `{"num_heads": 8}`; the keys of `ModelConfig`.
        origin: the file, for error messages.
        beside: the other contents of the checkpoint, for example the arguments of the training script.

    Raises:
        InteropError: no such layout, or a tensor is unknown, missing or of a wrong shape.
        ConfigError: the settings are invalid.
    """
    check_layout(layout)
    conversion = Conversion(
        tensors, layout=layout, origin=Path(origin), settings=settings or {}, beside=beside
    )
    return LAYOUTS[layout](conversion)


def read_directory(layout: str, path: Path, options: ImportOptions) -> ImportedBundle:
    """Convert a directory saved by transformers to a configuration, weights and tokenizers.

    Args:
        layout: one of `DIRECTORY_LAYOUTS`.
        path: the directory.
        options: the user's settings.

    Raises:
        InteropError: no such layout, a file is missing, or it has settings that are not supported.
        TokenizerError: the tokenizer files are not usable.
        ConfigError: the settings are invalid.
    """
    check_layout(layout)
    return DIRECTORY_LAYOUTS[layout](read_pretrained(path), options)


def check_layout(layout: str) -> None:
    """Raise an InteropError with a suggestion if there is no such layout."""
    if layout not in LAYOUTS.keys() | DIRECTORY_LAYOUTS.keys():
        known = [*LAYOUTS, *DIRECTORY_LAYOUTS]
        raise InteropError(f"layout {layout!r} does not exist{suggestion(layout, known)}")
