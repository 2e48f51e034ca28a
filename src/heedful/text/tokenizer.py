"""The interface of tokenizers: text to ids and back."""

import difflib
import hashlib
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Self

from heedful.errors import TokenizerError
from heedful.parsing import Json, is_whole, shown

NOT_UNICODE = "the text is not Unicode: it holds half of a surrogate pair; remove it"

# How models write the tag of a language or domain: as it is, as M2M100 does, as Marian does.
_TAG_FORMS = ("{}", "__{}__", ">>{}<<")
_CONTROL = {"<s>", "</s>", "<pad>", "<unk>", "<mask>"}  # special tokens that no model has as a tag
_CLOSE_TAGS = 3


@dataclass(frozen=True, kw_only=True)
class SpecialIds:
    """The ids of the four special tokens; models without a begin token give another one's id for it."""

    pad: int
    unk: int
    bos: int
    eos: int

    @classmethod
    def read(cls, saved: Json) -> Self:
        """Take them from JSON.

        Raises:
            ValueError: they are not four ids.
        """
        names = [each.name for each in fields(cls)]
        saved = saved if isinstance(saved, dict) else {}
        if not all(is_whole(saved.get(name), most=2**31 - 1) for name in names):
            raise ValueError(f"'ids' are not those of {', '.join(names)}")
        return cls(**{name: saved[name] for name in names})


class Tokenizer(ABC):
    """Text to ids and back; it never changes.

    Attributes:
        kind: "bpe", "unigram", "word", "char": how text is tokenised.
        vocab_size: ids are below it.
        pad_id: of padding.
        unk_id: of unknown tokens.
        bos_id: of the begin of a sentence.
        eos_id: of its end.
    """

    def __init__(self, kind: str, vocab_size: int, ids: SpecialIds) -> None:
        self.kind = kind
        self.vocab_size = vocab_size
        self.pad_id, self.unk_id, self.bos_id, self.eos_id = ids.pad, ids.unk, ids.bos, ids.eos

    @abstractmethod
    def encode(self, text: str) -> list[int]:
        """The ids of a text, without bos and eos.

        Raises:
            InputError: text with half of a surrogate pair, which has no UTF-8.
        """

    @abstractmethod
    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        """The ids of many texts; much faster than one call for each. Raises as `encode` does."""

    @abstractmethod
    def spans(self, text: str) -> list[tuple[int, int]]:
        """Where in a text each of its ids comes from: start and end, with the spaces that it stands for."""

    @abstractmethod
    def decode(self, ids: Iterable[int], *, unknown: Sequence[str] | None = None) -> str:
        """The text of ids. Special tokens vanish wherever they stand.

        With `unknown`, the unknown tokens among the ids read so, in their order; each text has a space before
        it where one belongs there.
        """

    @abstractmethod
    def pieces(self, ids: Iterable[int]) -> list[str]:
        """The subword strings of ids, special ones as they are named (`<s>`, `</s>`)."""

    @abstractmethod
    def to_files(self) -> dict[str, bytes]:
        """Return its files: the content of each by the suffix of its name, such as `.model`."""

    @classmethod
    @abstractmethod
    def from_files(cls, files: Mapping[str, bytes], *, name: str = "tokenizer") -> Self:
        """Load what `to_files` gave; `name`, the path without the ending, is for error messages."""

    @abstractmethod
    def _special_pieces(self) -> dict[str, int]:
        """The ids of the tokens that stand for no text: control tokens and tags."""

    def tag_id(self, tag: str) -> int:
        """The id of a tag, such as "fra_Latn", "fr" for `__fr__`, "fra" for `>>fra<<`; or of a control token.

        Raises:
            TokenizerError: no such tag; the message names close ones.
        """
        known = self._special_pieces()
        for form in _TAG_FORMS:
            if (found := known.get(form.format(tag))) is not None:
                return found
        raise TokenizerError(f"{shown(tag)} is no tag of this model; {_close(tag, self.tags())}")

    def tags(self) -> list[str]:
        """The tags of languages or domains, as they are written in the vocabulary, in alphabetical order."""
        control = {self.pad_id, self.unk_id, self.bos_id, self.eos_id}
        special = self._special_pieces()
        return sorted(piece for piece, i in special.items() if i not in control and piece not in _CONTROL)

    def digest(self) -> bytes:
        """Sha256 of what it is on disk."""
        files = self.to_files()
        checksums = {ending: hashlib.sha256(content).digest() for ending, content in files.items()}
        if len(checksums) == 1:
            return next(iter(checksums.values()))
        joined = b"".join(ending.encode() + checksums[ending] for ending in sorted(checksums))
        return hashlib.sha256(joined).digest()


def _close(tag: str, tags: Sequence[str]) -> str:
    """Say which tags are meant perhaps: those that begin alike, then those that are spelled alike."""
    bare = {known.strip("_<>").lower(): known for known in tags}
    if not bare:
        return "it has none"
    wanted = tag.strip("_<>").lower()
    close = [name for name in bare if name.startswith(wanted)]
    close = close or difflib.get_close_matches(wanted, bare, n=_CLOSE_TAGS)
    names = [shown(bare[name]) for name in [*(close or bare)][:_CLOSE_TAGS]]
    if close:
        return f"did you mean {' or '.join(names)}?"
    return f"there are {len(bare)}, such as {', '.join(names)}"
