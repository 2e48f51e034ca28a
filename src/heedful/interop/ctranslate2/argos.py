"""Packages of Argos Translate, for LibreTranslate too: a CTranslate2 model with its tokenizer and languages.

A package, `translate-en_de.argosmodel`, is a zip archive of one directory; Argos unpacks it below
~/.local/share/argos-translate/packages. Its parts:

    metadata.json                      from_code, to_code, and a description
    model/                             the CTranslate2 model
    sentencepiece.model or bpe.model   the tokenizer; the codes of subword-nmt come after Moses' rules

Sentences are searched as by Argos: a beam of 4, length penalty 0.2, and unknown tokens are replaced.
"""

import shutil
import tempfile
import weakref
import zipfile
import zlib
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path, PurePosixPath
from typing import Any

from heedful.errors import InteropError
from heedful.interop.ctranslate2.reading import (
    MODEL_FILE,
    CTranslate2Directory,
    TextFiles,
    read_settings,
)
from heedful.interop.huggingface.pretrained import ImportedBundle, ImportOptions
from heedful.interop.vocabulary import read_bytes
from heedful.settings.parsing import decode_text, shown
from heedful.storage.weights_file import one_line
from heedful.text.moses_tokenizer import read_merges

LAYOUT = "argos"
_METADATA, _MODEL = "metadata.json", "model"
_SENTENCEPIECE, _BPE = "sentencepiece.model", "bpe.model"
_BPE_VERSION = "#version: 0.2"
_SUFFIX = ".argosmodel"
_MOST_FILES = 1000
_MOST_GROWTH = 20  # of an archive that is unpacked; weights hardly shrink
_SMALL = 2**24  # bytes that any archive may hold
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
    except (zipfile.BadZipFile, OSError, ValueError, NotImplementedError):
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
    unpacked = _TemporaryDirectory()
    _unpack(path, unpacked.path)
    return _read_package(unpacked.path, options, name=path, keep=unpacked)


class _TemporaryDirectory:
    """A directory that is removed when nothing refers to this any more."""

    def __init__(self) -> None:
        self.path = Path(tempfile.mkdtemp(prefix="heedful-"))
        weakref.finalize(self, shutil.rmtree, self.path, ignore_errors=True)


def _read_package(
    directory: Path, options: ImportOptions, *, name: Path | None = None, keep: object = None
) -> ImportedBundle:
    name = name or directory
    if not (directory / _METADATA).is_file():
        raise InteropError(f"{name}: there is no {_METADATA}; give a package of Argos Translate")
    metadata = read_settings(directory / _METADATA)
    kind = metadata.get("type", "translate")
    if kind != "translate":
        raise InteropError(f"{name}: {_METADATA}: type={shown(kind)}; only 'translate' is supported")
    languages = {
        ours: _language(name, metadata, key) for ours, key in (("src", "from_code"), ("tgt", "to_code"))
    }
    tokenizer = _tokenizer_files(name, directory, metadata)
    model = CTranslate2Directory(directory / _MODEL, ignored=options.ignored, keep=keep)
    prefix = metadata.get("target_prefix")
    if prefix:
        if prefix not in model.tgt:
            raise InteropError(f"{name}: {_METADATA}: target_prefix={shown(prefix)} is not in the vocabulary")
        languages["tgt_tag"] = prefix
    return model.bundle(replace(tokenizer, search=_SEARCH, languages=languages), options)


def _tokenizer_files(name: Path, directory: Path, metadata: Mapping[str, Any]) -> TextFiles:
    """Return the SentencePiece model, or the codes of subword-nmt with the languages of Moses' rules."""
    if (directory / _SENTENCEPIECE).is_file():
        return TextFiles(models=(read_bytes(directory / _SENTENCEPIECE),), underscores=True)
    if not (directory / _BPE).is_file():
        raise InteropError(f"{name}: there is no {_SENTENCEPIECE} and no {_BPE}; copy the whole package")
    try:
        first, *lines = decode_text(read_bytes(directory / _BPE)).rstrip("\n").split("\n")
        if first.strip() != _BPE_VERSION:
            raise ValueError(f"its first line is {shown(first)}; only {_BPE_VERSION!r} is supported")
        codes = [*dict.fromkeys(read_merges(lines))]  # the first of equal ones counts
    except ValueError as error:
        raise InteropError(f"{name}: {_BPE}: {error}") from None
    return TextFiles(codes=codes, moses=(str(metadata["from_code"]), str(metadata["to_code"])))


def _language(name: Path, metadata: Mapping[str, Any], key: str) -> str:
    code = metadata.get(key)
    if not isinstance(code, str) or not code.isascii() or not 0 < len(code) <= 20:
        raise InteropError(f"{name}: {_METADATA}: {key}={shown(code)} is no code of a language")
    return _CODES.get(code, code)


def _unpack(path: Path, directory: Path) -> None:
    """Write the parts of an archive that are used into a directory.

    Raises:
        InteropError: it is damaged, or holds what no package does.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            members = _members(archive, path.stat().st_size)
            (directory / _MODEL).mkdir()
            for target, member in members.items():
                with archive.open(member) as packed, (directory / target).open("wb") as file:
                    shutil.copyfileobj(packed, file)  # no more than it says: zipfile ends there
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError, ValueError) as error:
        raise InteropError(f"{path}: not a usable package ({one_line(error)}); copy it again") from None
    except OSError as error:
        raise InteropError(f"{path}: cannot be unpacked ({error.strerror or error})") from None


def _members(archive: zipfile.ZipFile, packed_size: int) -> dict[str, zipfile.ZipInfo]:
    """Return the members that are used, by their paths below the archive's one directory.

    Raises:
        ValueError: a path leads out of the directory, or there are too many bytes or files.
    """
    infos = archive.infolist()
    if len(infos) > _MOST_FILES:
        raise ValueError(f"{len(infos):,} files")
    members: dict[str, zipfile.ZipInfo] = {}
    for info in infos:
        path = PurePosixPath(info.filename)
        if path.is_absolute() or ".." in path.parts or "\\" in info.filename:
            raise ValueError(f"the path {shown(info.filename)} leads out of it")
        parts = path.parts[1:]
        is_used = parts in ((_METADATA,), (_SENTENCEPIECE,), (_BPE,)) or (
            len(parts) == 2 and parts[0] == _MODEL
        )
        if not is_used or info.is_dir():
            continue
        name = "/".join(parts)
        if name in members:
            raise ValueError(f"{shown(name)} comes twice")
        members[name] = info
    if sum(info.file_size for info in members.values()) > max(_MOST_GROWTH * packed_size, _SMALL):
        raise ValueError(f"it grows more than {_MOST_GROWTH} times when it is unpacked")
    return members
