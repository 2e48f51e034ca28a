"""The tokenizer of MarianMT and M2M100: a SentencePiece model tokenises, a list of tokens has the ids."""

import json
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Self

from heedful.errors import InputError, TokenizerError
from heedful.parsing import parse_json, shown
from heedful.text.decoded_text import close_up_spaces
from heedful.text.sentencepiece_format import read_kind
from heedful.text.sentencepiece_tokenizer import decode_pieces, load_processor, piece_spans
from heedful.text.tokenizer import NOT_UNICODE, SpecialIds, Tokenizer

MODEL, PIECES = ".spm", ".pieces.json"

_LEADING_TAG = re.compile(r">>.*?<<", re.DOTALL)


class VocabularyTokenizer(Tokenizer):
    """A SentencePiece model and a list of tokens; ids are indices of the list. The same as in transformers.

    A token that the list does not have is unk. A special token that a text contains is taken as that token,
    and the text around it is tokenised by itself. Decoding leaves special tokens out, unk among them.

    Args:
        model: a SentencePiece model; its own ids are not used.
        pieces: the token of each id.
        ids: of the four special tokens. Marian has no begin token; its decoder begins with pad.
        special: further tokens that stand for no text, such as `__en__`; they are the tags.
        leading_tags: whether `>>fra<<` at the start of a text is one token, as Marian has it; tokens of that
            form are tags too.
        clean_up_spaces: whether decoding removes the spaces before punctuation (transformers'
            clean_up_tokenization_spaces, which is off unless a tokenizer's settings say otherwise).
        name: for error messages.

    Raises:
        TokenizerError: no SentencePiece model, a token that stands there twice, an id or a special token that
            is not in the list.
    """

    def __init__(
        self,
        model: bytes,
        pieces: Sequence[str],
        ids: SpecialIds,
        *,
        special: Collection[str] = (),
        leading_tags: bool = False,
        clean_up_spaces: bool = False,
        name: str = "tokenizer",
    ) -> None:
        self._processor = load_processor(model, name=f"{name}{MODEL}")
        self._pieces = list(pieces)
        self._ids = {piece: i for i, piece in enumerate(self._pieces)}
        _check(self._pieces, self._ids, ids, special, where=f"{name}{PIECES}")
        super().__init__(read_kind(model), len(self._pieces), ids)
        four = [self._pieces[i] for i in (ids.pad, ids.unk, ids.bos, ids.eos)]
        self._special = {piece: self._ids[piece] for piece in (*four, *special)}
        self._special_ids = frozenset(self._special.values())
        longest_first = sorted(self._special, key=lambda piece: (-len(piece), piece))
        self._split = re.compile(f"({'|'.join(map(re.escape, longest_first))})")
        self._model = model
        self._leading_tags = leading_tags
        self._clean_up_spaces = clean_up_spaces

    @classmethod
    def from_files(cls, files: Mapping[str, bytes], *, name: str = "tokenizer") -> Self:
        """Load what `to_files` gave; `name`, the path without the ending, is for error messages."""
        try:
            saved = parse_json(files[PIECES])
            if not isinstance(saved, dict):
                raise ValueError("no object")
            ids = SpecialIds.read(saved.get("ids"))
            pieces, special = (_texts(saved, key) for key in ("pieces", "special"))
        except ValueError as error:
            raise TokenizerError(
                f"{name}{PIECES}: not a usable list of pieces ({error}); restore the file"
            ) from None
        return cls(
            files[MODEL],
            pieces,
            ids,
            special=special,
            leading_tags=saved.get("leading_tags") is True,
            clean_up_spaces=saved.get("clean_up_spaces") is True,
            name=name,
        )

    def to_files(self) -> dict[str, bytes]:
        """The files by the endings of their names."""
        saved = {
            "ids": {"pad": self.pad_id, "unk": self.unk_id, "bos": self.bos_id, "eos": self.eos_id},
            "special": list(self._special),
            "leading_tags": self._leading_tags,
            "clean_up_spaces": self._clean_up_spaces,
            "pieces": self._pieces,
        }
        return {MODEL: self._model, PIECES: json.dumps(saved, ensure_ascii=False).encode()}

    def __reduce__(self) -> tuple[object, tuple[dict[str, bytes]]]:
        return type(self).from_files, (self.to_files(),)

    def encode(self, text: str) -> list[int]:
        """The ids of a text, without bos and eos; InputError for half of a surrogate pair."""
        return self.encode_batch([text])[0]

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        """The ids of many texts; much faster than one call for each."""
        parts = [self._parts(text) for text in texts]
        plain = [part for each in parts for part, _ in each if isinstance(part, str)]
        cut = iter(self._cut(plain))
        return [
            [i for part, _ in each for i in (next(cut) if isinstance(part, str) else (part,))]
            for each in parts
        ]

    def spans(self, text: str) -> list[tuple[int, int]]:
        """Where in a text each of its ids comes from: start and end."""
        spans, start = [], 0
        for part, length in self._parts(text):
            inner = piece_spans(self._processor, part) if isinstance(part, str) else [(0, length)]
            spans += [(start + first, start + last) for first, last in inner]
            start += length
        return spans

    def decode(self, ids: Iterable[int], *, unknown: Sequence[str] | None = None) -> str:
        """The text of ids. Special tokens, unk among them, vanish wherever they stand.

        With `unknown`, unknown tokens become these texts, in their order.
        """
        texts = iter(unknown or ())
        pieces = []
        for i in map(int, ids):
            if i == self.unk_id and unknown is not None:
                pieces.append(next(texts))
            elif i not in self._special_ids and i < self.vocab_size:
                pieces.append(self._pieces[i])
        text = decode_pieces(self._processor, pieces).strip()
        return close_up_spaces(text) if self._clean_up_spaces else text

    def pieces(self, ids: Iterable[int]) -> list[str]:
        """The subword strings of ids, special ones as they are named."""
        return [self._pieces[i] if i < self.vocab_size else f"<{i}>" for i in map(int, ids)]

    def _special_pieces(self) -> dict[str, int]:
        if not self._leading_tags:
            return self._special
        return self._special | {p: i for p, i in self._ids.items() if _LEADING_TAG.fullmatch(p)}

    def _parts(self, text: str) -> list[tuple[int | str, int]]:
        """A text as the ids of the special tokens in it and the texts around them, with their lengths."""
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

    def _cut(self, texts: Sequence[str]) -> list[list[int]]:
        try:
            cut: list[list[str]] = self._processor.encode(list(texts), out_type=str) if texts else []
        except (RuntimeError, TypeError, UnicodeError) as error:
            raise InputError(NOT_UNICODE) from error
        return [[self._ids.get(piece, self.unk_id) for piece in pieces] for pieces in cut]


def _texts(saved: Mapping[str, Any], key: str) -> list[str]:
    found = saved.get(key)
    if not (isinstance(found, list) and all(isinstance(each, str) for each in found)):
        raise ValueError(f"{key!r} is no list of texts")
    return found


def _check(
    pieces: Sequence[str], known: Mapping[str, int], ids: SpecialIds, special: Collection[str], *, where: str
) -> None:
    if len(known) < len(pieces):
        twice = next(piece for i, piece in enumerate(pieces) if known[piece] != i)
        raise TokenizerError(f"{where}: {shown(twice)} stands there twice; give each piece once")
    for kind, i in (("pad", ids.pad), ("unk", ids.unk), ("bos", ids.bos), ("eos", ids.eos)):
        if not 0 <= i < len(pieces):
            raise TokenizerError(f"{where}: {kind} has id {i}, but there are {len(pieces):,} pieces")
    for piece in special:
        if not piece or piece not in known:
            raise TokenizerError(f"{where}: the special piece {shown(piece)} is not among the pieces; add it")
