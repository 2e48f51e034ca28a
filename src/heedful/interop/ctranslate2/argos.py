"""Packages of Argos Translate, for LibreTranslate too: a CTranslate2 model with its tokenizer and languages.

A package, `translate-en_de.argosmodel`, is a zip archive of one directory; Argos unpacks it below
~/.local/share/argos-translate/packages. Its parts:

    metadata.json                      from_code, to_code, and a description
    model/                             the CTranslate2 model
    sentencepiece.model or bpe.model   the tokenizer; the codes of subword-nmt come after Moses' rules

Sentences are searched as by Argos: a beam of 4, length penalty 0.2, and unknown tokens are replaced.
"""

import zipfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path, PurePosixPath
from typing import Any

from heedful.errors import InteropError
from heedful.interop.containers import DAMAGED, unpacked
from heedful.interop.ctranslate2.reading import (
    MODEL_FILE,
    CTranslate2Directory,
    TextFiles,
    read_settings,
)
from heedful.interop.huggingface.pretrained import ImportedBundle, ImportOptions
from heedful.interop.vocabulary import read_bytes
from heedful.settings.parsing import decode_text, shown
from heedful.text.moses_tokenizer import read_merges

LAYOUT = "argos"
_METADATA, _MODEL = "metadata.json", "model"
_SENTENCEPIECE, _BPE = "sentencepiece.model", "bpe.model"
_BPE_VERSION = "#version: 0.2"
_SUFFIX = ".argosmodel"
_CODES = {"zt": "zh-Hant", "pb": "pt-BR"}  # codes of its own
_SEARCH: Mapping[str, Any] = {"beam_size": 4, "length_penalty": 0.2, "replace_unknown": True}


def is_package(path: Path) -> bool:
    """Return whether a path is a package, packed or unpacked; by its name also one that is damaged."""
    if path.is_dir():
        return (path / _METADATA).is_file() and (path / _MODEL / MODEL_FILE).is_file()
    if path.suffix == _SUFFIX:
        return True
    if not path.is_file() or not zipfile.is_zipfile(path):
        return False
    try:
        with zipfile.ZipFile(path) as archive:
            names = [PurePosixPath(name).parts[1:] for name in archive.namelist()]
    except DAMAGED:
        return False
    return (_METADATA,) in names and (_MODEL, MODEL_FILE) in names


def read_argos(path: Path, options: ImportOptions) -> ImportedBundle:
    """Read a package.

    Raises:
        InteropError: a file is missing or damaged, or has settings that are not supported.
        TokenizerError: the tokenizer is not usable.
        ConfigError: the settings are invalid.
    """
    if path.is_dir():
        return _read_package(path, options)
    with unpacked(path, _place) as directory:
        return _read_package(directory, options)


def _place(path: PurePosixPath) -> str | None:
    """Return the path of a member below the one directory of an archive, if it is used."""
    match path.parts[1:]:
        case (name,) if name in (_METADATA, _SENTENCEPIECE, _BPE):
            return name
        case ("model", name):
            return f"{_MODEL}/{name}"
    return None


def _read_package(name: Path, options: ImportOptions) -> ImportedBundle:
    if not (name / _METADATA).is_file():
        raise InteropError(f"{name}: there is no {_METADATA}; give a package of Argos Translate")
    metadata = read_settings(name / _METADATA)
    kind = metadata.get("type", "translate")
    if kind != "translate":
        raise InteropError(f"{name}: {_METADATA}: type={shown(kind)}; only 'translate' is supported")
    languages = {
        ours: _language(name, metadata, key) for ours, key in (("src", "from_code"), ("tgt", "to_code"))
    }
    tokenizer = _tokenizer_files(name, metadata)
    model = CTranslate2Directory(name / _MODEL, ignored=options.ignored)
    prefix = metadata.get("target_prefix")
    if prefix:
        if prefix not in model.tgt:
            raise InteropError(f"{name}: {_METADATA}: target_prefix={shown(prefix)} is not in the vocabulary")
        languages["tgt_tag"] = prefix
    return model.bundle(replace(tokenizer, search=_SEARCH, languages=languages), options)


def _tokenizer_files(directory: Path, metadata: Mapping[str, Any]) -> TextFiles:
    """Return the SentencePiece model, or the codes of subword-nmt with the languages of Moses' rules."""
    if (directory / _SENTENCEPIECE).is_file():
        return TextFiles(models=(read_bytes(directory / _SENTENCEPIECE),), underscores=True)
    if not (directory / _BPE).is_file():
        raise InteropError(f"{directory}: there is no {_SENTENCEPIECE} and no {_BPE}; copy the whole package")
    try:
        first, *lines = decode_text(read_bytes(directory / _BPE)).rstrip("\n").split("\n")
        if first.strip() != _BPE_VERSION:
            raise ValueError(f"its first line is {shown(first)}; only {_BPE_VERSION!r} is supported")
        codes = [*dict.fromkeys(read_merges(lines))]  # the first of equal ones counts
    except ValueError as error:
        raise InteropError(f"{directory / _BPE}: {error}") from None
    return TextFiles(codes=codes, moses=(str(metadata["from_code"]), str(metadata["to_code"])))


def _language(name: Path, metadata: Mapping[str, Any], key: str) -> str:
    code = metadata.get(key)
    if not isinstance(code, str) or not code.isascii() or not 0 < len(code) <= 20:
        raise InteropError(f"{name}: {_METADATA}: {key}={shown(code)} is no code of a language")
    return _CODES.get(code, code)
