"""The layouts that can be imported, by name: files of weights, and directories of models."""

import hashlib
from collections.abc import Callable, Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

import platformdirs
from torch import Tensor

from heedful.errors import ConfigError, InteropError, suggestion
from heedful.interop import fairseq, marian_native, opennmt, torch_transformer, worked_examples
from heedful.interop.conversion import Checkpoint, Conversion, Imported
from heedful.interop.ctranslate2 import argos
from heedful.interop.ctranslate2.reading import LAYOUT as CTRANSLATE2
from heedful.interop.ctranslate2.reading import MODEL_FILE, read_ctranslate2
from heedful.interop.huggingface.fairseq_families import BART, M2M100, MBART, MVP, PLBART
from heedful.interop.huggingface.other_families import BLENDERBOT, BLENDERBOT_SMALL, FSMT, PEGASUS
from heedful.interop.huggingface.pretrained import (
    CONFIG_FILE,
    ImportedBundle,
    ImportOptions,
    read_pretrained,
)
from heedful.interop.huggingface.reading import Family
from heedful.interop.huggingface.t5 import MT5, T5, UMT5
from heedful.interop.marian import MARIAN
from heedful.interop.marian_files import is_marian
from heedful.interop.tables import Table
from heedful.interop.vocabulary import read_settings
from heedful.settings.parsing import shown
from heedful.settings.plugins import part
from heedful.storage.bundle import save_weights
from heedful.storage.description import FORMAT_VERSION, file_sha256

LAYOUTS: dict[str, Table | Callable[[Conversion], Imported]] = {
    "abhishek-thread": worked_examples.abhishek_thread,
    "nptel-lecture": worked_examples.NPTEL_LECTURE,
    "kaggle-notebook": worked_examples.kaggle_notebook,
    "adeveloperdiary": worked_examples.adeveloperdiary,
    "jadore": worked_examples.jadore,
    "jadore-prj": worked_examples.JADORE_PRJ,
    "torch": torch_transformer.read,
    "annotated": worked_examples.ANNOTATED,
    fairseq.LAYOUT: fairseq.read,
}
# Directories of transformers, by "model_type" of config.json.
FAMILIES: dict[str, Family] = {
    family.model_type: family
    for family in (
        *(MARIAN, M2M100, BART, MBART, MVP, PLBART, FSMT, PEGASUS, BLENDERBOT, BLENDERBOT_SMALL),
        *(T5, MT5, UMT5),
    )
}
PRETRAINED = tuple(dict.fromkeys(family.layout for family in FAMILIES.values()))
OTHERS: dict[str, Callable[[Path, ImportOptions], ImportedBundle]] = {
    CTRANSLATE2: read_ctranslate2,
    argos.LAYOUT: argos.read_argos,
    marian_native.LAYOUT: marian_native.read_marian_native,
    opennmt.LAYOUT: opennmt.read_opennmt,
    opennmt.EOLE: opennmt.read_eole,
}
DIRECTORY_LAYOUTS = (*PRETRAINED, *OTHERS)


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
        layout: a key of `LAYOUTS`, or a table or function of a plugin, `plugin:name`.
        tensors: the tensors by the checkpoint's names.
        settings: settings that cannot be inferred, by key of `ModelConfig`, for example `{"num_heads": 8}`.
        origin: the name of the file in messages.
        beside: the other contents of the checkpoint, for example the arguments of the training script.

    Raises:
        InteropError: no such layout, or a tensor is unknown, missing or of a wrong shape.
        ConfigError: the settings are invalid.
    """
    check_layout(layout)
    conversion = Conversion(
        tensors, layout=layout, origin=Path(origin), settings=settings or {}, beside=beside
    )
    read = LAYOUTS.get(layout) or part(layout, "layout")
    return read.read(conversion) if isinstance(read, Table) else read(conversion)


def read_directory(layout: str, path: Path, options: ImportOptions) -> ImportedBundle:
    """Convert a directory or package to a configuration, weights and tokenizers.

    Args:
        layout: a member of `DIRECTORY_LAYOUTS`.
        path: the directory or package.
        options: the user's settings.

    Raises:
        InteropError: no such layout, a file is missing, or it has settings that are not supported.
        TokenizerError: the tokenizer files are not usable.
        ConfigError: the settings are invalid.
    """
    check_layout(layout)
    if layout in OTHERS:
        return OTHERS[layout](path, options)
    directory = read_pretrained(path, options=options)
    family = FAMILIES.get(str(directory.config.get("model_type")))
    if family is None or family.layout != layout:
        types = [f"{name!r}" for name, each in FAMILIES.items() if each.layout == layout]
        found = shown(directory.config.get("model_type"))
        directory.refuse(f"model_type is {found}, not {' or '.join(types)}; give another --layout")
    return family.read(directory)


def cached_bundle(path: Path) -> Path:
    """Return the bundle in the user's cache that a directory or package was imported to.

    It is imported the first time, once for its contents and this version: a bundle in a temporary directory
    would be made anew at each start, by each process.

    Raises:
        InteropError: it cannot be imported.
    """
    digest = hashlib.sha256(f"{version('heedful')} {FORMAT_VERSION}".encode())
    files = [path] if path.is_file() else [*path.iterdir(), *path.glob("model/*")]
    for file in sorted(each for each in files if each.is_file()):
        digest.update(f"{file.relative_to(path)} {file_sha256(file)} ".encode(errors="backslashreplace"))
    output = platformdirs.user_cache_path("heedful") / "imported" / digest.hexdigest()[:32]
    layout = None if output.exists() else recognise(path)
    if layout is not None:
        imported = read_directory(layout, path, ImportOptions(settings={}))
        card = f"# {path.name}\n\nImported from `{path}` as layout `{layout}`, for use.\n"
        save_weights(imported.weights, imported.config, imported.tokenizers, output, card=card)
    return output


def recognise(path: Path) -> str | None:
    """Return the layout of a directory or package; None for a file of weights, whose tensors tell.

    Raises:
        InteropError: no layout fits, or Marian's and CTranslate2's do.
    """
    if argos.is_package(path):
        return argos.LAYOUT
    if is_marian(path):
        if path.is_dir() and _has_ctranslate2(path):
            raise InteropError(
                f"{path}: the layouts {marian_native.LAYOUT} and {CTRANSLATE2} fit; choose one by --layout"
            )
        return marian_native.LAYOUT
    if path.is_file():
        return opennmt.LAYOUT if opennmt.is_opennmt(path) else None
    if (path / MODEL_FILE).is_file():
        return CTRANSLATE2
    if opennmt.is_eole(path):
        return opennmt.EOLE
    if not (path / CONFIG_FILE).is_file():
        raise InteropError(
            f"{path}: no such model: there is neither {MODEL_FILE} of CTranslate2, nor {CONFIG_FILE} of "
            "transformers, nor metadata.json of Argos, nor a .npz or .bin of Marian"
        )
    model_type = read_settings(path / CONFIG_FILE).get("model_type")
    if not isinstance(model_type, str) or model_type not in FAMILIES:
        raise InteropError(
            f"{path / CONFIG_FILE}: model_type is {shown(model_type)}; there are {', '.join(FAMILIES)}"
        )
    return FAMILIES[model_type].layout


def _has_ctranslate2(directory: Path) -> bool:
    """Return whether `model.bin` is CTranslate2's, by its version: that of Marian's binary files is 1."""
    file = directory / MODEL_FILE
    if not file.is_file():
        return False
    with file.open("rb") as opened:
        return int.from_bytes(opened.read(4), "little") > 1


def recognise_weights(path: Path, checkpoint: Checkpoint, settings: Mapping[str, Any]) -> str:
    """Return the layout of a file of weights.

    Args:
        path: the file.
        checkpoint: its contents.
        settings: the user's settings.

    Raises:
        InteropError: no layout fits, or several do.
    """
    fitting = [
        layout
        for layout in LAYOUTS
        if _fits(layout, checkpoint, settings)
        or _fits(layout, checkpoint, {"num_heads": 1, **settings})  # which the weights may not say
    ]
    if len(fitting) == 1:
        return fitting[0]
    problem = f"the layouts {' and '.join(fitting)} fit; choose one by --layout"
    none = f"no layout fits; --layout NAME says why, with one of {', '.join(LAYOUTS)}"
    raise InteropError(f"{path}: {problem if fitting else none}")


def _fits(layout: str, checkpoint: Checkpoint, settings: Mapping[str, Any]) -> bool:
    try:
        read_layout(layout, checkpoint.tensors, settings=settings, beside=checkpoint.beside)
    except (InteropError, ConfigError):
        return False
    return True


def check_layout(layout: str) -> None:
    """Raise an InteropError with a suggestion if there is no such layout."""
    if ":" not in layout and layout not in (*LAYOUTS, *DIRECTORY_LAYOUTS):
        known = [*LAYOUTS, *DIRECTORY_LAYOUTS]
        raise InteropError(f"layout {layout!r} does not exist{suggestion(layout, known)}")
