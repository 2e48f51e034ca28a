"""fairseq's dictionaries: a token and its count in each line, after four tokens that no file has."""

from pathlib import Path

from heedful.config import ModelConfig
from heedful.errors import InteropError, TokenizerError
from heedful.interop.vocabulary import read_token_lines
from heedful.text import SentencePieceTokenizer, TokenizerPair
from heedful.text.word_list import tokenizer_from_words

_FIRST = ("<s>", "<pad>", "</s>", "<unk>")
_PADDING_FACTOR = 8  # vocabularies are filled up to a multiple of it
_OVERWRITE = " #fairseq:overwrite"


def read_dictionaries(src: Path, tgt: Path, config: ModelConfig) -> TokenizerPair:
    """Make word-level tokenizers of `dict.SRC.txt` and `dict.TGT.txt`; two of the same words are one.

    Raises:
        InteropError: a file that cannot be read, or of another size than the model's vocabulary.
    """
    sides = [
        read_dictionary(path, size)
        for path, size in ((src, config.src_vocab_size), (tgt, config.tgt_vocab_size))
    ]
    tokenizers = [_tokenizer(path, words) for path, words in zip((src, tgt), sides, strict=True)]
    return TokenizerPair(tokenizers[0], tokenizers[0] if sides[0] == sides[1] else tokenizers[1])


def read_dictionary(path: Path, size: int) -> list[str]:
    """Return the tokens by id; those that fill up a vocabulary are added where the file has none.

    Raises:
        InteropError: as `read_dictionaries`.
    """
    words = list(_FIRST)
    for number, line in enumerate(read_token_lines(path), start=1):
        word, space, count = line.removesuffix(_OVERWRITE).rpartition(" ")
        if not (space and count.isdecimal()):
            raise InteropError(
                f"{path}: line {number:,} is not a token and its count; give fairseq's dict.txt"
            )
        words.append(word)
    missing = size - len(words)
    if not 0 <= missing < _PADDING_FACTOR or (missing and size % _PADDING_FACTOR):
        raise InteropError(
            f"{path}: {len(words):,} tokens, the first four included, but the embedding has {size:,} rows; "
            "give the dictionary that the model was trained with"
        )
    return [*words, *(f"madeupword{i:04d}" for i in range(missing))]


def _tokenizer(path: Path, words: list[str]) -> SentencePieceTokenizer:
    try:
        return tokenizer_from_words(words, name=str(path))
    except TokenizerError as error:
        raise InteropError(str(error)) from error
