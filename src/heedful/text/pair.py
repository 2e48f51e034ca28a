"""The source and target tokenizer of a model, in memory and on disk."""

import hashlib
from collections.abc import Iterable
from pathlib import Path
from typing import Self

from heedful.errors import TokenizerError
from heedful.parsing import read_limited
from heedful.text import huggingface_tokenizer, sentencepiece_tokenizer, vocabulary_tokenizer
from heedful.text.huggingface_tokenizer import HuggingFaceTokenizer
from heedful.text.sentencepiece_tokenizer import SentencePieceTokenizer
from heedful.text.tokenizer import Tokenizer
from heedful.text.vocabulary_tokenizer import VocabularyTokenizer

JOINT, SOURCE, TARGET = "tokenizer", "source", "target"  # the stems of the files' names

# The suffix of the file that identifies a kind of tokenizer: its class, and the suffixes of its other files.
_KINDS: dict[str, tuple[type[Tokenizer], tuple[str, ...]]] = {
    sentencepiece_tokenizer.MODEL: (SentencePieceTokenizer, ()),
    vocabulary_tokenizer.MODEL: (VocabularyTokenizer, (vocabulary_tokenizer.TOKENS,)),
    huggingface_tokenizer.PIPELINE: (HuggingFaceTokenizer, (huggingface_tokenizer.SPECIAL,)),
}


class TokenizerPair:
    """The source and the target tokenizer; `joint` if they are one."""

    def __init__(self, src: Tokenizer, tgt: Tokenizer) -> None:
        self.src = src
        self.tgt = tgt

    @property
    def joint(self) -> bool:
        """Whether source and target share one tokenizer and vocabulary."""
        return self.src is self.tgt

    def __reduce__(self) -> tuple[object, tuple[Tokenizer, Tokenizer]]:
        return type(self), (self.src, self.tgt)

    def save(self, directory: Path) -> None:
        """Write the files of `tokenizer`, or of `source` and `target`, into an existing directory."""
        tokenizers = {JOINT: self.src} if self.joint else {SOURCE: self.src, TARGET: self.tgt}
        for stem, tokenizer in tokenizers.items():
            for suffix, content in tokenizer.to_files().items():
                (Path(directory) / f"{stem}{suffix}").write_bytes(content)

    @classmethod
    def load(cls, directory: Path) -> Self:
        """Load the tokenizers that `save` wrote.

        Raises:
            TokenizerError: files are missing or damaged.
            MissingExtraError: they need the `tokenizers` library, which is not installed.
        """
        directory = Path(directory)
        if any((directory / f"{JOINT}{suffix}").exists() for suffix in _KINDS):
            tokenizer = _load(directory / JOINT)
            return cls(tokenizer, tokenizer)
        return cls(_load(directory / SOURCE), _load(directory / TARGET))

    @staticmethod
    def is_among(names: Iterable[str]) -> bool:
        """Return whether these file names include those of a tokenizer pair."""
        return not {f"{stem}{suffix}" for stem in (JOINT, SOURCE) for suffix in _KINDS}.isdisjoint(names)

    def fingerprint(self) -> str:
        """Return a SHA-256 in hexadecimal: equal exactly if both tokenizers and `joint` are."""
        digest = hashlib.sha256(b"joint" if self.joint else b"separate")
        for tokenizer in (self.src, self.tgt):
            digest.update(tokenizer.digest())
        return digest.hexdigest()


def is_file_of_a_pair(name: str) -> bool:
    """Return whether `TokenizerPair.save` may write a file of that name."""
    suffixes = [suffix for kind, (_, others) in _KINDS.items() for suffix in (kind, *others)]
    return name in {f"{stem}{suffix}" for stem in (JOINT, SOURCE, TARGET) for suffix in suffixes}


def _load(stem: Path) -> Tokenizer:
    for suffix, (kind, others) in _KINDS.items():
        if stem.with_name(stem.name + suffix).exists():
            files = {name: _read(stem.with_name(stem.name + name)) for name in (suffix, *others)}
            return kind.from_files(files, name=str(stem))
    raise TokenizerError(
        f"{stem}{next(iter(_KINDS))}: no such file; the directory holds no complete tokenizer"
    )


def _read(path: Path) -> bytes:
    try:
        return read_limited(path)
    except FileNotFoundError as error:
        raise TokenizerError(f"{path}: no such file; the directory holds no complete tokenizer") from error
    except OSError as error:
        raise TokenizerError(f"{path}: cannot be read ({error.strerror})") from error
    except ValueError as error:
        raise TokenizerError(f"{path}: {error}; restore the file") from None
