"""Tokenizers of imported models: a SentencePiece model with a list of tokens for the ids, and bytes."""

import json
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Self

from sentencepiece import SentencePieceNormalizer
from typing_extensions import override

from heedful.errors import InputError, TokenizerError
from heedful.settings.parsing import parse_json, shown
from heedful.text.added_tokens import AddedToken, AddedTokens, read_added, write_added
from heedful.text.sentencepiece_tokenizer import (
    SentencePieceTokenizer,
    decode_tokens,
    load_sentencepiece,
    read_kind,
    token_spans,
)
from heedful.text.tokenizer import NOT_UNICODE, SpecialIds, Tokenizer, clean_up_tokenization, read_texts

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
        words: by id; they must include pad, begin and end tokens in brackets, such as `<pad> <s> </s>` or
            `[PAD] [SOS] [EOS]`. If there is none for unknown words (`<unk>`), one is appended.
        name: for error messages.
        starts_with_pad: whether there is no begin token; padding's id is its id then.
        ids: of the special tokens, if they are not those with such names; words may have the same names.
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
    trainer = _number(_MODEL_TYPE, _WORD_MODEL) + _number(_VOCAB_SIZE, len(words))
    for kind, i in special.items():
        trainer += _number(_SPECIAL_IDS[kind], i) + _bytes(_SPECIAL_TOKENS[kind], words[i].encode())
    trainer += _bytes(_UNK_SURFACE, " ⁇".encode())  # a word includes the space before it, so ⁇ must too
    model += _bytes(_TRAINER, trainer) + _bytes(_NORMALIZER, _bytes(_NORMALIZER_NAME, b"identity"))
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
    for token_name in _TOKEN_NAMES[kind]:
        for i, word in enumerate(words):
            if word.lower() in (f"<{token_name}>", f"[{token_name}]"):
                return i
    return None


def _piece(word: str, kind: int) -> bytes:
    text = _SPACE + word if kind == _NORMAL else word
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
_TARGET_TAG = re.compile(r"<2[A-Za-z_]+>")  # of MADLAD-400, whose SentencePiece model has them as symbols


class VocabularyTokenizer(Tokenizer):
    """A SentencePiece model and a list of tokens, whose indices are the ids; equal to transformers.

    A token that is not in the list is unk. A special token inside a text becomes that token, and the text
    around it is tokenised separately. Decoding omits special tokens, unk included.

    Attributes:
        added: the tokens of `special` with flags.

    Args:
        model: a SentencePiece model; its own ids are not used.
        tokens: the token of each id.
        ids: of the four special tokens. Marian has no begin token; its decoder starts with pad.
        special: further tokens that a text is split at: special ones, such as `__en__`, which are the tags;
            others, or those with flags, as added tokens.
        leading_tags: whether `>>fra<<` at the start of a text is one token, as in Marian; such tokens are
            tags too.
        clean_up_spaces: whether decoding removes the spaces before punctuation (transformers'
            clean_up_tokenization_spaces, off by default).
        underscores: whether decoding turns underscores into spaces, as Argos Translate does.
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
        special: Collection[str | AddedToken] = (),
        leading_tags: bool = False,
        clean_up_spaces: bool = False,
        underscores: bool = False,
        name: str = "tokenizer",
    ) -> None:
        self._spm = load_sentencepiece(model, name=f"{name}{MODEL}")
        self._tokens = list(tokens)
        self._ids = {token: i for i, token in enumerate(self._tokens)}
        self.added = tuple(each for each in special if isinstance(each, AddedToken))
        names = [each if isinstance(each, str) else each.content for each in special]
        _check(self._tokens, self._ids, ids, names, where=f"{name}{TOKENS}")
        super().__init__(read_kind(model), len(self._tokens), ids)
        own = dict.fromkeys(self._tokens[i] for i in (ids.pad, ids.unk, ids.bos, ids.eos))
        own |= dict.fromkeys(each for each in special if isinstance(each, str))
        split = {token: AddedToken(content=token, id=self._ids[token], special=True) for token in own}
        split |= {each.content: each for each in self.added}
        self._special = {token: each.id for token, each in split.items() if each.special or token in own}
        self._special_ids = frozenset(self._special.values())
        is_normalized = any(each.normalized for each in split.values())
        self._split = AddedTokens(split.values(), normalize=_normalizer(model) if is_normalized else None)
        self._model = model
        self._leading_tags = leading_tags
        self._clean_up_spaces = clean_up_spaces
        self._underscores = underscores

    @classmethod
    def from_files(cls, files: Mapping[str, bytes], *, name: str = "tokenizer") -> Self:
        """Load the files of `to_files`; `name`, the path without the suffix, is for error messages."""
        try:
            saved = parse_json(files[TOKENS])
            if not isinstance(saved, dict):
                raise ValueError("not an object")
            ids = SpecialIds.read(saved.get("ids"))
            tokens, special = (read_texts(saved, key) for key in ("pieces", "special"))
            added = read_added(saved.get("added"))
        except ValueError as error:
            raise TokenizerError(
                f"{name}{TOKENS}: not a usable list of tokens ({error}); restore the file"
            ) from None
        return cls(
            files[MODEL],
            tokens,
            ids,
            special=[*special, *added],
            leading_tags=saved.get("leading_tags") is True,
            clean_up_spaces=saved.get("clean_up_spaces") is True,
            underscores=saved.get("underscores") is True,
            name=name,
        )

    def to_files(self) -> dict[str, bytes]:
        """Return the content of its files by suffix."""
        saved = {
            "ids": {"pad": self.pad_id, "unk": self.unk_id, "bos": self.bos_id, "eos": self.eos_id},
            "special": list(self._special),
            "leading_tags": self._leading_tags,
            "clean_up_spaces": self._clean_up_spaces,
            **({"underscores": True} if self._underscores else {}),
            **write_added(self.added),
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
        plain = [part for each in parts for part, _, _ in each if isinstance(part, str)]
        tokenised = iter(self._tokenise(plain))
        return [
            [i for part, _, _ in each for i in (next(tokenised) if isinstance(part, str) else (part,))]
            for each in parts
        ]

    def spans(self, text: str) -> list[tuple[int, int]]:
        """Return the span (start, end) in the text of each of its ids."""
        spans: list[tuple[int, int]] = []
        for part, start, end in self._parts(text):
            inner = token_spans(self._spm, part) if isinstance(part, str) else [(0, end - start)]
            spans += [(start + first, start + last) for first, last in inner]
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
        if self._underscores:
            text = text.replace("_", " ").strip()
        return clean_up_tokenization(text) if self._clean_up_spaces else text

    def tokens(self, ids: Iterable[int]) -> list[str]:
        """Return the tokens of ids, special ones by name."""
        return [self._tokens[i] if i < self.vocab_size else f"<{i}>" for i in map(int, ids)]

    @override
    def tag_ids(self, tag: str) -> tuple[int, ...]:
        """The SentencePiece model may write a space before it."""
        tag_id = self.tag_id(tag)
        token = self._tokens[tag_id]
        return tuple(self.encode(token)) if _TARGET_TAG.fullmatch(token) else (tag_id,)

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
        try:
            tokenised: list[list[str]] = self._spm.encode(list(texts), out_type=str) if texts else []
        except (RuntimeError, TypeError, UnicodeError) as error:
            raise InputError(NOT_UNICODE) from error
        return [[self._ids.get(token, self.unk_id) for token in tokens] for tokens in tokenised]


def _normalizer(model: bytes) -> Callable[[str], tuple[str, Sequence[int]]]:
    """Return the normalisation rules of a SentencePiece model, without its rules for spaces."""
    rules = SentencePieceNormalizer(
        model_proto=model, add_dummy_prefix=False, escape_whitespaces=False, remove_extra_whitespaces=False
    )

    def normalize(text: str) -> tuple[str, Sequence[int]]:
        try:
            normalized: tuple[str, Sequence[int]] = rules.normalize(text, with_offsets=True)
        except (TypeError, UnicodeError) as error:
            raise InputError(NOT_UNICODE) from error
        return normalized

    return normalize


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


BYTES = ".bytes.json"
_FIRST_BYTE = 3  # after <pad>, </s> and <unk>
_BYTE_SENTINELS = 125
_FIRST_ADDED = _FIRST_BYTE + 256 + _BYTE_SENTINELS
# The first three take the spaces around them along, as in transformers.
_BYTE_SPECIAL = (
    *(
        AddedToken(content=token, id=i, special=True, lstrip=True, rstrip=True)
        for i, token in enumerate(("<pad>", "</s>", "<unk>"))
    ),
    *(
        AddedToken(content=f"<extra_id_{i}>", id=_FIRST_BYTE + 256 + i, special=True)
        for i in range(_BYTE_SENTINELS)
    ),
)


class ByteTokenizer(Tokenizer):
    """ByT5's (Xue et al., 2022): the id of a byte of UTF-8 is its number plus 3; equal to transformers.

    Ids 0 to 2 are padding, the end and unknown; 125 sentinels follow the bytes. There is no begin token:
    decoders start with padding. Special tokens inside a text become those tokens. Decoding omits them, and
    bytes that are not UTF-8.

    Args:
        added: further tokens, in the order of their ids, which come after the sentinels'.
        name: for error messages.

    Raises:
        TokenizerError: the ids of added tokens do not follow the sentinels.
    """

    def __init__(self, added: Sequence[AddedToken] = (), *, name: str = "tokenizer") -> None:
        if [each.id for each in added] != [*range(_FIRST_ADDED, _FIRST_ADDED + len(added))]:
            raise TokenizerError(
                f"{name}{BYTES}: the ids of added tokens are not {_FIRST_ADDED} and following"
            )
        size = _FIRST_ADDED + len(added)
        super().__init__("byte", size, SpecialIds(pad=0, unk=2, bos=0, eos=1))
        self._added = tuple(added)
        self._own = {each.id: each for each in (*_BYTE_SPECIAL, *added)}
        self._split = AddedTokens(self._own.values())

    @classmethod
    def from_files(cls, files: Mapping[str, bytes], *, name: str = "tokenizer") -> Self:
        """Load the files of `to_files`; `name`, the path without the suffix, is for error messages."""
        try:
            saved = parse_json(files[BYTES])
            tokenizer = cls(read_added(saved.get("added") if isinstance(saved, dict) else None), name=name)
        except ValueError as error:
            raise TokenizerError(f"{name}{BYTES}: not usable ({error}); restore the file") from None
        if files[BYTES] != tokenizer.to_files()[BYTES]:
            raise TokenizerError(f"{name}{BYTES}: not the description of a byte tokenizer; restore the file")
        return tokenizer

    def to_files(self) -> dict[str, bytes]:
        """Return the content of its files by suffix."""
        saved = {"first_byte": _FIRST_BYTE, "sentinels": _BYTE_SENTINELS, **write_added(self._added)}
        return {BYTES: json.dumps(saved).encode()}

    def encode(self, text: str) -> list[int]:
        """Return the ids of a text, without eos; InputError for half of a surrogate pair."""
        return [i for i, _ in self._with_spans(text)]

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        """Return the ids of many texts."""
        return [self.encode(text) for text in texts]

    def spans(self, text: str) -> list[tuple[int, int]]:
        """Return the span (start, end) in the text of each of its ids; bytes of a character have the same."""
        return [span for _, span in self._with_spans(text)]

    def decode(self, ids: Iterable[int], *, unknown: Sequence[str] | None = None) -> str:
        """Return the text of ids, without special tokens and without bytes that are not UTF-8.

        With `unknown`, unknown tokens become these texts, in their order.
        """
        texts = iter(unknown or ())
        encoded = bytearray()
        for i in map(int, ids):
            if i == self.unk_id and unknown is not None:
                encoded += next(texts).encode()
            elif i in self._own:
                encoded += b"" if self._own[i].special else self._own[i].content.encode()
            elif _FIRST_BYTE <= i < _FIRST_BYTE + 256:
                encoded.append(i - _FIRST_BYTE)
        return encoded.decode(errors="ignore")

    def tokens(self, ids: Iterable[int]) -> list[str]:
        """Return the tokens of ids: the character of the same number for a byte, special ones by name."""
        return [
            self._own[i].content
            if i in self._own
            else chr(i - _FIRST_BYTE)
            if 0 <= i - _FIRST_BYTE < 256
            else f"<{i}>"
            for i in map(int, ids)
        ]

    def _special_tokens(self) -> dict[str, int]:
        return {each.content: i for i, each in self._own.items() if each.special}

    def _with_spans(self, text: str) -> list[tuple[int, tuple[int, int]]]:
        result: list[tuple[int, tuple[int, int]]] = []
        for token, start, end in self._split.split(text):
            if token is not None:
                result.append((token.id, (start, end)))
                continue
            try:
                encoded = [character.encode() for character in text[start:end]]
            except UnicodeEncodeError:
                raise InputError(NOT_UNICODE) from None
            for at, bytes_of_character in enumerate(encoded, start=start):
                result += ((_FIRST_BYTE + byte, (at, at + 1)) for byte in bytes_of_character)
        return result
