"""The interface of tokenizers."""

import difflib
import hashlib
import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from itertools import chain
from typing import Annotated, Self, TypeVar

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, Strict, TypeAdapter
from typing_extensions import override

from heedful.errors import InputError, TokenizerError
from heedful.settings.parsing import mistake_of, parse_json, shown

NOT_UNICODE = "the text is not Unicode: it holds half of a surrogate pair; remove it"

# Tags of languages: plain, of M2M100, of Marian, of MADLAD-400, of fairseq's mBART.
_TAG_FORMS = ("{}", "__{}__", ">>{}<<", "<2{}>", "[{}]")
_CONTROL = {"<s>", "</s>", "<pad>", "<unk>", "<mask>"}  # special tokens that are not tags
# Of T5's spans and of Pegasus's pre-training; no tags of languages.
_SENTINEL = re.compile(r"▁?<(extra_id|mask|unk)_[0-9]+>")
_CLOSE_TAGS = 3


Id = Annotated[int, Strict(), Field(ge=0, lt=2**31)]
_Saved = TypeVar("_Saved")


@dataclass(frozen=True, kw_only=True)
class SpecialIds:
    """The ids of the four special tokens; in models without a begin token, bos is another one's id."""

    pad: Id
    unk: Id
    bos: Id
    eos: Id


@contextmanager
def reading(content: bytes, kind: type[_Saved], name: str) -> Iterator[_Saved]:
    """Parse the JSON of a tokenizer's file as a dataclass; keys that it does not have are ignored.

    A ValueError of the block becomes a TokenizerError, too.
    """
    try:
        yield TypeAdapter(kind).validate_python(parse_json(content))
    except ValueError as error:
        raise TokenizerError(f"{name}: not usable ({mistake_of(error)}); restore the file") from None


@contextmanager
def refusing_surrogates(*texts: str) -> Iterator[None]:
    """Turn an error of a tokenizer into an InputError if a text has half of a surrogate pair."""
    try:
        yield
    except (RuntimeError, TypeError, UnicodeError) as error:
        try:
            "".join(texts).encode()
        except UnicodeEncodeError:
            raise InputError(NOT_UNICODE) from error
        raise


def ids_of_tokens(tokens: Sequence[str], name: str) -> dict[str, int]:
    """Return the id of each token, its index; TokenizerError if one is repeated."""
    by_token = {token: i for i, token in enumerate(tokens)}
    if len(by_token) < len(tokens):
        twice = next(token for i, token in enumerate(tokens) if by_token[token] != i)
        raise TokenizerError(f"{name}: {shown(twice)} is repeated; give each token once")
    return by_token


class Tokenizer(ABC):
    """Encodes text as ids, and decodes ids; immutable.

    Attributes:
        kind: "bpe", "unigram", "word", "char" or "byte".
        vocab_size: the number of ids.
        pad_id, unk_id, bos_id, eos_id: the ids of padding, an unknown token, a sentence's start and its end.
    """

    def __init__(self, kind: str, vocab_size: int, ids: SpecialIds, *, name: str = "tokenizer") -> None:
        """Check the special ids; `name` is for error messages."""
        for special, i in asdict(ids).items():
            if not 0 <= i < vocab_size:
                raise TokenizerError(f"{name}: {special} has id {i}, but there are {vocab_size:,} tokens")
        self.kind = kind
        self.vocab_size = vocab_size
        self.pad_id, self.unk_id, self.bos_id, self.eos_id = ids.pad, ids.unk, ids.bos, ids.eos
        self._saved_ids = asdict(ids)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.kind}, {self.vocab_size:,} tokens)"

    def __reduce__(self) -> tuple[object, tuple[dict[str, bytes]]]:
        return type(self).from_files, (self.to_files(),)

    def encode(self, text: str) -> list[int]:
        """Return the ids of a text, without bos and eos; InputError for half of a surrogate pair."""
        return self.encode_batch([text])[0]

    @abstractmethod
    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        """Return the ids of many texts; much faster than one call for each. Raises as `encode`."""

    @abstractmethod
    def spans(self, text: str) -> list[tuple[int, int]]:
        """Return the span (start, end) in the text of each of its ids, spaces included."""

    def unknown_text(self, text: str) -> str:
        """Return what stands at the first unknown token of a text; nothing without one."""
        spans = zip(self.encode(text), self.spans(text), strict=True)
        start, end = next((span for token, span in spans if token == self.unk_id), (0, 0))
        return text[start:end].strip()

    @abstractmethod
    def decode(self, ids: Iterable[int], *, unknown: Sequence[str] | None = None) -> str:
        """Return the text of ids, without special tokens.

        With `unknown`, unknown tokens become these texts, in their order; a text includes the space before
        it, if any.
        """

    @abstractmethod
    def tokens(self, ids: Iterable[int]) -> list[str]:
        """Return the tokens of ids, special ones by name (`<s>`, `</s>`)."""

    @abstractmethod
    def to_files(self) -> dict[str, bytes]:
        """Return the content of its files by suffix, such as `.model`."""

    @classmethod
    @abstractmethod
    def from_files(cls, files: Mapping[str, bytes], *, name: str = "tokenizer") -> Self:
        """Load the files of `to_files`; `name`, the path without the suffix, is for error messages."""

    @abstractmethod
    def _special_tokens(self) -> dict[str, int]:
        """Return the ids of control tokens and tags, by token."""

    def tag_id(self, tag: str) -> int:
        """Return the id of a tag ("fr" for `__fr__`) or control token; TokenizerError if there is none."""
        known = self._special_tokens()
        for form in _TAG_FORMS:
            if (tag_id := known.get(form.format(tag))) is not None:
                return tag_id
        raise TokenizerError(f"{shown(tag)} is not a tag of this model; {_close(tag, self.tags())}")

    def tags(self) -> list[str]:
        """Return the tags of languages or domains as in the vocabulary, in alphabetical order."""
        four = self._saved_ids.values()
        return sorted(
            token
            for token, i in self._special_tokens().items()
            if i not in four and token not in _CONTROL and not is_sentinel(token)
        )

    def tag_ids(self, tag: str) -> tuple[int, ...]:
        """Return the ids of a tag before a text. Raises as `tag_id`."""
        return (self.tag_id(tag),)

    def digest(self) -> bytes:
        """Return a SHA-256 of its files."""
        checksums = [
            (suffix.encode(), hashlib.sha256(content).digest())
            for suffix, content in sorted(self.to_files().items())
        ]
        if len(checksums) == 1:
            return checksums[0][1]
        return hashlib.sha256(b"".join(chain.from_iterable(checksums))).digest()


class ListedTokenizer(Tokenizer):
    """A tokenizer with a list of tokens by their ids.

    Args:
        kind: as of `Tokenizer`.
        tokens: the token of each id.
        ids: the ids of the four special tokens.
        name: the name in error messages.

    Raises:
        TokenizerError: a repeated token, or an id that is not in the list.
    """

    def __init__(self, kind: str, tokens: Sequence[str], ids: SpecialIds, *, name: str) -> None:
        self._tokens = list(tokens)
        self._ids = ids_of_tokens(self._tokens, name)
        self._special: dict[str, int] = {}  # that decoding omits
        super().__init__(kind, len(self._tokens), ids, name=name)

    @override
    def tokens(self, ids: Iterable[int]) -> list[str]:
        return [self._tokens[i] if i < self.vocab_size else f"<{i}>" for i in map(int, ids)]

    @override
    def _special_tokens(self) -> dict[str, int]:
        return self._special

    def _written(self, ids: Iterable[int], unknown: Iterable[str] | None) -> list[str]:
        """Return the tokens that are not special, with the texts of unknown ones if these are given."""
        texts, special = iter(unknown or ()), set(self._special.values())
        tokens: list[str] = []
        for i in map(int, ids):
            if i == self.unk_id and unknown is not None:
                tokens.append(next(texts))
            elif i not in special and i < self.vocab_size:
                tokens.append(self._tokens[i])
        return tokens


def is_sentinel(token: str) -> bool:
    """Return whether a token stands for text that T5 or Pegasus was trained to fill in."""
    return _SENTINEL.fullmatch(token) is not None


def _close(tag: str, tags: Sequence[str]) -> str:
    """Suggest tags that start with the same letters, or similar ones."""
    bare = {known.strip("_<>").lower(): known for known in tags}
    if not bare:
        return "it has none"
    bare_tag = tag.strip("_<>").lower()
    close = [name for name in bare if name.startswith(bare_tag)]
    close = close or difflib.get_close_matches(bare_tag, bare, n=_CLOSE_TAGS)
    names = [shown(bare[name]) for name in [*(close or bare)][:_CLOSE_TAGS]]
    if close:
        return f"did you mean {' or '.join(names)}?"
    return f"there are {len(bare)}, such as {', '.join(names)}"


# The replacements of transformers' clean_up_tokenization.
_JOINED = (
    *((" .", "."), (" ?", "?"), (" !", "!"), (" ,", ","), (" ' ", "'")),
    *((" n't", "n't"), (" 'm", "'m"), (" 's", "'s"), (" 've", "'ve"), (" 're", "'re")),
)


def clean_up_tokenization(text: str) -> str:
    """Remove the spaces before punctuation and English contractions.

    >>> clean_up_tokenization("do n't , please !")
    "don't, please!"
    """
    for apart, joined in _JOINED:
        text = text.replace(apart, joined)
    return text


def pad(
    rows: Sequence[NDArray[np.integer] | Sequence[int]], pad_id: int, *, length_multiple: int = 1
) -> NDArray[np.int64]:
    """Return rows of ids as one array (B, L), filled on the right with `pad_id`.

    Args:
        rows: ids, of any lengths.
        pad_id: the id of padding.
        length_multiple: L is rounded up to a multiple of it.
    """
    longest = max(map(len, rows), default=0)
    padded = np.full((len(rows), -(-longest // length_multiple) * length_multiple), pad_id, dtype=np.int64)
    for row, ids in zip(padded, rows, strict=True):
        row[: len(ids)] = ids
    return padded
