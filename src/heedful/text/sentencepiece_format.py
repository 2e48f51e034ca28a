"""Read and check SentencePiece model files, which are protocol buffers.

Message and field numbers are those of sentencepiece_model.proto. The library trusts the file, and a damaged
one can make it read out of bounds, so it is checked here first.
"""

import struct
from collections.abc import Iterator

import numpy as np

_KINDS = {1: "unigram", 2: "bpe", 3: "word", 4: "char"}  # enum ModelType
_TRAINER_SPEC, _NORMALIZER_SPEC, _DENORMALIZER_SPEC = 2, 3, 5  # of ModelProto
_MODEL_TYPE = 3  # of TrainerSpec
_CHARSMAP = 2  # of NormalizerSpec: rules compiled into a trie, and their replacement texts
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
