"""The tokenizer of models that heedful trains: one SentencePiece model."""

import math
from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate
from typing import Self

import sentencepiece

from heedful.errors import InputError, TokenizerError
from heedful.text.sentencepiece_format import check_model, fields, read_kind
from heedful.text.tokenizer import NOT_UNICODE, SpecialIds, Tokenizer

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
            ids: list[list[int]] = self._spm.encode(list(texts), out_type=int)
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
        return text.strip(" ")

    def pieces(self, ids: Iterable[int]) -> list[str]:
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
