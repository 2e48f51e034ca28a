"""The tokenizer of models that are trained here: one SentencePiece model, which tokenises and has the ids."""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Self

import sentencepiece

from heedful.errors import InputError, TokenizerError
from heedful.text.sentencepiece_format import check_model, fields, read_kind
from heedful.text.tokenizer import NOT_UNICODE, SpecialIds, Tokenizer

MODEL = ".model"

# Numbers of the library's output (message SentencePieceText and its pieces); spans are counted in bytes.
_PIECES_FIELD, _BEGIN_FIELD, _END_FIELD = 2, 4, 5
_SPACE = "▁"


class SentencePieceTokenizer(Tokenizer):
    """One SentencePiece model; it never changes.

    `SentencePieceTokenizer.from_bytes(data)` loads one; `train_tokenizers` makes them. Its tags are its
    control tokens.

    Raises:
        TokenizerError: bytes that are no SentencePiece model, or one without pad, unk, bos and eos.
    """

    def __init__(self, model: bytes, *, name: str = "tokenizer") -> None:
        self._processor = load_processor(model, name=name)
        self._model = model
        processor = self._processor
        pad, unk, bos, eos = processor.pad_id(), processor.unk_id(), processor.bos_id(), processor.eos_id()
        if min(pad, unk, bos, eos) < 0:
            raise TokenizerError(
                f"{name}: the model lacks a pad, unk, bos or eos piece; train it with heedful"
            )
        super().__init__(
            read_kind(model), processor.get_piece_size(), SpecialIds(pad=pad, unk=unk, bos=bos, eos=eos)
        )

    @classmethod
    def from_bytes(cls, model: bytes, *, name: str = "tokenizer") -> Self:
        """Load what `to_bytes` gave; `name` is for the error message."""
        return cls(model, name=name)

    def to_bytes(self) -> bytes:
        """The SentencePiece model file, byte for byte."""
        return self._model

    @classmethod
    def from_files(cls, files: Mapping[str, bytes], *, name: str = "tokenizer") -> Self:
        """Load what `to_files` gave; `name`, the path without the ending, is for error messages."""
        return cls(files[MODEL], name=f"{name}{MODEL}")

    def to_files(self) -> dict[str, bytes]:
        """The files by the endings of their names."""
        return {MODEL: self._model}

    def __reduce__(self) -> tuple[type[Self], tuple[bytes]]:
        return type(self), (self._model,)

    def encode(self, text: str) -> list[int]:
        """The ids of a text, without bos and eos; InputError for half of a surrogate pair."""
        try:
            ids: list[int] = self._processor.encode(text, out_type=int)
        except (RuntimeError, TypeError, UnicodeError) as error:
            _refuse_surrogates([text], error)
            raise
        return ids

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        """The ids of many texts; much faster than one call for each."""
        if not texts:
            return []
        try:
            ids: list[list[int]] = self._processor.encode(list(texts), out_type=int)
        except (RuntimeError, TypeError, UnicodeError) as error:
            _refuse_surrogates(texts, error)
            raise
        return ids

    def spans(self, text: str) -> list[tuple[int, int]]:
        """Where in a text each of its ids comes from: start and end."""
        return piece_spans(self._processor, text)

    def decode(self, ids: Iterable[int], *, unknown: Sequence[str] | None = None) -> str:
        """The text of ids. Pad, bos and eos vanish wherever they stand; unknown tokens become `⁇`.

        With `unknown`, they become these texts, in their order. Ids beyond the vocabulary vanish: a model may
        have more of them than its tokenizer.
        """
        known = [int(i) for i in ids if i < self.vocab_size]
        if unknown is not None:
            texts = iter(unknown)
            pieces = [next(texts) if i == self.unk_id else self._processor.id_to_piece(i) for i in known]
            return decode_pieces(self._processor, pieces)
        text: str = self._processor.decode(known)
        return text.strip(" ")

    def pieces(self, ids: Iterable[int]) -> list[str]:
        """The subword strings of ids, special ones as they are named."""
        return [self._processor.id_to_piece(i) if i < self.vocab_size else f"<{i}>" for i in map(int, ids)]

    def _special_pieces(self) -> dict[str, int]:
        model = self._processor
        return {model.id_to_piece(i): i for i in range(self.vocab_size) if model.is_control(i)}

    def normalize(self, text: str) -> str:
        """The text as the model segments it: normalised, with `▁` for each space and at the start."""
        normalized: str = self._processor.normalize(text)
        return normalized

    def piece_scores(self) -> dict[str, tuple[int, float]]:
        """Token -> (id, score) of the ordinary tokens: no special ones, no single-byte ones."""
        model = self._processor
        ordinary = (
            i
            for i in range(self.vocab_size)
            if not (model.is_unknown(i) or model.is_control(i) or model.is_byte(i) or model.is_unused(i))
        )
        return {model.id_to_piece(i): (i, model.get_score(i)) for i in ordinary}

    def byte_ids(self) -> list[int]:
        """The ids of the 256 single-byte tokens in order, or an empty list where there are none."""
        ids = [self._processor.piece_to_id(f"<0x{byte:02X}>") for byte in range(256)]
        return ids if all(self._processor.is_byte(i) for i in ids) else []


def load_processor(model: bytes, *, name: str) -> sentencepiece.SentencePieceProcessor:
    """Load a SentencePiece model from its bytes.

    Raises:
        TokenizerError: bytes that are none.
    """
    if not model:
        raise TokenizerError(f"{name}: the tokenizer model is empty; restore the file")
    try:
        check_model(model)
        processor = sentencepiece.SentencePieceProcessor(model_proto=model)
        if not all(map(math.isfinite, map(processor.get_score, range(processor.get_piece_size())))):
            raise ValueError("a score that is no number")
    except (RuntimeError, ValueError) as error:
        raise TokenizerError(f"{name}: not a usable SentencePiece model; restore the file") from error
    return processor


def _refuse_surrogates(texts: Sequence[str], error: Exception) -> None:
    """Say so where the cause is text that has no UTF-8; other errors, as of threads, have other causes.

    Raises:
        InputError: there is half of a surrogate pair.
    """
    try:
        for text in texts:
            text.encode()
    except UnicodeEncodeError:
        raise InputError(NOT_UNICODE) from error


def piece_spans(processor: sentencepiece.SentencePieceProcessor, text: str) -> list[tuple[int, int]]:
    """Where in a text each of its tokens comes from: start and end.

    Raises:
        InputError: text with half of a surrogate pair, which has no UTF-8.
    """
    try:
        data, message = text.encode(), processor.encode(text, out_type="serialized_proto")
    except UnicodeError as error:
        raise InputError(NOT_UNICODE) from error
    spans = []
    for field, value in fields(message):
        if field == _PIECES_FIELD and isinstance(value, bytes):
            piece = dict(fields(value))
            ends = (int(piece.get(name, 0)) for name in (_BEGIN_FIELD, _END_FIELD))
            start, end = (len(data[:end].decode()) for end in ends)
            spans.append((start, end))
    return spans


def decode_pieces(processor: sentencepiece.SentencePieceProcessor, pieces: Sequence[str]) -> str:
    """The text of tokens; one that the model does not know stands there as it is."""
    text: str = processor.decode_pieces(list(pieces))
    return text.replace(_SPACE, " ").strip(" ")  # such a one may keep the model's sign for a space
