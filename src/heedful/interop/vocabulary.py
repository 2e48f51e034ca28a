"""Vocabularies from elsewhere: one token a line, or JSON."""

from pathlib import Path

import torch
from torch import Tensor

from heedful.errors import InteropError, TokenizerError
from heedful.interop.conversion import Imported
from heedful.parsing import Json, decode_text, is_whole, parse_json, read_limited
from heedful.text import Tokenizer, TokenizerPair
from heedful.text.word_list import tokenizer_from_words

_NEVER = -1e4  # as a logit: no probability, and still a number in half precision


def read_tokenizers(src: Path, tgt: Path) -> TokenizerPair:
    """Make word-level tokenizers of two vocabularies; two of the same words are one, for source and target.

    Raises:
        InteropError: a file that cannot be read, or words that cannot make a tokenizer.
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
    """Read tokens by id: a line each, or in a .json file a list of tokens, or an object of ids by token.

    Raises:
        InteropError: no such file, not UTF-8, or JSON of another form.
    """
    if path.suffix != ".json":
        return read_token_lines(path)
    try:
        found = parse_json(_read(path))
    except ValueError as error:
        raise InteropError(f"{path}: {error}") from None
    return _from_json(path, found)


def read_token_lines(path: Path) -> list[str]:
    r"""Read the lines of a file; only \n ends one, and a \r before it goes with it.

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
    """Give a model the sizes of its vocabularies.

    They are the same, or larger by the token for unknown words that a vocabulary without one has got: then
    the source has a vector of zeros for it, and the target never writes it.

    Raises:
        InteropError: other sizes, or a target that shares its matrix or has no output bias.
    """
    config, weights = imported.config, dict(imported.weights)
    src_grows = _grows("source", tokenizers.src, config.src_vocab_size)
    tgt_grows = _grows("target", tokenizers.tgt, config.tgt_vocab_size)
    cannot_be_silent = config.tied != "none" or not config.output_bias
    if (tgt_grows and cannot_be_silent) or (src_grows and config.tied == "all"):
        raise InteropError(
            "the vocabulary has no token for unknown words such as '<unk>', and a model whose output has "
            "a shared matrix or no bias cannot get one; use ids"
        )
    grown = {"encoder.embedding.tokens.weight": src_grows} | dict.fromkeys(
        ("decoder.embedding.tokens.weight", "output.weight", "output.bias"), tgt_grows
    )
    for name in [name for name, grows in grown.items() if grows]:
        weights[name] = _with_row(weights[name], _NEVER if name == "output.bias" else 0.0)
    sizes = {"src_vocab_size": tokenizers.src.vocab_size, "tgt_vocab_size": tokenizers.tgt.vocab_size}
    return Imported(config.replace(**sizes), weights)


def _grows(side: str, tokenizer: Tokenizer, size: int) -> bool:
    grows = tokenizer.vocab_size == size + 1 and tokenizer.unk_id == size
    if tokenizer.vocab_size != size and not grows:
        raise InteropError(
            f"the {side} vocabulary has {tokenizer.vocab_size:,} tokens, but the embedding has {size:,} "
            "rows; give the vocabulary that the model was trained with"
        )
    return grows


def _with_row(tensor: Tensor, value: float) -> Tensor:
    return torch.cat([tensor, torch.full_like(tensor[:1], value)])


def _from_json(path: Path, found: Json) -> list[str]:
    if isinstance(found, dict):
        by_id = {i: word for word, i in found.items() if is_whole(i)}
        found = [by_id.get(i) for i in range(len(found))]
    words = [word for word in found if isinstance(word, str)] if isinstance(found, list) else []
    if not isinstance(found, list) or len(words) < len(found):
        raise InteropError(f"{path}: neither a list of tokens nor an object with ids 0, 1, ... by token")
    return words
