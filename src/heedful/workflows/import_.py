"""Import models of other implementations as bundles."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from heedful.errors import ConfigError, RunError
from heedful.interop import fairseq
from heedful.interop.conversion import read_checkpoint
from heedful.interop.fairseq import read_dictionaries
from heedful.interop.huggingface.pretrained import ImportOptions
from heedful.interop.layouts import (
    DIRECTORY_LAYOUTS,
    check_layout,
    read_directory,
    read_layout,
)
from heedful.interop.vocabulary import fit_vocabularies, read_tokenizers
from heedful.model.transformer import Transformer
from heedful.settings.loading import validate
from heedful.settings.run import Config
from heedful.storage.bundle import Bundle
from heedful.storage.model_files import assign_weights, meta_model, save_bundle, save_model
from heedful.text import TokenizerPair
from heedful.workflows.card import front_matter, model_title
from heedful.workflows.loading import hub_repo, local_source


@dataclass(frozen=True, kw_only=True)
class ImportTask:
    """An import: the source, its layout and the output.

    Attributes:
        source: a file written by `torch.save`, or safetensors; for the layouts of
            `heedful.interop.layouts.DIRECTORY_LAYOUTS` a directory saved by transformers, or the id of one on
            the hub.
        layout: the name of the system that wrote it.
        output: the bundle to write.
        overrides: settings, as returned by `parse_override`.
        src_vocab: for a file, source tokens by id, one a line or JSON; None, as tgt_vocab, for a bundle
            without tokenizer.
        tgt_vocab: the same for the target.
        src_lang: for a directory of a multilingual model, the source language.
        tgt_lang: the language to translate into.
    """

    source: Path
    layout: str
    output: Path
    overrides: Sequence[tuple[str, Any]] = ()
    src_vocab: Path | None = None
    tgt_vocab: Path | None = None
    src_lang: str | None = None
    tgt_lang: str | None = None


@dataclass(frozen=True)
class _Imported:
    config: Config
    weights: dict[str, Tensor]
    tokenizers: TokenizerPair | None


def import_(task: ImportTask) -> Config:
    """Write a bundle with an imported model; return its configuration.

    Raises:
        RunError: the output exists.
        InteropError: the source cannot be read or is not of the layout, or a vocabulary has a wrong size.
        TokenizerError: the tokenizer files are not usable.
        ConfigError: the settings are invalid or incompatible.
        HubError: the hub has no such model, or cannot be reached.
        MissingExtraError: a library that the source needs is not installed.
    """
    check_layout(task.layout)
    if task.output.exists():
        raise RunError(f"{task.output}: already exists; give another --output")
    _check_options(task)
    source = local_source(task.source)
    read = _read_directory(task, source) if task.layout in DIRECTORY_LAYOUTS else _read_file(task, source)
    model = meta_model(read.config.model)
    assign_weights(model, read.weights)  # without copying them
    card = _card(task, read.config, model, has_tokenizer=read.tokenizers is not None)
    if read.tokenizers is None:
        save_model(model, read.config, task.output, card=card)
    else:
        save_bundle(Bundle(read.config, read.tokenizers, model), task.output, card=card)
    return read.config


def _check_options(task: ImportTask) -> None:
    if task.layout in DIRECTORY_LAYOUTS and (task.src_vocab or task.tgt_vocab):
        raise ConfigError(
            f"--src-vocab, --tgt-vocab: layout {task.layout!r} has its own tokenizers; leave them out"
        )
    if task.layout not in DIRECTORY_LAYOUTS and (task.src_lang or task.tgt_lang):
        raise ConfigError(f"--src-lang, --tgt-lang: layout {task.layout!r} has no languages; leave them out")
    if (task.src_vocab is None) != (task.tgt_vocab is None):
        raise ConfigError("--src-vocab and --tgt-vocab must both be set")


def _read_directory(task: ImportTask, source: Path) -> _Imported:
    settings = _sections(task.overrides)
    options = ImportOptions(
        settings=settings.pop("model", {}), src_lang=task.src_lang, tgt_lang=task.tgt_lang
    )
    imported = read_directory(task.layout, source, options)
    read = imported.config.model_dump(exclude_unset=True)
    config = validate(read | {name: read.get(name, {}) | values for name, values in settings.items()})
    return _Imported(config, imported.weights, imported.tokenizers)


def _read_file(task: ImportTask, source: Path) -> _Imported:
    vocabularies = (task.src_vocab, task.tgt_vocab) if task.src_vocab and task.tgt_vocab else None
    of_fairseq = task.layout == fairseq.LAYOUT  # whose vocabularies have another format
    tokenizers = read_tokenizers(*vocabularies) if vocabularies and not of_fairseq else None
    settings = _sections(task.overrides)
    model_settings = settings.pop("model", {}) | _padding(tokenizers)
    checkpoint = read_checkpoint(source)
    imported = read_layout(
        task.layout, checkpoint.tensors, settings=model_settings, origin=source, beside=checkpoint.beside
    )
    if vocabularies and of_fairseq:
        tokenizers = read_dictionaries(*vocabularies, imported.config)
    if tokenizers is not None:
        imported = fit_vocabularies(imported, tokenizers)
        settings["tokenizer"] = {"kind": "word", "joint": tokenizers.joint} | settings.get("tokenizer", {})
    config = validate(settings | {"model": imported.config.model_dump()})
    return _Imported(config, imported.weights, tokenizers)


def _sections(overrides: Sequence[tuple[str, Any]]) -> dict[str, dict[str, Any]]:
    sections: dict[str, dict[str, Any]] = {}
    for key, value in overrides:
        section, _, name = key.partition(".")
        sections.setdefault(section, {})[name] = value
    return sections


def _padding(tokenizers: TokenizerPair | None) -> dict[str, int]:
    if tokenizers is None:
        return {}
    return {"src_pad_id": tokenizers.src.pad_id, "tgt_pad_id": tokenizers.tgt.pad_id}


def _card(task: ImportTask, config: Config, model: Transformer, *, has_tokenizer: bool) -> str:
    title = model_title(config)
    use = "`heedful translate` takes it."
    if task.layout in DIRECTORY_LAYOUTS and config.decode.max_length is not None:
        use += (
            f" Its outputs have at most {config.decode.max_length:,} tokens; "
            "`heedful import --set decode.max_length=N` makes a bundle with another limit."
        )
    if not has_tokenizer:
        use = "It has no tokenizer: `heedful.load_model(...)` gives the model, which takes and gives ids."
    elif task.src_vocab is not None:
        use = f"Its tokenizers split at spaces; {use}"
    base = hub_repo(task.source)
    return front_matter(config, title=title, base_model=base) + (
        f"# {title}\n\n{model.num_parameters:,} parameters, imported from `{base or task.source.name}` as "
        f"layout `{task.layout}`. Not scored.\n\n{use}\n"
    )
