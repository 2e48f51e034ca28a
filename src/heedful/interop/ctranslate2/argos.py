"""Packages of Argos Translate, for LibreTranslate too: a CTranslate2 model with its tokenizer and languages.

A package, `translate-en_de.argosmodel`, is a zip archive of one directory; Argos unpacks it below
~/.local/share/argos-translate/packages. Its parts:

    metadata.json                      from_code, to_code, and a description
    model/                             the CTranslate2 model
    sentencepiece.model or bpe.model   the tokenizer; the codes of subword-nmt come after Moses' rules

Sentences are searched as by Argos: a beam of 4, length penalty 0.2, and unknown tokens are replaced.
"""

import re
import zipfile
from dataclasses import replace
from pathlib import Path, PurePosixPath

from heedful.errors import InteropError
from heedful.interop.containers import DAMAGED, unpacked
from heedful.interop.conversion import Settings
from heedful.interop.ctranslate2.reading import (
    MODEL_FILE,
    CTranslate2Directory,
    TextFiles,
)
from heedful.interop.huggingface.pretrained import ImportedBundle, ImportOptions
from heedful.interop.vocabulary import TypedSettings, read, read_bytes, read_settings
from heedful.settings.parsing import decode_text, shown
from heedful.text.moses_tokenizer import read_merges

LAYOUT = "argos"
_METADATA, _MODEL = "metadata.json", "model"
_SENTENCEPIECE, _BPE = "sentencepiece.model", "bpe.model"
_BPE_VERSION = "#version: 0.2"
_SUFFIX = ".argosmodel"
_CODE = re.compile(r"[\x00-\x7f]{1,20}")
_CODES = {"zt": "zh-Hant", "pb": "pt-BR"}  # codes of its own
_SEARCH: Settings = {"beam_size": 4, "length_penalty": 0.2, "replace_unknown": True}


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


def _read_package(directory: Path, options: ImportOptions) -> ImportedBundle:
    file = directory / _METADATA
    metadata = TypedSettings(read_settings(file), file)
    metadata.check({"type": ("translate",)})
    src, tgt = _code(metadata, "from_code"), _code(metadata, "to_code")
    languages = {"src": _CODES.get(src, src), "tgt": _CODES.get(tgt, tgt)}
    text = TextFiles(search=_SEARCH, languages=languages, moses=(src, tgt))
    if (directory / _SENTENCEPIECE).is_file():
        text = replace(text, models=(read_bytes(directory / _SENTENCEPIECE),), underscores=True)
    elif (directory / _BPE).is_file():
        text = replace(text, codes=read(directory / _BPE, _merges))
    else:
        raise InteropError(f"{directory}: there is no {_SENTENCEPIECE} and no {_BPE}; copy the whole package")
    model = CTranslate2Directory(directory / _MODEL, ignored=options.ignored)
    if prefix := metadata.text("target_prefix"):
        metadata.require(prefix in model.vocabularies["tgt"], "target_prefix", " is not in the vocabulary")
        languages["tgt_tag"] = prefix
    return model.bundle(text, options)


def _code(metadata: TypedSettings, key: str) -> str:
    code = metadata.text(key) or ""
    metadata.require(_CODE.fullmatch(code) is not None, key, " is no code of a language")
    return code


def _merges(content: bytes) -> list[tuple[str, str]]:
    """Return the codes of subword-nmt, of equal ones the first."""
    first, *lines = decode_text(content).rstrip("\n").split("\n")
    if first.strip() != _BPE_VERSION:
        raise ValueError(f"its first line is {shown(first)}; only {_BPE_VERSION!r} is supported")
    return [*dict.fromkeys(read_merges(lines))]
