"""The tokenizer of MarianMT and M2M100: a SentencePiece model, and a list of tokens for the ids."""

import json
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Self

from heedful.errors import InputError, TokenizerError
from heedful.settings.parsing import parse_json, shown
from heedful.text.sentencepiece_tokenizer import (
    SentencePieceTokenizer,
    decode_tokens,
    load_sentencepiece,
    read_kind,
    token_spans,
)
from heedful.text.tokenizer import NOT_UNICODE, SpecialIds, Tokenizer, clean_up_tokenization

# How vocabularies write the four special tokens, between <> or [], in upper or lower case.
_TOKEN_NAMES = {
    "pad": ("pad", "blank"),
    "unk": ("unk", "unknown"),
    "bos": ("s", "bos", "sos", "start"),
    "eos": ("/s", "eos", "end"),
}
_SPACE = "▁"  # SentencePiece's sign for the space before a word

# Numbers of the format: fields of ModelProto, of SentencePiece, of TrainerSpec; types of tokens; kind of
# model.
_PIECE, _TRAINER, _NORMALIZER = 1, 2, 3
_PIECE_TEXT, _PIECE_SCORE, _PIECE_TYPE = 1, 2, 3
_NORMAL, _UNKNOWN, _CONTROL = 1, 2, 3
_MODEL_TYPE, _VOCAB_SIZE, _UNK_SURFACE = 3, 4, 44
_SPECIAL_IDS = {"unk": 40, "bos": 41, "eos": 42, "pad": 43}
_SPECIAL_TOKENS = {"unk": 45, "bos": 46, "eos": 47, "pad": 48}
_NORMALIZER_NAME = 1
_WORD_MODEL = 3
_VARINT, _DELIMITED, _FIXED32 = 0, 2, 5


def tokenizer_from_words(words: Sequence[str], *, name: str = "vocabulary") -> SentencePieceTokenizer:
    """Return a tokenizer that splits at spaces and looks each word up.

    Args:
        words: by id; they must include pad, begin and end tokens in brackets, such as `<pad> <s> </s>` or
            `[PAD] [SOS] [EOS]`. If there is none for unknown words (`<unk>`), one is appended.
        name: for error messages.

    Raises:
        TokenizerError: a special token is missing, or a word is empty, contains a space or is repeated.
    """
    words = list(words)
    if _find(words, "unk") is None:
        words.append("<unk>")
    special: dict[str, int] = {}
    for kind, (token_name, *_) in _TOKEN_NAMES.items():
        token_id = _find(words, kind)
        if token_id is None:
            raise TokenizerError(f"{name}: there is no token such as '<{token_name}>'; without it, use ids")
        special[kind] = token_id
    seen: set[str] = set()
    for i, word in enumerate(words):
        if not word or word.split() != [word] or word in seen:
            problem = "is repeated" if word in seen else "is empty or contains a space"
            raise TokenizerError(f"{name}: {shown(word)}, of id {i}, {problem}; give each word once")
        seen.add(word)
    model = b"".join(_piece(i, word, special) for i, word in enumerate(words))
    trainer = _number(_MODEL_TYPE, _WORD_MODEL) + _number(_VOCAB_SIZE, len(words))
    for kind, i in special.items():
        trainer += _number(_SPECIAL_IDS[kind], i) + _bytes(_SPECIAL_TOKENS[kind], words[i].encode())
    trainer += _bytes(_UNK_SURFACE, " ⁇".encode())  # a word includes the space before it, so ⁇ must too
    model += _bytes(_TRAINER, trainer) + _bytes(_NORMALIZER, _bytes(_NORMALIZER_NAME, b"identity"))
    return SentencePieceTokenizer(model, name=name)


def _find(words: Sequence[str], kind: str) -> int | None:
    """Return the id of a special token, or None."""
    for token_name in _TOKEN_NAMES[kind]:
        for i, word in enumerate(words):
            if word.lower() in (f"<{token_name}>", f"[{token_name}]"):
                return i
    return None


def _piece(i: int, word: str, special: dict[str, int]) -> bytes:
    if i in special.values():
        text, kind = word, _UNKNOWN if i == special["unk"] else _CONTROL
    else:
        text, kind = _SPACE + word, _NORMAL
    score = _tag(_PIECE_SCORE, _FIXED32) + bytes(4)
    return _bytes(_PIECE, _bytes(_PIECE_TEXT, text.encode()) + score + _number(_PIECE_TYPE, kind))


def _bytes(field: int, value: bytes) -> bytes:
    return _tag(field, _DELIMITED) + _varint(len(value)) + value


def _number(field: int, value: int) -> bytes:
    return _tag(field, _VARINT) + _varint(value)


def _tag(field: int, wire: int) -> bytes:
    return _varint(field << 3 | wire)


def _varint(number: int) -> bytes:
    digits = bytearray()
    while number > 0x7F:
        digits.append(number & 0x7F | 0x80)
        number >>= 7
    digits.append(number)
    return bytes(digits)


MODEL, TOKENS = ".spm", ".pieces.json"

_LEADING_TAG = re.compile(r">>.*?<<", re.DOTALL)


class VocabularyTokenizer(Tokenizer):
    """A SentencePiece model and a list of tokens, whose indices are the ids; equal to transformers.

    A token that is not in the list is unk. A special token inside a text becomes that token, and the text
    around it is tokenised separately. Decoding omits special tokens, unk included.

    Args:
        model: a SentencePiece model; its own ids are not used.
        tokens: the token of each id.
        ids: of the four special tokens. Marian has no begin token; its decoder starts with pad.
        special: further special tokens, such as `__en__`; they are the tags.
        leading_tags: whether `>>fra<<` at the start of a text is one token, as in Marian; such tokens are
            tags too.
        clean_up_spaces: whether decoding removes the spaces before punctuation (transformers'
            clean_up_tokenization_spaces, off by default).
        name: for error messages.

    Raises:
        TokenizerError: not a SentencePiece model, a repeated token, or an id or special token that is not in
            the list.
    """

    def __init__(
        self,
        model: bytes,
        tokens: Sequence[str],
        ids: SpecialIds,
        *,
        special: Collection[str] = (),
        leading_tags: bool = False,
        clean_up_spaces: bool = False,
        name: str = "tokenizer",
    ) -> None:
        self._spm = load_sentencepiece(model, name=f"{name}{MODEL}")
        self._tokens = list(tokens)
        self._ids = {token: i for i, token in enumerate(self._tokens)}
        _check(self._tokens, self._ids, ids, special, where=f"{name}{TOKENS}")
        super().__init__(read_kind(model), len(self._tokens), ids)
        four = [self._tokens[i] for i in (ids.pad, ids.unk, ids.bos, ids.eos)]
        self._special = {token: self._ids[token] for token in (*four, *special)}
        self._special_ids = frozenset(self._special.values())
        ordered = sorted(self._special, key=lambda token: (-len(token), token))
        self._split = re.compile(f"({'|'.join(map(re.escape, ordered))})")
        self._model = model
        self._leading_tags = leading_tags
        self._clean_up_spaces = clean_up_spaces

    @classmethod
    def from_files(cls, files: Mapping[str, bytes], *, name: str = "tokenizer") -> Self:
        """Load the files of `to_files`; `name`, the path without the suffix, is for error messages."""
        try:
            saved = parse_json(files[TOKENS])
            if not isinstance(saved, dict):
                raise ValueError("not an object")
            ids = SpecialIds.read(saved.get("ids"))
            tokens, special = (_texts(saved, key) for key in ("pieces", "special"))
        except ValueError as error:
            raise TokenizerError(
                f"{name}{TOKENS}: not a usable list of tokens ({error}); restore the file"
            ) from None
        return cls(
            files[MODEL],
            tokens,
            ids,
            special=special,
            leading_tags=saved.get("leading_tags") is True,
            clean_up_spaces=saved.get("clean_up_spaces") is True,
            name=name,
        )

    def to_files(self) -> dict[str, bytes]:
        """Return the content of its files by suffix."""
        saved = {
            "ids": {"pad": self.pad_id, "unk": self.unk_id, "bos": self.bos_id, "eos": self.eos_id},
            "special": list(self._special),
            "leading_tags": self._leading_tags,
            "clean_up_spaces": self._clean_up_spaces,
            "pieces": self._tokens,
        }
        return {MODEL: self._model, TOKENS: json.dumps(saved, ensure_ascii=False).encode()}

    def __reduce__(self) -> tuple[object, tuple[dict[str, bytes]]]:
        return type(self).from_files, (self.to_files(),)

    def encode(self, text: str) -> list[int]:
        """Return the ids of a text, without bos and eos; InputError for half of a surrogate pair."""
        return self.encode_batch([text])[0]

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        """Return the ids of many texts; much faster than one call for each."""
        parts = [self._parts(text) for text in texts]
        plain = [part for each in parts for part, _ in each if isinstance(part, str)]
        tokenised = iter(self._tokenise(plain))
        return [
            [i for part, _ in each for i in (next(tokenised) if isinstance(part, str) else (part,))]
            for each in parts
        ]

    def spans(self, text: str) -> list[tuple[int, int]]:
        """Return the span (start, end) in the text of each of its ids."""
        spans, start = [], 0
        for part, length in self._parts(text):
            inner = token_spans(self._spm, part) if isinstance(part, str) else [(0, length)]
            spans += [(start + first, start + last) for first, last in inner]
            start += length
        return spans

    def decode(self, ids: Iterable[int], *, unknown: Sequence[str] | None = None) -> str:
        """Return the text of ids, without special tokens, unk included.

        With `unknown`, unknown tokens become these texts, in their order.
        """
        texts = iter(unknown or ())
        tokens = []
        for i in map(int, ids):
            if i == self.unk_id and unknown is not None:
                tokens.append(next(texts))
            elif i not in self._special_ids and i < self.vocab_size:
                tokens.append(self._tokens[i])
        text = decode_tokens(self._spm, tokens).strip()
        return clean_up_tokenization(text) if self._clean_up_spaces else text

    def tokens(self, ids: Iterable[int]) -> list[str]:
        """Return the tokens of ids, special ones by name."""
        return [self._tokens[i] if i < self.vocab_size else f"<{i}>" for i in map(int, ids)]

    def _special_tokens(self) -> dict[str, int]:
        if not self._leading_tags:
            return self._special
        return self._special | {p: i for p, i in self._ids.items() if _LEADING_TAG.fullmatch(p)}

    def _parts(self, text: str) -> list[tuple[int | str, int]]:
        """Split a text into ids of special tokens and the texts between them, each with its length."""
        parts: list[tuple[int | str, int]] = []
        for i, part in enumerate(self._split.split(text)):
            if i % 2:
                parts.append((self._special[part], len(part)))
                continue
            tag = _LEADING_TAG.match(part) if self._leading_tags else None
            if tag:
                parts.append((self._ids.get(tag[0], self.unk_id), tag.end()))
                part = part[tag.end() :]
            parts.append((part, len(part)))
        return parts

    def _tokenise(self, texts: Sequence[str]) -> list[list[int]]:
        try:
            tokenised: list[list[str]] = self._spm.encode(list(texts), out_type=str) if texts else []
        except (RuntimeError, TypeError, UnicodeError) as error:
            raise InputError(NOT_UNICODE) from error
        return [[self._ids.get(token, self.unk_id) for token in tokens] for tokens in tokenised]


def _texts(saved: Mapping[str, Any], key: str) -> list[str]:
    texts = saved.get(key)
    if not (isinstance(texts, list) and all(isinstance(each, str) for each in texts)):
        raise ValueError(f"{key!r} is not a list of texts")
    return texts


def _check(
    tokens: Sequence[str], known: Mapping[str, int], ids: SpecialIds, special: Collection[str], *, where: str
) -> None:
    if len(known) < len(tokens):
        twice = next(token for i, token in enumerate(tokens) if known[token] != i)
        raise TokenizerError(f"{where}: {shown(twice)} is repeated; give each token once")
    for kind, i in (("pad", ids.pad), ("unk", ids.unk), ("bos", ids.bos), ("eos", ids.eos)):
        if not 0 <= i < len(tokens):
            raise TokenizerError(f"{where}: {kind} has id {i}, but there are {len(tokens):,} tokens")
    for token in special:
        if not token or token not in known:
            raise TokenizerError(f"{where}: the special token {shown(token)} is not among the tokens; add it")
