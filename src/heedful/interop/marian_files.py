"""The files of Marian: weights (.npz, .bin), options and vocabularies, and the folder or archive of them.

marian-nmt/marian-dev and browsermt/marian-dev write these formats. Reading them executes nothing.
"""

import math
import re
import struct
import warnings
import zipfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath, PureWindowsPath
from tokenize import TokenError
from typing import IO, Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from heedful.errors import InteropError
from heedful.interop.containers import DAMAGED, Cursor, map_file, read_yaml, require, unpacked
from heedful.interop.conversion import DeferredTensor, Settings, Tensors, Values
from heedful.interop.vocabulary import as_list, first_file, read, token_lines
from heedful.settings.parsing import is_plain_name, is_whole, parse_json, shown

MODEL_OPTIONS = "special:model.yml"
_SPECIAL = "special:"
_DECODER = "decoder.yml"
_MAX_ITEMS = 100_000  # of a file of weights
_DAMAGED = (*DAMAGED, SyntaxError, TokenError, UserWarning)  # numpy's reader uses Python's parser
_BIN_VERSION, _MAX_RANK = 1, 8
_FLOAT32, _FLOAT16, _INT8, _INTGEMM8 = 0x0404, 0x0402, 0x0101, 0x4101
_TYPE_NAMES = {
    0x4102: "intgemm16", 0x5101: "intgemm8ssse3", 0x6101: "intgemm8avx2", 0x7101: "intgemm8avx512",
    0x5102: "intgemm16sse2", 0x6102: "intgemm16avx2", 0x7102: "intgemm16avx512",
}  # fmt: skip
# A matrix of a layer is stored as (in, out): x W, where the modules here compute x W^T.
_IS_LAYER = re.compile(r".*_W(?!emb$|pos$|t$)[A-Za-z0-9]*")
_EMBEDDING = "Wemb"
_LENGTHS_IN_HEADER = 26  # of a member of an archive: of its name, and of what follows it
_CHUNK = 2**20


_Pair = tuple[Path, Path]  # of source and target


@dataclass(frozen=True)
class MarianFiles:
    """Where the parts of a model are.

    Attributes:
        model: the weights.
        options: the options of decoder.yml; empty without one.
        options_file: that file, for error messages.
        vocabularies: the vocabularies of source and target; None without any.
        splitters: SentencePiece models of texts that are split before Marian reads them; None without any.
        shortlist: the shortlist of lexical translations; None without one.
    """

    model: Path
    options: Settings
    options_file: Path
    vocabularies: _Pair | None
    splitters: _Pair | None
    shortlist: Path | None


def is_marian(source: Path) -> bool:
    """Return whether a path looks like a model of Marian: weights, a folder or an archive with some.

    A file that is named .npz or .zip is one, even if it is damaged: no other layout has such names.
    """
    try:
        if source.is_dir():
            return any(map(is_model, source.iterdir()))
        if source.suffix != ".npz" and zipfile.is_zipfile(source):
            with zipfile.ZipFile(source) as archive:
                return any(name.endswith(".npz") for name in archive.namelist())
        return source.suffix in (".npz", ".zip") or is_model(source)
    except _DAMAGED:
        return False


def is_model(file: Path) -> bool:
    """Return whether a file is an archive with Marian's options, or a binary file of its version."""
    if file.suffix == ".npz" and zipfile.is_zipfile(file):
        with zipfile.ZipFile(file) as archive:
            return f"{MODEL_OPTIONS}.npy" in archive.namelist()
    if file.suffix != ".bin" or not file.is_file():
        return False
    with file.open("rb") as stream:
        header = stream.read(16)
    return len(header) == 16 and header.startswith(struct.pack("<Q", _BIN_VERSION))


def opened(source: Path) -> AbstractContextManager[Path]:
    """Give the folder or file of a model; an archive is unpacked into a temporary folder.

    Raises:
        InteropError: there is no such path, or the archive is damaged, or unsafe to unpack.
    """
    if not source.exists():
        raise InteropError(f"{source}: no such file or directory")
    if source.is_dir() or source.suffix in (".npz", ".bin"):
        return nullcontext(source)
    return unpacked(source, _place)


def _place(path: PurePosixPath) -> str:
    """Return where a member of an archive goes: all of them into one folder."""
    is_plain = all(map(is_plain_name, path.parts)) and len(path.parts) <= 2
    require(is_plain, f"{shown(str(path))} is no plain name of a file")
    return path.name


def find_files(source: Path, *, vocabularies: Sequence[Path] | None = None) -> MarianFiles:
    """Return the files of a model, by decoder.yml, or without one by their names.

    Args:
        source: a folder, or a file of weights beside the others.
        vocabularies: the vocabularies of source and target; None: decoder.yml's.

    Raises:
        InteropError: a file is missing, or there are several models.
    """
    folder = source if source.is_dir() else source.parent
    beside = sorted(filter(Path.is_file, folder.iterdir()))
    decoder = _decoder_file(source, beside)
    options = {} if decoder is None else read(decoder, parse_options)

    def files_of(key: str, count: int | None = None) -> list[Path]:
        return [_beside(folder, name) for name in _texts(options, key, decoder)[:count]]

    model = source
    if source.is_dir():
        model = _model_file(folder, files_of("models") or list(filter(is_model, beside)))
    vocabularies = vocabularies or files_of("vocabs") or _vocabulary_files(beside)
    if len(vocabularies) not in (0, 2):
        raise InteropError(
            f"{folder}: {len(vocabularies)} vocabularies, not one of the source and one of the target; "
            "give --src-vocab and --tgt-vocab"
        )
    return MarianFiles(
        model,
        options,
        decoder or folder / _DECODER,
        (vocabularies[0], vocabularies[1]) if vocabularies else None,
        _splitters(folder, vocabularies),
        _only(files_of("shortlist", 1) or [file for file in beside if file.match("lex.*.bin")]),
    )


def _only(files: Sequence[Path]) -> Path | None:
    """Return the file of a list of one."""
    return files[0] if len(files) == 1 else None


def _decoder_file(source: Path, beside: Sequence[Path]) -> Path | None:
    """Return decoder.yml, or the one that is named like the model, or another with the key `models`."""
    by_name = {file.name: file for file in beside}
    for name in (f"{source.name}.{_DECODER}", _DECODER):
        if name in by_name:
            return by_name[name]
    several = [file for file in beside if file.name.endswith(_DECODER)]
    return _only(several or [file for file in beside if file.suffix == ".yml" and _names_models(file)])


def _names_models(file: Path) -> bool:
    with file.open("rb") as stream:
        return re.search(rb"^models:", stream.read(10_000), re.MULTILINE) is not None


def _model_file(folder: Path, models: Sequence[Path]) -> Path:
    if len(models) != 1:
        names = ", ".join(file.name for file in models[:3]) or "no .npz and no .bin"
        raise InteropError(
            f"{folder}: {len(models)} models ({names}), not one; give the file of weights itself, each of "
            "an ensemble by itself"
        )
    return models[0]


def _vocabulary_files(beside: Sequence[Path]) -> list[Path]:
    """Return the vocabularies of source and target without decoder.yml: by `vocab`, `src` and `trg`."""
    several = [file for file in beside if re.search(r"vocab.*\.(spm|yml|txt)$", file.name)]
    src = [file for file in several if "src" in file.name]
    tgt = [file for file in several if re.search("trg|tgt", file.name)]
    if len(src) == len(tgt) == 1:
        return [*src, *tgt]
    return several * 2 if len(several) == 1 else several


def _splitters(folder: Path, vocabularies: Sequence[Path]) -> _Pair | None:
    """Return OPUS-MT's SentencePiece models, which texts are split with before Marian reads them."""
    if any(file.suffix == ".spm" for file in vocabularies):
        return None
    src, tgt = folder / "source.spm", folder / "target.spm"
    if src.is_file() and tgt.is_file():
        return src, tgt
    if (codes := first_file(folder, ("source.bpe", "target.bpe"))) is not None:
        raise InteropError(
            f"{codes}: codes of subword-nmt are not supported; without this file the model is imported "
            "for texts that are split already"
        )
    return None


def _beside(folder: Path, name: str) -> Path:
    """Return the file with the name at the end of a path: the folders are the training machine's."""
    file = folder / PureWindowsPath(name).name
    if not file.is_file():
        raise InteropError(f"{file}: no such file; decoder.yml names it")
    return file


def _texts(options: Settings, key: str, file: Path | None) -> list[str]:
    texts = [str(value) for value in as_list(options.get(key)) if not isinstance(value, bool)]
    if not all(texts):
        raise InteropError(f"{file}: {key} has an empty name")
    return texts


def parse_options(content: bytes) -> Values:
    """Return options by key.

    Raises:
        ValueError: it is not YAML, a key is repeated, or a value is neither a scalar nor a list of them.
    """
    options: Values = {}
    for key, value in read_yaml(content.rstrip(b"\0"), _plain):
        require(key not in options, f"the option {shown(key)} is repeated")
        options[key] = value
    return options


_WHOLE = re.compile(r"[-+]?[0-9]{1,18}")
_DECIMAL = re.compile(r"[-+]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][-+]?[0-9]{1,3})?")


def _plain(text: str) -> str | float:
    """Return the number, the boolean or else the text of a value without quotes, as Marian reads it."""
    if text in ("true", "false"):
        return text == "true"
    if _WHOLE.fullmatch(text):
        return int(text)
    return float(text) if len(text) < 50 and _DECIMAL.fullmatch(text) else text


def read_vocabulary(file: Path) -> list[str]:
    """Return the tokens of a vocabulary by id: ids by token in .yml or .json, else a token on each line.

    Raises:
        InteropError: it cannot be read, or some id has no token or several.
    """
    return read(file, _VOCABULARIES.get(file.suffix, token_lines))


def _ids_in_json(content: bytes) -> list[str]:
    vocabulary = parse_json(content)
    require(isinstance(vocabulary, dict), f"{shown(vocabulary)} is no object of ids by token")
    assert isinstance(vocabulary, dict)
    return _by_id(vocabulary.items())


def _ids_in_yaml(content: bytes) -> list[str]:
    return _by_id(read_yaml(content, _plain))


def _by_id(ids: Iterable[tuple[str, Any]]) -> list[str]:
    tokens: dict[int, str] = {}
    for token, i in ids:
        require(is_whole(i), f"{shown(i)} is not the id of a token")
        require(i not in tokens, f"{shown(tokens.get(i))} and {shown(token)} have one id, {i}")
        tokens[i] = token
    tokens = dict(enumerate(_OLDER)) | tokens
    missing = set(range(len(tokens))) - tokens.keys()
    require(not missing, f"no token has the id {min(missing, default=0):,}")
    return [tokens[i] for i in range(len(tokens))]


# Nematus' names of the first two tokens.
_OLDER = ("</s>", "<unk>")
_VOCABULARIES = {".json": _ids_in_json, ".yml": _ids_in_yaml, ".yaml": _ids_in_yaml}


def read_weights(file: Path) -> tuple[Tensors, Values]:
    """Return the weights by Marian's names, matrices of layers as (out, in), and the options of the model.

    Raises:
        InteropError: it is not a Marian model, or has numbers of a type that is not supported.
    """
    try:
        items = _items_of_bin(file) if file.suffix == ".bin" else _items_of_npz(file)
        weights: Tensors = {}
        options = None
        for name, content, form in items:
            if name == MODEL_OPTIONS:
                options = parse_options(content.tobytes())
            elif not name.startswith(_SPECIAL):
                weights[name] = _weight(name, content, form)
    except _DAMAGED as error:
        raise InteropError(f"{file}: not a model of Marian: {' '.join(str(error).split())[:200]}") from error
    if options is None:
        raise InteropError(f"{file}: not a model of Marian: {MODEL_OPTIONS!r} is missing")
    return weights, options


@dataclass(frozen=True)
class _Form:
    """How a weight is stored; decodes its bytes. A matrix of a layer becomes (out, in).

    Attributes:
        dtype: the type, as numpy names it.
        shape: the shape of the array in the file.
        order: "C", or "F" for columns first.
        is_turned: whether the weight is the transpose.
        multiplier: the number by which 8-bit numbers are divided.
    """

    dtype: str
    shape: tuple[int, ...]
    order: Literal["C", "F"] = "C"
    is_turned: bool = False
    multiplier: float | None = None

    @property
    def num_bytes(self) -> int:
        """The size of the numbers."""
        return math.prod(self.shape) * np.dtype(self.dtype).itemsize

    def __call__(self, stored: Tensor) -> Tensor:
        """Return the float32 numbers of stored bytes, which need not be aligned."""
        array = np.frombuffer(stored.numpy(), self.dtype).reshape(self.shape, order=self.order)
        array = array.T if self.is_turned else array
        numbers = array.astype(np.float32, order="C")
        if self.multiplier is not None:
            numbers /= np.float32(self.multiplier)
        return torch.from_numpy(numbers)

    def rows(self, stored: Tensor, start: int, stop: int) -> Tensor | None:
        """Return some rows; None if the bytes are in another order."""
        if self.is_turned or self.order == "F" or len(self.shape) != 2:
            return None
        width = self.shape[1]
        size = width * np.dtype(self.dtype).itemsize
        return replace(self, shape=(stop - start, width))(stored[start * size : stop * size])


_Bytes = NDArray[np.uint8]
_Item = tuple[str, _Bytes, _Form]  # a name, and bytes with their form


def _weight(name: str, content: _Bytes, form: _Form) -> Tensor:
    """Return a weight that is decoded when it is used; matrices of layers are turned."""
    dtype = np.dtype(form.dtype)
    is_float = dtype.kind == "f" or form.multiplier is not None
    require(is_float, f"the weight {shown(name)} is of {dtype}, not of floats")
    if _IS_LAYER.fullmatch(name) and len(form.shape) == 2:
        form = replace(form, is_turned=not form.is_turned)
    shape = form.shape[::-1] if form.is_turned else form.shape
    return DeferredTensor(torch.from_numpy(content), form, shape)


def _items_of_npz(file: Path) -> Iterator[_Item]:
    """Yield the arrays of an archive; none of them is packed, as Marian writes and reads them."""
    content = np.frombuffer(map_file(file), np.uint8)
    with zipfile.ZipFile(file) as archive:
        members = archive.infolist()
        is_stored = all(each.compress_type == zipfile.ZIP_STORED for each in members)
        is_stored &= sum(each.file_size for each in members) <= len(content) and len(members) <= _MAX_ITEMS
        require(is_stored, "an archive that is larger when it is unpacked; Marian writes none")
        for info in members:
            name = info.filename.removesuffix(".npy")
            with archive.open(info) as stream:
                form = _form(name, stream, info.file_size)
                start = stream.tell()
                while stream.read(_CHUNK):
                    pass  # to the end, where its checksum is compared
            lengths = struct.unpack_from("<2H", content.data, info.header_offset + _LENGTHS_IN_HEADER)
            start += info.header_offset + _LENGTHS_IN_HEADER + struct.calcsize("<2H") + sum(lengths)
            yield name, content[start : start + form.num_bytes], form


def _form(name: str, stream: IO[bytes], size: int) -> _Form:
    """Read the header of an array of `size` bytes."""
    is_known = np.lib.format.read_magic(stream) == (1, 0)
    require(is_known, f"the weight {shown(name)} is of a newer format")
    with warnings.catch_warnings(action="error"):
        shape, is_fortran, dtype = np.lib.format.read_array_header_1_0(stream, max_header_size=1000)
    is_plain = dtype.kind in "fi" and len(shape) <= 4
    require(is_plain, f"the weight {shown(name)} has no plain numbers")
    form = _Form(dtype.str, tuple(shape), "F" if is_fortran else "C")
    is_there = all(0 <= each < 2**31 for each in shape) and stream.tell() + form.num_bytes <= size
    require(is_there, f"the weight {shown(name)} has a shape of more numbers than are there")
    return form


def _items_of_bin(file: Path) -> Iterator[_Item]:
    """Yield the arrays of a binary file: headers, names, shapes, padding, data."""
    cursor = Cursor(buffer := map_file(file))
    content = np.frombuffer(buffer, np.uint8)
    version, count = cursor.numbers("2Q")
    is_known = version == _BIN_VERSION and count <= _MAX_ITEMS
    require(is_known, f"version {version} with {count:,} weights, not version {_BIN_VERSION}")
    headers = [cursor.numbers("4Q") for _ in range(count)]
    names = [cursor.text(length) for length, *_ in headers]
    require(all(rank <= _MAX_RANK for _, _, rank, _ in headers), "a weight has too many dimensions")
    shapes = [cursor.numbers(f"{rank}i") for _, _, rank, _ in headers]
    cursor.skip(cursor.number("Q"))
    for name, (_, kind, _, length), shape in zip(names, headers, shapes, strict=True):
        start = cursor.skip(length)
        form = _form_of_item(name, kind, shape, content[start : start + length])
        yield name, content[start : start + form.num_bytes], form


def _form_of_item(name: str, kind: int, shape: tuple[int, ...], content: _Bytes) -> _Form:
    """Return what an item is; 8-bit numbers of intgemm have a multiplier after them.

    Such a matrix is stored as its transpose, the embedding as it is.
    """
    dtype = {_FLOAT32: "<f4", _FLOAT16: "<f2", _INT8: "|i1", _INTGEMM8: "|i1"}.get(kind, "")
    require(
        bool(dtype),
        f"the weight {shown(name)} is of type {_TYPE_NAMES.get(kind, f'{kind:#06x}')}; there are float32, "
        "float16 and intgemm8, which are the same on every CPU",
    )
    form = _Form(dtype, shape)
    is_there = min(shape, default=1) >= 0 and form.num_bytes + 4 * (kind == _INTGEMM8) <= len(content)
    require(is_there, f"the weight {shown(name)} has a shape of more numbers than are there")
    if kind != _INTGEMM8:
        return form
    [multiplier] = struct.unpack_from("<f", content.data, form.num_bytes)
    is_usable = math.isfinite(multiplier) and multiplier > 1e-30  # so that all numbers are finite
    require(is_usable, f"the weight {shown(name)} has the multiplier {multiplier}")
    if _EMBEDDING in name or len(shape) != 2:
        return replace(form, multiplier=multiplier)
    return replace(form, shape=shape[::-1], is_turned=True, multiplier=multiplier)
