"""The tokenizer of models that heedful trains: one SentencePiece model."""

import math
import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import accumulate
from typing import Self

import numpy as np
import sentencepiece

from heedful.errors import InputError, TokenizerError
from heedful.runtime.threads import num_threads
from heedful.text.tokenizer import NOT_UNICODE, SpecialIds, Tokenizer

_KINDS = {1: "unigram", 2: "bpe", 3: "word", 4: "char"}  # enum ModelType
_TRAINER_SPEC, _NORMALIZER_SPEC, _DENORMALIZER_SPEC = 2, 3, 5  # of ModelProto
_MODEL_TYPE = 3  # of TrainerSpec
_CHARSMAP = 2  # of NormalizerSpec: rules compiled into a trie, and their replacement texts
_REMOVE_EXTRA_SPACES = 4  # of NormalizerSpec
_VARINT, _FIXED64, _DELIMITED, _FIXED32 = 0, 1, 2, 5
_VARINT_BYTES = 10  # at most, of 64 bits
_BLOCK = 256  # units of a trie that one byte can address
_CONTINUATION_MASK, _CONTINUATION = 0xC0, 0x80  # bytes of a character in UTF-8 that do not start it


def check_model(model: bytes) -> None:
    """Refuse a model that the library could not read safely.

    Raises:
        ValueError: it is truncated, of an unknown kind, or its normalisation rules are out of bounds or
            not UTF-8.
    """
    read_kind(model)
    for field, value in fields(model):
        if field in (_NORMALIZER_SPEC, _DENORMALIZER_SPEC) and isinstance(value, bytes):
            for inner, rules in fields(value):
                if inner == _CHARSMAP and isinstance(rules, bytes) and rules:
                    _check_charsmap(rules)


def read_kind(model: bytes) -> str:
    """Return the type of a model: "unigram", "bpe", "word" or "char".

    Raises:
        ValueError: it is truncated, or of another type.
    """
    for field, value in fields(model):
        if field == _TRAINER_SPEC and isinstance(value, bytes):
            for inner, number in fields(value):
                if inner == _MODEL_TYPE and isinstance(number, int):
                    if number not in _KINDS:
                        raise ValueError(f"model type {number} does not exist")
                    return _KINDS[number]
    return "unigram"  # the format's default


def keeps_spaces(model: bytes) -> bool:
    """Return whether a model keeps runs of spaces, and those at the ends of a text."""
    specs = (value for field, value in fields(model) if field == _NORMALIZER_SPEC)
    return any(
        inner == _REMOVE_EXTRA_SPACES and not number
        for value in specs
        if isinstance(value, bytes)
        for inner, number in fields(value)
    )


def fields(message: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Walk the fields of one message: (field number, integer or raw bytes).

    Raises:
        ValueError: the message is truncated, or no protocol buffer.
    """
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
        if position + size > len(message):
            raise ValueError("a field is truncated")
        yield field, message[position : position + size]
        position += size


def _varint(message: bytes, position: int) -> tuple[int, int]:
    """Return one variable-length integer and the position after it."""
    number = shift = 0
    for byte in message[position : position + _VARINT_BYTES]:
        position += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return number, position
        shift += 7
    raise ValueError("a number is truncated")


def _check_charsmap(rules: bytes) -> None:
    """Check that all offsets of a trie are within it, and that each leaf is an index into the texts.

    The trie is a double array of darts-clone: a unit has a label, the offset to its children, or, with the
    highest bit, the value of a leaf.
    """
    (size,) = struct.unpack_from("<I", rules) if len(rules) >= 4 else (0,)
    texts = rules[4 + size :]
    if size == 0 or size % (4 * _BLOCK) or 4 + size >= len(rules) or texts[-1] != 0:
        raise ValueError("the normalisation rules are truncated")
    units = np.frombuffer(rules, dtype="<u4", count=size // 4, offset=4).astype(np.int64)
    is_leaf = units >> 31 == 1
    is_leaf[0] = False
    offsets = (units >> 10) << ((units & (1 << 9)) >> 6)
    children = np.arange(len(units)) ^ offsets
    starts = (units & 0x7FFFFFFF)[is_leaf]
    if (children[~is_leaf] >= len(units)).any() or (starts >= len(texts)).any():
        raise ValueError("the normalisation rules are out of bounds")
    texts.decode()
    if (np.frombuffer(texts, np.uint8)[starts] & _CONTINUATION_MASK == _CONTINUATION).any():
        raise ValueError("a normalisation rule starts within a character")


MODEL = ".model"

# Field numbers of the library's output (message SentencePieceText); spans are counted in bytes.
_PIECES_FIELD, _BEGIN_FIELD, _END_FIELD = 2, 4, 5
_SPACE = "▁"


class SentencePieceTokenizer(Tokenizer):
    """An immutable SentencePiece model; its tags are its control tokens.

    `SentencePieceTokenizer.from_bytes(data)` loads one; `train_tokenizers` trains them.

    Raises:
        TokenizerError: the bytes are not a SentencePiece model with pad, unk, bos and eos.
    """

    def __init__(self, model: bytes, *, name: str = "tokenizer") -> None:
        self._spm = load_sentencepiece(model, name=name)
        self._model = model
        self._keeps_spaces = keeps_spaces(model)
        spm = self._spm
        pad, unk, bos, eos = spm.pad_id(), spm.unk_id(), spm.bos_id(), spm.eos_id()
        if min(pad, unk, bos, eos) < 0:
            raise TokenizerError(
                f"{name}: the model lacks a pad, unk, bos or eos token; train it with heedful"
            )
        super().__init__(
            read_kind(model), spm.get_piece_size(), SpecialIds(pad=pad, unk=unk, bos=bos, eos=eos)
        )

    @classmethod
    def from_bytes(cls, model: bytes, *, name: str = "tokenizer") -> Self:
        """Load the bytes of `to_bytes`; `name` is for error messages."""
        return cls(model, name=name)

    def to_bytes(self) -> bytes:
        """Return the SentencePiece model file."""
        return self._model

    @classmethod
    def from_files(cls, files: Mapping[str, bytes], *, name: str = "tokenizer") -> Self:
        """Load the files of `to_files`; `name`, the path without the suffix, is for error messages."""
        return cls(files[MODEL], name=f"{name}{MODEL}")

    def to_files(self) -> dict[str, bytes]:
        """Return the content of its files by suffix."""
        return {MODEL: self._model}

    def __reduce__(self) -> tuple[type[Self], tuple[bytes]]:
        return type(self), (self._model,)

    def encode(self, text: str) -> list[int]:
        """Return the ids of a text, without bos and eos; InputError for half of a surrogate pair."""
        try:
            ids: list[int] = self._spm.encode(text, out_type=int)
        except (RuntimeError, TypeError, UnicodeError) as error:
            _refuse_surrogates([text], error)
            raise
        return ids

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        """Return the ids of many texts; much faster than one call for each."""
        if not texts:
            return []
        try:
            ids: list[list[int]] = self._spm.encode(list(texts), out_type=int, num_threads=num_threads())
        except (RuntimeError, TypeError, UnicodeError) as error:
            _refuse_surrogates(texts, error)
            raise
        return ids

    def spans(self, text: str) -> list[tuple[int, int]]:
        """Return the span (start, end) in the text of each of its ids."""
        return token_spans(self._spm, text)

    def decode(self, ids: Iterable[int], *, unknown: Sequence[str] | None = None) -> str:
        """Return the text of ids, without pad, bos and eos; unknown tokens become `⁇`.

        With `unknown`, they become these texts, in their order. Ids beyond the vocabulary are omitted: a
        model may have more of them than its tokenizer.
        """
        known = [int(i) for i in ids if i < self.vocab_size]
        if unknown is not None:
            texts = iter(unknown)
            tokens = [next(texts) if i == self.unk_id else self._spm.id_to_piece(i) for i in known]
            return decode_tokens(self._spm, tokens)
        text: str = self._spm.decode(known)
        return text if self._keeps_spaces else text.strip(" ")

    def tokens(self, ids: Iterable[int]) -> list[str]:
        """Return the tokens of ids, special ones by name."""
        return [self._spm.id_to_piece(i) if i < self.vocab_size else f"<{i}>" for i in map(int, ids)]

    def _special_tokens(self) -> dict[str, int]:
        model = self._spm
        return {model.id_to_piece(i): i for i in range(self.vocab_size) if model.is_control(i)}

    def normalize(self, text: str) -> str:
        """Return the normalised text, with `▁` for each space and at the start."""
        normalized: str = self._spm.normalize(text)
        return normalized

    def token_scores(self) -> dict[str, tuple[int, float]]:
        """Return (id, score) by token, without special and single-byte tokens."""
        model = self._spm
        ordinary = (
            i
            for i in range(self.vocab_size)
            if not (model.is_unknown(i) or model.is_control(i) or model.is_byte(i) or model.is_unused(i))
        )
        return {model.id_to_piece(i): (i, model.get_score(i)) for i in ordinary}

    def byte_ids(self) -> list[int]:
        """Return the ids of the 256 single-byte tokens in order, or an empty list if there are none."""
        ids = [self._spm.piece_to_id(f"<0x{byte:02X}>") for byte in range(256)]
        return ids if all(self._spm.is_byte(i) for i in ids) else []


def load_sentencepiece(model: bytes, *, name: str) -> sentencepiece.SentencePieceProcessor:
    """Load a SentencePiece model from its bytes.

    Raises:
        TokenizerError: the bytes are not a usable model.
    """
    if not model:
        raise TokenizerError(f"{name}: the tokenizer model is empty; restore the file")
    try:
        check_model(model)
        spm = sentencepiece.SentencePieceProcessor(model_proto=model)
        ids = list(range(spm.get_piece_size()))
        if not all(map(math.isfinite, map(spm.get_score, ids))):
            raise ValueError("a score is not finite")
        # A token that is not UTF-8 raises a UnicodeDecodeError, which is a ValueError.
        spm.id_to_piece(ids)
        spm.decode(ids)
    except (RuntimeError, ValueError) as error:
        raise TokenizerError(f"{name}: not a usable SentencePiece model; restore the file") from error
    return spm


def _refuse_surrogates(texts: Sequence[str], error: Exception) -> None:
    """Raise an InputError if a text cannot be encoded as UTF-8.

    Raises:
        InputError: a text has half of a surrogate pair.
    """
    try:
        for text in texts:
            text.encode()
    except UnicodeEncodeError:
        raise InputError(NOT_UNICODE) from error


def token_spans(spm: sentencepiece.SentencePieceProcessor, text: str) -> list[tuple[int, int]]:
    """Return the span (start, end) in the text of each of its tokens.

    Raises:
        InputError: the text has half of a surrogate pair.
    """
    try:
        data, message = text.encode(), spm.encode(text, out_type="serialized_proto")
    except UnicodeError as error:
        raise InputError(NOT_UNICODE) from error
    # How many characters end before each byte: all bytes of one but the first are 10xxxxxx.
    characters = [0, *accumulate(byte & 0xC0 != 0x80 for byte in data)]
    spans = []
    for field, value in fields(message):
        if field == _PIECES_FIELD and isinstance(value, bytes):
            token = dict(fields(value))
            start, end = (characters[int(token.get(name, 0))] for name in (_BEGIN_FIELD, _END_FIELD))
            spans.append((start, end))
    return spans


def decode_tokens(spm: sentencepiece.SentencePieceProcessor, tokens: Sequence[str]) -> str:
    """Return the text of tokens; those unknown to the model are copied."""
    text: str = spm.decode_pieces(list(tokens))
    return text.replace(_SPACE, " ").strip(" ")  # an unknown token may contain the sign for a space
