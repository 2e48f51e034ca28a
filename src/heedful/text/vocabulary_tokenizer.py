"""Tokenizers of imported models: a SentencePiece model with a list of tokens for the ids, and bytes."""

import json
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import chain
from typing import Self

from pydantic import StrictBool, StrictStr
from sentencepiece import SentencePieceNormalizer
from typing_extensions import override

from heedful.errors import TokenizerError
from heedful.settings.parsing import shown
from heedful.text.added_tokens import AddedToken, AddedTokens, with_flags, write_added
from heedful.text.sentencepiece_tokenizer import (
    SentencePieceTokenizer,
    decode_tokens,
    load_sentencepiece,
    read_kind,
    token_spans,
)
from heedful.text.tokenizer import (
    ListedTokenizer,
    SpecialIds,
    Tokenizer,
    clean_up_tokenization,
    reading,
    refusing_surrogates,
)

# How vocabularies write the four special tokens, between <> or [], in upper or lower case.
_TOKEN_NAMES = {
    "pad": ("pad", "blank"),
    "unk": ("unk", "unknown"),
    "bos": ("s", "bos", "sos", "start"),
    "eos": ("/s", "eos", "end"),
}
_SPACE = "▁"  # SentencePiece's sign for the space before a word

# Numbers of the format: fields of ModelProto, SentencePiece and TrainerSpec; types of tokens and of a model.
_PIECE, _TRAINER, _NORMALIZER = 1, 2, 3
_PIECE_TEXT, _PIECE_SCORE, _PIECE_TYPE = 1, 2, 3
_NORMAL, _UNKNOWN, _CONTROL = 1, 2, 3
_MODEL_TYPE, _VOCAB_SIZE, _UNK_SURFACE = 3, 4, 44
_SPECIAL_IDS = {"unk": 40, "bos": 41, "eos": 42, "pad": 43}
_SPECIAL_TOKENS = {"unk": 45, "bos": 46, "eos": 47, "pad": 48}
_NORMALIZER_NAME = 1
_WORD_MODEL = 3
_VARINT, _DELIMITED, _FIXED32 = 0, 2, 5


def tokenizer_from_words(
    words: Sequence[str],
    *,
    name: str = "vocabulary",
    starts_with_pad: bool = False,
    ids: SpecialIds | None = None,
    tags: Collection[str] = (),
) -> SentencePieceTokenizer:
    """Return a tokenizer that splits at spaces and looks each word up.

    Words may contain other white space, such as a no-break space.

    Args:
        words: the words by id, with pad, begin and end tokens in brackets, such as `<pad> <s> </s>` or
            `[PAD] [SOS] [EOS]`. If there is none for unknown words (`<unk>`), one is appended.
        name: the name in error messages.
        starts_with_pad: whether there is no begin token; padding's id is its id then.
        ids: the ids of the special tokens, if these have other names; words may have such names then.
        tags: words that are special too, such as language tags.

    Raises:
        TokenizerError: a special token is missing, or a word is empty, contains a space or is repeated.
    """
    words = list(words)
    special = _special_ids(words, name, starts_with_pad=starts_with_pad) if ids is None else asdict(ids)
    seen: set[str] = set()
    for i, word in enumerate(words):
        if i in special.values() and ids is not None:
            continue
        if not word or " " in word or word in seen:
            problem = "is repeated" if word in seen else "is empty or contains a space"
            raise TokenizerError(f"{name}: {shown(word)}, of id {i}, {problem}; give each word once")
        seen.add(word)
    control = {*special.values(), *(i for i, word in enumerate(words) if word in tags)}
    kinds = {**dict.fromkeys(control, _CONTROL), special["unk"]: _UNKNOWN}
    model = b"".join(_piece(word, kinds.get(i, _NORMAL)) for i, word in enumerate(words))
    trainer = _field(_MODEL_TYPE, _WORD_MODEL) + _field(_VOCAB_SIZE, len(words))
    for kind, i in special.items():
        trainer += _field(_SPECIAL_IDS[kind], i) + _field(_SPECIAL_TOKENS[kind], words[i].encode())
    trainer += _field(_UNK_SURFACE, " ⁇".encode())  # a word includes the space before it, so ⁇ must too
    model += _field(_TRAINER, trainer) + _field(_NORMALIZER, _field(_NORMALIZER_NAME, b"identity"))
    return SentencePieceTokenizer(model, name=name)


def _special_ids(words: list[str], name: str, *, starts_with_pad: bool) -> dict[str, int]:
    """Return the ids of the special tokens by their names; append one for unknown words if there is none."""
    if _find(words, "unk") is None:
        words.append("<unk>")
    special: dict[str, int] = {}
    for kind, (token_name, *_) in _TOKEN_NAMES.items():
        token_id = _find(words, "pad" if starts_with_pad and kind == "bos" else kind)
        if token_id is None:
            raise TokenizerError(f"{name}: there is no token such as '<{token_name}>'; without it, use ids")
        special[kind] = token_id
    return special


def _find(words: Sequence[str], kind: str) -> int | None:
    """Return the id of a special token, or None."""
    lowered = [word.lower() for word in words]
    for token_name in _TOKEN_NAMES[kind]:
        for form in (f"<{token_name}>", f"[{token_name}]"):
            if form in lowered:
                return lowered.index(form)
    return None


def _piece(word: str, kind: int) -> bytes:
    text = _SPACE + word if kind == _NORMAL else word
    score = _varint(_PIECE_SCORE << 3 | _FIXED32) + bytes(4)
    return _field(_PIECE, _field(_PIECE_TEXT, text.encode()) + score + _field(_PIECE_TYPE, kind))


def _field(number: int, value: int | bytes) -> bytes:
    """Return a field of a message: a whole number, or bytes with their length."""
    if isinstance(value, int):
        return _varint(number << 3 | _VARINT) + _varint(value)
    return _varint(number << 3 | _DELIMITED) + _varint(len(value)) + value


def _varint(number: int) -> bytes:
    digits = bytearray()
    while number > 0x7F:
        digits.append(number & 0x7F | 0x80)
        number >>= 7
    digits.append(number)
    return bytes(digits)


MODEL, TOKENS = ".spm", ".pieces.json"

_LEADING_TAG = re.compile(r">>.*?<<", re.DOTALL)
_TARGET_TAG = re.compile(r"<2[A-Za-z_]+>")  # of MADLAD-400, where they are symbols of the model


@dataclass(frozen=True)
class _Saved:
    ids: SpecialIds
    pieces: list[StrictStr]
    special: list[StrictStr]
    leading_tags: StrictBool = False
    clean_up_spaces: StrictBool = False
    underscores: StrictBool = False
    added: list[AddedToken] = field(default_factory=list)


class VocabularyTokenizer(ListedTokenizer):
    """A SentencePiece model and the list of tokens by id; equal to transformers.

    A token that is not in the list is unk. A special token inside a text becomes that token, and the text
    around it is tokenised separately. Decoding omits special tokens, unk included.

    Attributes:
        added: the tokens of `special` with flags.

    Args:
        model: a SentencePiece model; its own ids are not used.
        tokens: the token of each id.
        ids: the ids of the four special tokens. Marian has no begin token; its decoder starts with pad.
        special: further tokens that a text is split at: special ones, such as `__en__`, which are the tags;
            others, or those with flags, as added tokens.
        leading_tags: whether `>>fra<<` at the start of a text is one token, as in Marian; such tokens are
            tags too.
        clean_up_spaces: transformers' clean_up_tokenization_spaces: no space before punctuation in decoding.
        underscores: whether decoding turns underscores into spaces, as Argos Translate does.
        name: the name in error messages.

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
        special: Collection[str | AddedToken] = (),
        leading_tags: bool = False,
        clean_up_spaces: bool = False,
        underscores: bool = False,
        name: str = "tokenizer",
    ) -> None:
        self._spm = load_sentencepiece(model, name=f"{name}{MODEL}")
        super().__init__(read_kind(model), tokens, ids, name=f"{name}{TOKENS}")
        self.added = tuple(token for token in special if isinstance(token, AddedToken))
        plain = [token for token in special if isinstance(token, str)]
        known = self._ids.keys() - {""}
        for token in (*plain, *(added.content for added in self.added)):
            if token not in known:
                raise TokenizerError(
                    f"{name}{TOKENS}: the special token {shown(token)} is not among the tokens; add it"
                )
        four = self.tokens(self._saved_ids.values())
        self._special = {token: self._ids[token] for token in (*four, *plain)}
        self._special |= {added.content: added.id for added in self.added if added.special}
        split = with_flags(self._special, self.added)
        is_normalized = any(added.normalized for added in self.added)
        self._split = AddedTokens(split.values(), normalize=_normalizer(model) if is_normalized else None)
        self._model = model
        self._leading_tags = leading_tags
        self._clean_up_spaces = clean_up_spaces
        self._underscores = underscores

    @classmethod
    @override
    def from_files(cls, files: Mapping[str, bytes], *, name: str = "tokenizer") -> Self:
        with reading(files[TOKENS], _Saved, f"{name}{TOKENS}") as saved:
            return cls(
                files[MODEL],
                saved.pieces,
                saved.ids,
                special=[*saved.special, *saved.added],
                leading_tags=saved.leading_tags,
                clean_up_spaces=saved.clean_up_spaces,
                underscores=saved.underscores,
                name=name,
            )

    @override
    def to_files(self) -> dict[str, bytes]:
        saved = {
            "ids": self._saved_ids,
            "special": list(self._special),
            "leading_tags": self._leading_tags,
            "clean_up_spaces": self._clean_up_spaces,
            **({"underscores": True} if self._underscores else {}),
            **write_added(self.added),
            "pieces": self._tokens,
        }
        return {MODEL: self._model, TOKENS: json.dumps(saved, ensure_ascii=False).encode()}

    @override
    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        parts_of_texts = [*map(self._parts, texts)]
        plain = [part for part, _, _ in chain.from_iterable(parts_of_texts) if isinstance(part, str)]
        tokenised = iter(self._tokenise(plain))
        batch: list[list[int]] = []
        for parts in parts_of_texts:
            ids: list[int] = []
            for part, _, _ in parts:
                ids += next(tokenised) if isinstance(part, str) else [part]
            batch.append(ids)
        return batch

    @override
    def spans(self, text: str) -> list[tuple[int, int]]:
        spans: list[tuple[int, int]] = []
        for part, start, end in self._parts(text):
            inner = token_spans(self._spm, part) if isinstance(part, str) else [(0, end - start)]
            spans += [(start + first, start + last) for first, last in inner]
        return spans

    @override
    def decode(self, ids: Iterable[int], *, unknown: Sequence[str] | None = None) -> str:
        text = decode_tokens(self._spm, self._written(ids, unknown)).strip()
        if self._underscores:
            text = text.replace("_", " ").strip()
        return clean_up_tokenization(text) if self._clean_up_spaces else text

    @override
    def tag_ids(self, tag: str) -> tuple[int, ...]:
        """The SentencePiece model may write a space before it."""
        tag_id = self.tag_id(tag)
        token = self._tokens[tag_id]
        return tuple(self.encode(token)) if _TARGET_TAG.fullmatch(token) else (tag_id,)

    @override
    def _special_tokens(self) -> dict[str, int]:
        tags = _LEADING_TAG if self._leading_tags else _TARGET_TAG
        return self._special | {token: i for token, i in self._ids.items() if tags.fullmatch(token)}

    def _parts(self, text: str) -> list[tuple[int | str, int, int]]:
        """Split a text into the ids of tokens that it is split at and the texts between, with their spans."""
        parts: list[tuple[int | str, int, int]] = []
        for token, start, end in self._split.split(text):
            if token is not None:
                parts.append((token.id, start, end))
                continue
            tag = _LEADING_TAG.match(text, start, end) if self._leading_tags else None
            if tag:
                parts.append((self._ids.get(tag[0], self.unk_id), start, tag.end()))
                start = tag.end()
            parts.append((text[start:end], start, end))
        return parts

    def _tokenise(self, texts: Sequence[str]) -> list[list[int]]:
        with refusing_surrogates(*texts):
            tokenised: list[list[str]] = self._spm.encode(list(texts), out_type=str) if texts else []
        return [[self._ids.get(token, self.unk_id) for token in tokens] for tokens in tokenised]


def _normalizer(model: bytes) -> Callable[[str], tuple[str, Sequence[int]]]:
    """Return the normalisation rules of a SentencePiece model, without its rules for spaces."""
    rules = SentencePieceNormalizer(
        model_proto=model, add_dummy_prefix=False, escape_whitespaces=False, remove_extra_whitespaces=False
    )

    def normalize(text: str) -> tuple[str, Sequence[int]]:
        with refusing_surrogates(text):
            normalized: tuple[str, Sequence[int]] = rules.normalize(text, with_offsets=True)
        return normalized

    return normalize


BYTES = ".bytes.json"
_FIRST_BYTE = 3  # after <pad>, </s> and <unk>
_BYTE_SENTINELS = 125
_FIRST_ADDED = _FIRST_BYTE + 256 + _BYTE_SENTINELS
# The first three take the spaces around them along, as in transformers.
_BYTE_SPECIAL = (
    AddedToken(content="<pad>", id=0, special=True, lstrip=True, rstrip=True),
    AddedToken(content="</s>", id=1, special=True, lstrip=True, rstrip=True),
    AddedToken(content="<unk>", id=2, special=True, lstrip=True, rstrip=True),
    *(
        AddedToken(content=f"<extra_id_{i}>", id=_FIRST_BYTE + 256 + i, special=True)
        for i in range(_BYTE_SENTINELS)
    ),
)


@dataclass(frozen=True)
class _SavedBytes:
    added: list[AddedToken] = field(default_factory=list)


class ByteTokenizer(Tokenizer):
    """ByT5's (Xue et al., 2022): the id of a byte of UTF-8 is its number plus 3; equal to transformers.

    Ids 0 to 2 are padding, the end and unknown; 125 sentinels follow the bytes. There is no begin token:
    decoders start with padding. Special tokens inside a text become those tokens. Decoding omits them, and
    bytes that are not UTF-8.

    Args:
        added: further tokens, in the order of their ids, which come after the sentinels'.
        name: the name in error messages.

    Raises:
        TokenizerError: the ids of added tokens do not follow the sentinels.
    """

    def __init__(self, added: Sequence[AddedToken] = (), *, name: str = "tokenizer") -> None:
        size = _FIRST_ADDED + len(added)
        if [token.id for token in added] != [*range(_FIRST_ADDED, size)]:
            raise TokenizerError(
                f"{name}{BYTES}: the ids of added tokens are not {_FIRST_ADDED} and following"
            )
        super().__init__("byte", size, SpecialIds(pad=0, unk=2, bos=0, eos=1), name=name)
        self._added = tuple(added)
        own = (*_BYTE_SPECIAL, *added)
        self._special = {token.content: token.id for token in own if token.special}
        self._names = {token.id: token.content for token in own}
        self._bytes = {token.id: token.content.encode() for token in own if not token.special}
        for byte in range(256):
            self._names[_FIRST_BYTE + byte] = chr(byte)
            self._bytes[_FIRST_BYTE + byte] = bytes([byte])
        self._split = AddedTokens(own)

    @classmethod
    @override
    def from_files(cls, files: Mapping[str, bytes], *, name: str = "tokenizer") -> Self:
        with reading(files[BYTES], _SavedBytes, f"{name}{BYTES}") as saved:
            tokenizer = cls(saved.added, name=name)
            if files[BYTES] != tokenizer.to_files()[BYTES]:
                raise ValueError("not the description of a byte tokenizer")
        return tokenizer

    @override
    def to_files(self) -> dict[str, bytes]:
        saved = {"first_byte": _FIRST_BYTE, "sentinels": _BYTE_SENTINELS, **write_added(self._added)}
        return {BYTES: json.dumps(saved).encode()}

    @override
    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        return [[i for i, _ in self._with_spans(text)] for text in texts]

    @override
    def spans(self, text: str) -> list[tuple[int, int]]:
        return [span for _, span in self._with_spans(text)]

    @override
    def decode(self, ids: Iterable[int], *, unknown: Sequence[str] | None = None) -> str:
        texts = iter(unknown or ())
        encoded = b""
        for i in map(int, ids):
            is_replaced = i == self.unk_id and unknown is not None
            encoded += next(texts).encode() if is_replaced else self._bytes.get(i, b"")
        return encoded.decode(errors="ignore")

    @override
    def tokens(self, ids: Iterable[int]) -> list[str]:
        return [self._names.get(i, f"<{i}>") for i in map(int, ids)]

    @override
    def _special_tokens(self) -> dict[str, int]:
        return self._special

    def _with_spans(self, text: str) -> list[tuple[int, tuple[int, int]]]:
        result: list[tuple[int, tuple[int, int]]] = []
        for token, start, end in self._split.split(text):
            if token is not None:
                result.append((token.id, (start, end)))
                continue
            with refusing_surrogates(text):
                encoded = [character.encode() for character in text[start:end]]
            for at, character_bytes in enumerate(encoded, start=start):
                result += ((_FIRST_BYTE + byte, (at, at + 1)) for byte in character_bytes)
        return result
