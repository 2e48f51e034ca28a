"""Read vocabulary files: one token a line, or JSON."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from heedful.errors import InteropError, TokenizerError
from heedful.interop.conversion import Imported
from heedful.settings.model import SHARED_EMBEDDINGS, SHARED_OUTPUT
from heedful.settings.parsing import Json, decode_text, is_whole, parse_json, read_limited, shown
from heedful.text import Tokenizer, TokenizerPair
from heedful.text.vocabulary_tokenizer import tokenizer_from_words

MAX_NUMBER = 2**31 - 1  # of ids and sizes


@dataclass(frozen=True)
class TypedSettings:
    """Typed values of a settings file; a missing key or null gives None.

    Attributes:
        values: by key.
        file: for error messages.
    """

    values: Mapping[str, Any]
    file: Path

    def whole_number(self, key: str) -> int | None:
        """Return an id, a size or a count; InteropError for anything else."""
        value = self.values.get(key)
        if value is None:
            return None
        if is_whole(value, most=MAX_NUMBER):
            return int(value)
        raise self._error(key, f"must be a whole number from 0 to {MAX_NUMBER:,}")

    def number(self, key: str) -> float | None:
        """Return a finite number; InteropError for anything else."""
        value = self.values.get(key)
        if value is None:
            return None
        if isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < MAX_NUMBER:
            return float(value)
        raise self._error(key, "must be a number")

    def text(self, key: str) -> str | None:
        """Return a text; InteropError for anything else."""
        value = self.values.get(key)
        if value is None or isinstance(value, str):
            return value
        raise self._error(key, "must be a text")

    def _error(self, key: str, problem: str) -> InteropError:
        return InteropError(f"{self.file}: {key}={shown(self.values[key])}: {problem}")


NEVER = -1e4  # as a logit: probability 0, and still finite in half precision


def read_bytes(file: Path) -> bytes:
    """Return the contents of a file; InteropError if it is missing or too large."""
    try:
        return read_limited(file)
    except OSError as error:
        raise InteropError(f"{file}: {error.strerror}") from None
    except ValueError as error:
        raise InteropError(f"{file}: {error}") from None


def read_tokenizers(src: Path, tgt: Path) -> TokenizerPair:
    """Return word-level tokenizers of two vocabularies; equal ones share a tokenizer.

    Raises:
        InteropError: a file cannot be read, or its words are no valid vocabulary.
    """
    words = [read_words(path) for path in (src, tgt)]
    try:
        tokenizers = [
            tokenizer_from_words(each, name=str(path)) for each, path in zip(words, (src, tgt), strict=True)
        ]
    except TokenizerError as error:
        raise InteropError(str(error)) from error
    return TokenizerPair(tokenizers[0], tokenizers[0] if words[0] == words[1] else tokenizers[1])


def read_words(path: Path) -> list[str]:
    """Read tokens by id: one a line, or in a .json file a list of tokens, or an object of ids by token.

    Raises:
        InteropError: no such file, not UTF-8, or JSON of another form.
    """
    if path.suffix != ".json":
        return read_token_lines(path)
    try:
        vocabulary = parse_json(_read(path))
    except ValueError as error:
        raise InteropError(f"{path}: {error}") from None
    return _from_json(path, vocabulary)


def read_token_lines(path: Path) -> list[str]:
    r"""Read the lines of a file; only \n or \r\n ends a line.

    Raises:
        InteropError: no such file, or not UTF-8.
    """
    try:
        text = decode_text(_read(path))
    except ValueError as error:
        raise InteropError(f"{path}: {error}") from None
    return [line.removesuffix("\r") for line in text.removesuffix("\n").split("\n")]


def _read(path: Path) -> bytes:
    try:
        return read_limited(path)
    except OSError as error:
        raise InteropError(f"{path}: {error.strerror}") from error


def fit_vocabularies(imported: Imported, tokenizers: TokenizerPair) -> Imported:
    """Extend the embeddings of a model for an added `<unk>` token.

    A vocabulary without a token for unknown words gets one. Its source embedding is zero, and the target
    never generates it.

    Raises:
        InteropError: the sizes differ otherwise, or the output matrix is shared or has no bias.
    """
    config, weights = imported.config, dict(imported.weights)
    src_grows = _grows("source", tokenizers.src, config.src_vocab_size)
    tgt_grows = _grows("target", tokenizers.tgt, config.tgt_vocab_size)
    cannot_be_silent = config.tied in SHARED_OUTPUT or not config.output_bias
    apart = config.tied in SHARED_EMBEDDINGS and src_grows != tgt_grows
    if (tgt_grows and cannot_be_silent) or apart:
        raise InteropError(
            "the vocabulary has no token for unknown words such as '<unk>', and a model whose output has "
            "a shared matrix or no bias cannot get one; use ids"
        )
    grown = {"encoder.embedding.tokens.weight": src_grows} | dict.fromkeys(
        ("decoder.embedding.tokens.weight", "output.weight", "output.bias"), tgt_grows
    )
    for name in [name for name, grows in grown.items() if grows and name in weights]:
        weights[name] = _with_row(weights[name], NEVER if name == "output.bias" else 0.0)
    sizes = {"src_vocab_size": tokenizers.src.vocab_size, "tgt_vocab_size": tokenizers.tgt.vocab_size}
    return Imported(config.replace(**sizes), weights)


def unique_names(tokens: Sequence[str], fixed: Mapping[int, str]) -> list[str]:
    """Name each id: by its fixed name, else by its token; where that is taken, the id is added.

    >>> unique_names(["[UNK]", "a", "a", "a<2>"], {0: "<unk>"})
    ['<unk>', 'a', 'a<2><2>', 'a<2>']
    """
    reserved, taken = {*tokens, *fixed.values()}, set(fixed.values())
    names: list[str] = []
    for i, token in enumerate(tokens):
        name = fixed.get(i, token)
        if i not in fixed and name in taken:
            while name in reserved or name in taken:
                name += f"<{i}>"
        taken.add(name)
        names.append(name)
    return names


def _grows(text: str, tokenizer: Tokenizer, size: int) -> bool:
    grows = tokenizer.vocab_size == size + 1 and tokenizer.unk_id == size
    if tokenizer.vocab_size != size and not grows:
        raise InteropError(
            f"the {text} vocabulary has {tokenizer.vocab_size:,} tokens, but the embedding has {size:,} "
            "rows; give the vocabulary that the model was trained with"
        )
    return grows


def _with_row(tensor: Tensor, value: float) -> Tensor:
    return torch.cat([tensor, torch.full_like(tensor[:1], value)])


def _from_json(path: Path, vocabulary: Json) -> list[str]:
    if isinstance(vocabulary, dict):
        by_id = {i: word for word, i in vocabulary.items() if is_whole(i)}
        vocabulary = [by_id.get(i) for i in range(len(vocabulary))]
    words = [word for word in vocabulary if isinstance(word, str)] if isinstance(vocabulary, list) else []
    if not isinstance(vocabulary, list) or len(words) < len(vocabulary):
        raise InteropError(f"{path}: neither a list of tokens nor an object with ids 0, 1, ... by token")
    return words
