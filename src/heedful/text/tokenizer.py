"""A tokenizer: text to ids and back. One for each side of a model, or one for both."""

import hashlib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Self

import sentencepiece

from heedful.errors import InputError, TokenizerError

JOINT_FILE = "tokenizer.model"
SOURCE_FILE = "source.model"
TARGET_FILE = "target.model"

_NOT_UNICODE = "the text is not Unicode: it holds half of a surrogate pair; remove it"

# The numbers of sentencepiece's own file format (message TrainerSpec, enum ModelType).
_KINDS = {1: "unigram", 2: "bpe", 3: "word", 4: "char"}
_TRAINER_SPEC_FIELD, _MODEL_TYPE_FIELD = 2, 3
_VARINT, _FIXED64, _DELIMITED, _FIXED32 = 0, 1, 2, 5


class Tokenizer:
    """One SentencePiece model; it never changes.

    `Tokenizer.from_bytes(data)` loads one; `train_tokenizers` makes them.

    Raises:
        TokenizerError: bytes that are no SentencePiece model, or one without pad, unk, bos and eos.
    """

    def __init__(self, model: bytes, *, name: str = "tokenizer") -> None:
        if not model:
            raise TokenizerError(f"{name}: the tokenizer model is empty; restore the file")
        try:
            self._processor = sentencepiece.SentencePieceProcessor(model_proto=model)
            self.kind = _read_kind(model)
        except (RuntimeError, IndexError, ValueError) as error:
            raise TokenizerError(f"{name}: not a usable SentencePiece model; restore the file") from error
        self._model = model
        self.vocab_size: int = self._processor.get_piece_size()
        self.pad_id: int = self._processor.pad_id()
        self.unk_id: int = self._processor.unk_id()
        self.bos_id: int = self._processor.bos_id()
        self.eos_id: int = self._processor.eos_id()
        if min(self.pad_id, self.unk_id, self.bos_id, self.eos_id) < 0:
            raise TokenizerError(
                f"{name}: the model lacks a pad, unk, bos or eos piece; train it with heedful"
            )

    @classmethod
    def from_bytes(cls, model: bytes, *, name: str = "tokenizer") -> Self:
        """Load what `to_bytes` gave; `name` is for the error message."""
        return cls(model, name=name)

    def to_bytes(self) -> bytes:
        """The SentencePiece model file, byte for byte."""
        return self._model

    def __reduce__(self) -> tuple[type[Self], tuple[bytes]]:
        return type(self), (self._model,)

    def encode(self, text: str) -> list[int]:
        """The ids of a text, without bos and eos.

        Raises:
            InputError: text with half of a surrogate pair, which has no UTF-8.
        """
        try:
            ids: list[int] = self._processor.encode(text, out_type=int)
        except (RuntimeError, TypeError, UnicodeError) as error:
            raise InputError(_NOT_UNICODE) from error
        return ids

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        """The ids of many texts; much faster than one call for each. Raises as `encode` does."""
        if not texts:
            return []
        try:
            ids: list[list[int]] = self._processor.encode(list(texts), out_type=int)
        except (RuntimeError, TypeError, UnicodeError) as error:
            raise InputError(_NOT_UNICODE) from error
        return ids

    def decode(self, ids: Iterable[int]) -> str:
        """The text of ids. Pad, bos and eos vanish wherever they stand; unknown pieces become `⁇`."""
        text: str = self._processor.decode([int(i) for i in ids])
        return text.strip(" ")

    def pieces(self, ids: Iterable[int]) -> list[str]:
        """The subword strings of ids, special ones as they are named (`<s>`, `</s>`)."""
        return [self._processor.id_to_piece(int(i)) for i in ids]

    def normalize(self, text: str) -> str:
        """The text as the model segments it: normalised, with `▁` for each space and at the start."""
        normalized: str = self._processor.normalize(text)
        return normalized

    def piece_scores(self) -> dict[str, tuple[int, float]]:
        """Piece -> (id, score) of the ordinary pieces: no specials, no single-byte pieces."""
        model = self._processor
        ordinary = (
            i
            for i in range(self.vocab_size)
            if not (model.is_unknown(i) or model.is_control(i) or model.is_byte(i) or model.is_unused(i))
        )
        return {model.id_to_piece(i): (i, model.get_score(i)) for i in ordinary}

    def byte_ids(self) -> list[int]:
        """The ids of the 256 single-byte pieces in order, or an empty list where there are none."""
        ids = [self._processor.piece_to_id(f"<0x{byte:02X}>") for byte in range(256)]
        return ids if all(self._processor.is_byte(i) for i in ids) else []


class TokenizerPair:
    """The source's and the target's tokenizer; `joint` when they are one."""

    def __init__(self, src: Tokenizer, tgt: Tokenizer) -> None:
        self.src = src
        self.tgt = tgt

    @property
    def joint(self) -> bool:
        """Whether both sides share one tokenizer, and so one vocabulary."""
        return self.src is self.tgt

    def __reduce__(self) -> tuple[object, tuple[Tokenizer, Tokenizer]]:
        return type(self), (self.src, self.tgt)

    def save(self, directory: Path) -> None:
        """Write `tokenizer.model`, or `source.model` and `target.model`, into an existing directory."""
        directory = Path(directory)
        if self.joint:
            (directory / JOINT_FILE).write_bytes(self.src.to_bytes())
        else:
            (directory / SOURCE_FILE).write_bytes(self.src.to_bytes())
            (directory / TARGET_FILE).write_bytes(self.tgt.to_bytes())

    @classmethod
    def load(cls, directory: Path) -> Self:
        """Read what `save` wrote.

        Raises:
            TokenizerError: files that are missing or are no SentencePiece models.
        """
        directory = Path(directory)
        if (directory / JOINT_FILE).exists():
            tokenizer = _load_file(directory / JOINT_FILE)
            return cls(tokenizer, tokenizer)
        return cls(_load_file(directory / SOURCE_FILE), _load_file(directory / TARGET_FILE))

    def fingerprint(self) -> str:
        """Sha256 in hexadecimal: equal exactly when both models are, joint or not included."""
        digest = hashlib.sha256(b"joint" if self.joint else b"separate")
        for side in (self.src, self.tgt):
            digest.update(hashlib.sha256(side.to_bytes()).digest())
        return digest.hexdigest()


def _load_file(path: Path) -> Tokenizer:
    try:
        return Tokenizer(path.read_bytes(), name=str(path))
    except FileNotFoundError as error:
        raise TokenizerError(f"{path}: no such file; the directory holds no complete tokenizer") from error
    except OSError as error:
        raise TokenizerError(f"{path}: cannot be read ({error.strerror})") from error


def _read_kind(model: bytes) -> str:
    """The model type, read from the file itself: SentencePiece offers no way to ask for it."""
    for field, value in _fields(model):
        if field == _TRAINER_SPEC_FIELD and isinstance(value, bytes):
            for inner, number in _fields(value):
                if inner == _MODEL_TYPE_FIELD and isinstance(number, int):
                    return _KINDS[number]
    return "unigram"  # the format's default, which writers may leave out


def _fields(message: bytes) -> Iterable[tuple[int, int | bytes]]:
    """Walk the fields of one protocol-buffer message: (field number, integer or raw bytes)."""
    position = 0
    while position < len(message):
        tag, position = _varint(message, position)
        field, wire = tag >> 3, tag & 7
        if wire == _VARINT:
            number, position = _varint(message, position)
            yield field, number
            continue
        if wire == _DELIMITED:
            size, position = _varint(message, position)
        elif wire in (_FIXED64, _FIXED32):
            size = 8 if wire == _FIXED64 else 4
        else:
            raise ValueError(f"unknown wire type {wire}")
        yield field, message[position : position + size]
        position += size


def _varint(message: bytes, position: int) -> tuple[int, int]:
    """One variable-length integer and the position after it."""
    number = shift = 0
    while True:
        byte = message[position]
        position += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return number, position
        shift += 7
