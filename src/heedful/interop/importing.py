"""Read a model of another implementation: a directory, a package or a file of weights."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from heedful.errors import ConfigError
from heedful.interop import fairseq, fairseq_dictionaries
from heedful.interop.conversion import read_checkpoint
from heedful.interop.huggingface.pretrained import ImportedBundle, ImportOptions
from heedful.interop.layouts import (
    DIRECTORY_LAYOUTS,
    PRETRAINED,
    read_directory,
    read_layout,
    recognise,
    recognise_weights,
)
from heedful.interop.marian_native import LAYOUT as MARIAN
from heedful.interop.opennmt import LAYOUT as OPENNMT
from heedful.interop.vocabulary import fit_vocabularies, read_tokenizers
from heedful.settings.run import Config


def read_model(
    source: Path,
    options: ImportOptions,
    *,
    layout: str | None = None,
    settings: Mapping[str, Mapping[str, Any]],
    lang_dict: Path | None = None,
) -> tuple[ImportedBundle, str]:
    """Return a model as a bundle has it, and the layout of its files.

    Args:
        source: a directory, a package or a file.
        options: the user's settings of the model.
        layout: that of its files; None: recognised.
        settings: of the other sections.
        lang_dict: the languages of a multilingual model of fairseq, one per line.

    Raises:
        InteropError: the source cannot be read or is not of the layout, or a vocabulary has a wrong size.
        TokenizerError: the tokenizer files are not usable.
        ConfigError: the settings or options are invalid or incompatible.
    """
    layout = layout or recognise(source)
    if layout not in DIRECTORY_LAYOUTS:
        return _read_file(layout, source, options, settings, lang_dict)
    check_import_options(layout, options, lang_dict)
    imported = read_directory(layout, source, options)
    read = imported.config.model_dump(exclude_unset=True)
    sections = {name: read.get(name, {}) | values for name, values in settings.items()}
    return replace(imported, config=_config(read | sections)), layout


def check_import_options(layout: str, options: ImportOptions, lang_dict: Path | None) -> None:
    """Check that a layout has what the options are about.

    Raises:
        ConfigError: it has not.
    """
    is_directory = layout in DIRECTORY_LAYOUTS
    languages = options.src_lang or options.tgt_lang
    has_none: list[tuple[str, str, object]] = [
        ("--src-vocab, --tgt-vocab", "has its own tokenizers; leave them out",
         is_directory and layout != MARIAN and options.vocabularies),
        ("--ignore", "has no config.json; leave it out",
         (not is_directory or layout in (MARIAN, OPENNMT)) and options.ignored),
        ("--task", "has no tasks; leave it out", layout not in PRETRAINED and options.task),
        ("--base", "has no adapters; leave it out", layout not in PRETRAINED and options.adapter),
        ("--lang-dict", "has no such file; leave it out", layout != fairseq.LAYOUT and lang_dict),
        ("--src-lang, --tgt-lang", "has no languages; leave them out",
         not is_directory and layout != fairseq.LAYOUT and languages),
    ]  # fmt: skip
    for option, problem, is_given in has_none:
        if is_given:
            raise ConfigError(f"{option}: layout {layout!r} {problem}")


def _read_file(
    layout: str | None,
    source: Path,
    options: ImportOptions,
    settings: Mapping[str, Mapping[str, Any]],
    lang_dict: Path | None,
) -> tuple[ImportedBundle, str]:
    checkpoint = read_checkpoint(source)
    layout = layout or recognise_weights(source, checkpoint, options.settings)
    check_import_options(layout, options, lang_dict)
    sections = {name: dict(values) for name, values in settings.items()}
    tokenizers, model = None, dict(options.settings)
    of_fairseq = layout == fairseq.LAYOUT  # whose vocabularies have another format
    if options.vocabularies and not of_fairseq:
        tokenizers = read_tokenizers(*options.vocabularies)
        model |= {"src_pad_id": tokenizers.src.pad_id, "tgt_pad_id": tokenizers.tgt.pad_id}
    tensors, beside = checkpoint.tensors, checkpoint.beside
    imported = read_layout(layout, tensors, settings=model, origin=source, beside=beside)
    if options.vocabularies and of_fairseq:
        languages = fairseq_dictionaries.Languages.of(checkpoint.beside, lang_dict)
        tokenizers = fairseq_dictionaries.read_dictionaries(
            *options.vocabularies, imported.config, languages=languages
        )
        read = languages.settings(options.src_lang, options.tgt_lang, tokenizers)
        imported = replace(imported, config=imported.config.replace(**read.pop("model", {})))
        sections = {name: read.get(name, {}) | sections.get(name, {}) for name in {**read, **sections}}
    elif lang_dict or options.src_lang or options.tgt_lang:
        raise ConfigError("--lang-dict, --src-lang, --tgt-lang: give --src-vocab and --tgt-vocab too")
    if tokenizers is not None:
        imported = fit_vocabularies(imported, tokenizers)
        sections["tokenizer"] = {"kind": "word", "joint": tokenizers.joint} | sections.get("tokenizer", {})
    config = _config(sections | {"model": imported.config.model_dump(exclude_unset=True)})
    return ImportedBundle(config, imported.weights, tokenizers), layout


def _config(sections: Mapping[str, Any]) -> Config:
    """Return the configuration of an imported model, without label smoothing, which no format states."""
    return Config(**{**sections, "train": {"label_smoothing": 0.0} | sections.get("train", {})})
