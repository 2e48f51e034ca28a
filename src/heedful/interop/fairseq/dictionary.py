"""fairseq's dictionaries: a token and its count in each line, after four implicit tokens."""

from pathlib import Path

from heedful.config import ModelConfig
from heedful.errors import InteropError, TokenizerError
from heedful.interop.vocabulary import read_token_lines
from heedful.text import SentencePieceTokenizer, TokenizerPair
from heedful.text.word_list import tokenizer_from_words

_FIRST = ("<s>", "<pad>", "</s>", "<unk>")
_PADDING_FACTOR = 8  # vocabularies are padded to a multiple of it
_OVERWRITE = " #fairseq:overwrite"


def read_dictionaries(src: Path, tgt: Path, config: ModelConfig) -> TokenizerPair:
    """Return word-level tokenizers of `dict.SRC.txt` and `dict.TGT.txt`; equal ones share a tokenizer.

    Raises:
        InteropError: a file cannot be read, or has another size than the model's vocabulary.
    """
    words_by_id = [
        read_dictionary(path, size)
        for path, size in ((src, config.src_vocab_size), (tgt, config.tgt_vocab_size))
    ]
    tokenizers = [_tokenizer(path, words) for path, words in zip((src, tgt), words_by_id, strict=True)]
    return TokenizerPair(tokenizers[0], tokenizers[0] if words_by_id[0] == words_by_id[1] else tokenizers[1])


def read_dictionary(path: Path, size: int) -> list[str]:
    """Return the tokens by id, with fairseq's padding tokens if the file lacks them.

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
