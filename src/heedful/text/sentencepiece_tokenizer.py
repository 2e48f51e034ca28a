"""The tokenizer of models that heedful trains: one SentencePiece model."""

import math
import struct
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import accumulate
from typing import Self

import numpy as np
import sentencepiece
from typing_extensions import override

from heedful.errors import TokenizerError
from heedful.runtime.threads import num_threads
from heedful.text.tokenizer import SpecialIds, Tokenizer, refusing_surrogates

_KINDS = {1: "unigram", 2: "bpe", 3: "word", 4: "char"}  # enum ModelType
# Paths of field numbers in ModelProto, with all numbers that a step may have: the model's type, its rules of
# normalisation (a trie and the replacement texts, in two specs), and whether extra spaces are removed.
_MODEL_TYPE, _CHARSMAPS, _REMOVE_EXTRA_SPACES = ((2,), (3,)), ((3, 5), (2,)), ((3,), (4,))
_VARINT, _DELIMITED = 0, 2
_SIZES = {1: 8, 5: 4}  # of other types of fields, in bytes
_VARINT_BYTES = 10  # at most, of 64 bits
_TOKEN = 1 << 3 | _DELIMITED  # begins each token of a model; tokens come first
_BLOCK = 256  # units of a trie that one byte can address
_CONTINUATION_MASK, _CONTINUATION = 0xC0, 0x80  # bytes of a character in UTF-8 that do not start it


def check_model(model: bytes) -> None:
    """Raise a ValueError for a model that the library could not read safely: truncated, or with bad rules."""
    read_kind(model)
    for rules in _values(model, *_CHARSMAPS):
        if isinstance(rules, bytes) and rules and not _is_safe(rules):
            raise ValueError("the normalisation rules are damaged")


def read_kind(model: bytes) -> str:
    """Return the type of a model: "unigram", "bpe", "word" or "char"; ValueError if it is none of these."""
    number = next((value for value in _values(model, *_MODEL_TYPE) if isinstance(value, int)), 1)
    if not model or number not in _KINDS:
        raise ValueError(f"it is empty, or its model type, {number}, does not exist")
    return _KINDS[number]


def _values(model: bytes, *path: Collection[int]) -> Iterator[int | bytes]:
    """Yield the values of nested fields; each step of the path is the numbers that a field may have."""
    start, end = 0, len(model)
    while start < end and model[start] == _TOKEN:  # skipping 32,000 tokens takes 5 ms, reading them 50 ms
        size, start = _varint(model, start + 1)
        start += size
    yield from _nested(model, path, start)


def _nested(message: bytes, path: Sequence[Collection[int]], start: int = 0) -> Iterator[int | bytes]:
    for field, value in fields(message, start):
        if field in path[0]:
            if len(path) == 1:
                yield value
            elif isinstance(value, bytes):
                yield from _nested(value, path[1:])


def fields(message: bytes, position: int = 0) -> Iterator[tuple[int, int | bytes]]:
    """Yield (field number, integer or raw bytes) of a message; ValueError if it is no protocol buffer."""
    while position < len(message):
        tag, position = _varint(message, position)
        field, wire = tag >> 3, tag & 7
        if wire == _VARINT:
            number, position = _varint(message, position)
            yield field, number
            continue
        size = _SIZES.get(wire, sys.maxsize)
        if wire == _DELIMITED:
            size, position = _varint(message, position)
        if position + size > len(message):
            raise ValueError("a field is truncated, or of an unknown type")
        yield field, message[position : position + size]
        position += size


def _varint(message: bytes, position: int) -> tuple[int, int]:
    """Return one variable-length integer and the position after it."""
    if position < len(message) and message[position] < 0x80:
        return message[position], position + 1
    number = shift = 0
    for byte in message[position : position + _VARINT_BYTES]:
        position += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return number, position
        shift += 7
    raise ValueError("a number is truncated")


def _is_safe(rules: bytes) -> bool:
    """Return whether all offsets of a trie are within it, and each leaf is an index into the texts.

    The trie is a double array of darts-clone: a unit has a label, the offset to its children, or, with the
    highest bit, the value of a leaf.
    """
    (size,) = struct.unpack_from("<I", rules) if len(rules) >= 4 else (0,)
    texts = rules[4 + size :]
    if size == 0 or size % (4 * _BLOCK) or 4 + size >= len(rules) or texts[-1] != 0:
        return False
    units = np.frombuffer(rules, dtype="<u4", count=size // 4, offset=4).astype(np.int64)
    is_leaf = units >> 31 == 1
    is_leaf[0] = False
    offsets = (units >> 10) << ((units & (1 << 9)) >> 6)
    children = np.arange(len(units)) ^ offsets
    starts = (units & 0x7FFFFFFF)[is_leaf]
    if (children[~is_leaf] >= len(units)).any() or (starts >= len(texts)).any():
        return False
    texts.decode()
    are_inside = np.frombuffer(texts, np.uint8)[starts] & _CONTINUATION_MASK == _CONTINUATION
    return not are_inside.any()


MODEL = ".model"

# Paths and numbers in the library's output (message SentencePieceText); spans are counted in bytes.
_PIECES, _BEGIN, _END = (2,), 4, 5
_SPACE = "▁"


class SentencePieceTokenizer(Tokenizer):
    """An immutable SentencePiece model; its tags are its control tokens.

    `train_tokenizers` trains them.

    Args:
        model: the bytes of the model's file.
        name: the name in error messages.

    Attributes:
        model: the bytes of the model's file.

    Raises:
        TokenizerError: the bytes are not a SentencePiece model with pad, unk, bos and eos.
    """

    def __init__(self, model: bytes, *, name: str = "tokenizer") -> None:
        self._spm = spm = load_sentencepiece(model, name=name)
        self.model = model
        self._keeps_spaces = 0 in _values(model, *_REMOVE_EXTRA_SPACES)  # runs, and at the ends of a text
        ids = SpecialIds(pad=spm.pad_id(), unk=spm.unk_id(), bos=spm.bos_id(), eos=spm.eos_id())
        super().__init__(read_kind(model), spm.get_piece_size(), ids, name=name)

    @classmethod
    @override
    def from_files(cls, files: Mapping[str, bytes], *, name: str = "tokenizer") -> Self:
        return cls(files[MODEL], name=f"{name}{MODEL}")

    @override
    def to_files(self) -> dict[str, bytes]:
        return {MODEL: self.model}

    @override
    def encode(self, text: str) -> list[int]:
        with refusing_surrogates(text):
            ids: list[int] = self._spm.encode(text, out_type=int)
        return ids

    @override
    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        if not texts:
            return []
        with refusing_surrogates(*texts):
            ids: list[list[int]] = self._spm.encode(list(texts), out_type=int, num_threads=num_threads())
        return ids

    @override
    def spans(self, text: str) -> list[tuple[int, int]]:
        return token_spans(self._spm, text)

    @override
    def decode(self, ids: Iterable[int], *, unknown: Sequence[str] | None = None) -> str:
        known = [int(i) for i in ids if i < self.vocab_size]  # a model may have more ids than its tokenizer
        if unknown is not None:
            texts = iter(unknown)
            tokens = [next(texts) if i == self.unk_id else self._spm.id_to_piece(i) for i in known]
            return decode_tokens(self._spm, tokens)
        text: str = self._spm.decode(known)
        return text if self._keeps_spaces else text.strip(" ")

    @override
    def tokens(self, ids: Iterable[int]) -> list[str]:
        return [self._spm.id_to_piece(i) if i < self.vocab_size else f"<{i}>" for i in map(int, ids)]

    @override
    def _special_tokens(self) -> dict[str, int]:
        model = self._spm
        return {model.id_to_piece(i): i for i in range(self.vocab_size) if model.is_control(i)}

    def normalize(self, text: str) -> str:
        """Return the normalised text, with `▁` for each space and at the start."""
        normalized: str = self._spm.normalize(text)
        return normalized

    def token_scores(self) -> dict[str, tuple[int, float]]:
        """Return (id, score) by token, without special and single-byte tokens."""
        model, ids = self._spm, list(range(self.vocab_size))
        others: set[int] = set()
        for is_other in (model.is_unknown, model.is_control, model.is_byte, model.is_unused):
            others.update(filter(is_other, ids))
        return {model.id_to_piece(i): (i, model.get_score(i)) for i in ids if i not in others}

    def byte_ids(self) -> list[int]:
        """Return the ids of the 256 single-byte tokens in order, or an empty list if there are none."""
        ids = [self._spm.piece_to_id(f"<0x{byte:02X}>") for byte in range(256)]
        return ids if all(map(self._spm.is_byte, ids)) else []


def load_sentencepiece(model: bytes, *, name: str) -> sentencepiece.SentencePieceProcessor:
    """Load a SentencePiece model from its bytes; TokenizerError if they are no usable model."""
    with suppress(RuntimeError, ValueError):
        check_model(model)
        spm = sentencepiece.SentencePieceProcessor(model_proto=model)
        ids = list(range(spm.get_piece_size()))
        # A token that is not UTF-8 raises a UnicodeDecodeError, which is a ValueError.
        spm.id_to_piece(ids)
        spm.decode(ids)
        if all(map(math.isfinite, map(spm.get_score, ids))):
            return spm
    raise TokenizerError(f"{name}: not a usable SentencePiece model; restore the file")


def token_spans(spm: sentencepiece.SentencePieceProcessor, text: str) -> list[tuple[int, int]]:
    """Return the span (start, end) of each token in a text; InputError for half of a surrogate pair."""
    with refusing_surrogates(text):
        data, message = text.encode(), spm.encode(text, out_type="serialized_proto")
    # How many characters end before each byte: all bytes of one but the first are 10xxxxxx.
    characters = [0, *accumulate(byte & 0xC0 != 0x80 for byte in data)]
    spans: list[tuple[int, int]] = []
    for token in _nested(message, [_PIECES]):
        numbers = dict(fields(bytes(token)))
        start, end = (characters[int(numbers.get(field, 0))] for field in (_BEGIN, _END))
        spans.append((start, end))
    return spans


def decode_tokens(spm: sentencepiece.SentencePieceProcessor, tokens: Sequence[str]) -> str:
    """Return the text of tokens; those unknown to the model are copied."""
    text: str = spm.decode_pieces(list(tokens))
    return text.replace(_SPACE, " ").strip(" ")  # an unknown token may contain the sign for a space
