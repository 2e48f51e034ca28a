"""Models of SentencePiece that the library itself would follow out of its memory."""

import struct
from functools import cache

import pytest
from small_tokenizers import phrases, sentencepiece_model

from heedful.errors import TokenizerError
from heedful.text.sentencepiece_tokenizer import check_model, fields, load_sentencepiece, read_kind

NORMALIZER, CHARSMAP, PIECE, SCORE = 3, 2, 1, 2


@cache
def model(kind: str = "unigram") -> bytes:
    return sentencepiece_model(phrases()[0], kind, 150)


def field(number: int, value: bytes) -> bytes:
    return bytes([number << 3 | 2]) + length(len(value)) + value


def length(number: int) -> bytes:
    digits = bytearray()
    while number > 0x7F:
        digits.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*digits, number])


def with_rules(rules: bytes) -> bytes:
    """The model with other rules of normalisation."""
    parts = []
    for number, value in fields(model()):
        assert isinstance(value, bytes)
        parts.append(field(number, field(CHARSMAP, rules) if number == NORMALIZER else value))
    return b"".join(parts)


def rules() -> bytes:
    [spec] = [value for number, value in fields(model()) if number == NORMALIZER]
    [found] = [value for number, value in fields(spec) if number == CHARSMAP]  # type: ignore[arg-type]
    assert isinstance(found, bytes)
    return found


def test_what_sentencepiece_writes_is_taken() -> None:
    for kind in ("unigram", "bpe"):
        check_model(model(kind))
        assert read_kind(model(kind)) == kind
    assert load_sentencepiece(with_rules(rules()), name="x").encode("ﬁ", out_type=str) == load_sentencepiece(
        model(), name="x"
    ).encode("ﬁ", out_type=str)


def test_rules_of_normalisation_that_leave_their_memory_are_refused() -> None:
    good = rules()
    (size,) = struct.unpack_from("<I", good)
    far_child = bytearray(good)
    struct.pack_into("<I", far_child, 4, 0x1FFFFF << 10)  # the root's children
    far_text = bytearray(good)
    leaf = next(i for i in range(4, 4 + size, 4) if far_text[i + 3] & 0x80)
    struct.pack_into("<I", far_text, leaf, 0xFFFFFFFF)
    huge = struct.pack("<I", 0x7FFFFC00) + good[4:]
    for bad in (
        bytes(far_child),
        bytes(far_text),
        huge,
        good[:-1],
        good[: 4 + size],
        good[:3],
        b"\0\0\0\0x\0",
    ):
        with pytest.raises(TokenizerError, match="not a usable SentencePiece model"):
            load_sentencepiece(with_rules(bad), name="x")


def test_rules_of_normalisation_that_write_no_unicode_are_refused() -> None:
    good = rules()
    (size,) = struct.unpack_from("<I", good)
    half = bytearray(good)
    start = next(i for i in range(4 + size, len(half)) if half[i] >= 0xC0)  # the first byte of a character
    half[start] = ord("a")
    within = bytearray(good)
    leaf = next(i for i in range(4, 4 + size, 4) if within[i + 3] & 0x80)
    struct.pack_into("<I", within, leaf, 0x80000000 | start - 4 - size + 1)
    for bad in (half, within):
        with pytest.raises(TokenizerError, match="not a usable SentencePiece model"):
            load_sentencepiece(with_rules(bytes(bad)), name="x")


@pytest.mark.parametrize("kind", ["unigram", "bpe"])
def test_a_token_that_is_no_unicode_is_refused(kind: str) -> None:
    spm = load_sentencepiece(model(kind), name="x")
    token = field(1, spm.id_to_piece(spm.get_piece_size() - 1).encode())
    assert model(kind).count(token) == 1
    with pytest.raises(TokenizerError, match="not a usable SentencePiece model"):
        load_sentencepiece(model(kind).replace(token, token[:-1] + b"\xc3"), name="x")


@pytest.mark.parametrize(
    "bad",
    [
        b"\x80" * 1_000_000,  # a number without end
        b"\x0a\xff\xff\xff\xff\x7f",  # a field that is longer than the file
        b"\x0b",  # a group, which the format does not have
        field(2, b"\x18\x63"),  # a type of model that does not exist
        field(1, b"\x0a\x01a\x15" + struct.pack("<f", float("nan"))) + field(2, b""),
    ],
)
def test_what_is_no_model_is_refused(bad: bytes) -> None:
    with pytest.raises(TokenizerError, match="not a usable SentencePiece model"):
        load_sentencepiece(bad, name="x")


def test_a_score_that_is_no_number_is_refused() -> None:
    first = next(value for number, value in fields(model()) if number == PIECE)
    assert isinstance(first, bytes)
    damaged = first.replace(next(v for n, v in fields(first) if n == SCORE), struct.pack("<f", float("nan")))  # type: ignore[arg-type]
    with pytest.raises(TokenizerError, match="not a usable SentencePiece model"):
        load_sentencepiece(model().replace(field(PIECE, first), field(PIECE, damaged), 1), name="x")
