"""The default source and target language of a multilingual model."""

from heedful.interop.huggingface.pretrained import TOKENIZER_FILE, PretrainedDirectory
from heedful.text import Tokenizer


def tag_of(
    directory: PretrainedDirectory,
    tokenizer: Tokenizer,
    key: str,
    requested: str | None,
    *,
    usual: str | None = None,
    default_id: int | None = None,
) -> str:
    """Return the tag of a language, as a token of the vocabulary.

    Args:
        directory: of the model; tokenizer_config.json may name the language.
        tokenizer: with the tags.
        key: "src_lang" or "tgt_lang".
        requested: the user's language, in any form that `tag_id` accepts.
        usual: the default language.
        default_id: the default tag's id.

    Raises:
        InteropError: the language is not specified, or invalid.
        TokenizerError: there is no such tag; the message names close ones.
    """
    name = requested or directory.typed(TOKENIZER_FILE).text(key) or usual
    tag_id = tokenizer.tag_id(name) if name else default_id
    if tag_id is not None and tag_id >= tokenizer.vocab_size:
        raise directory.error(
            f"the language {key} has id {tag_id:,}, but the tokenizer {tokenizer.vocab_size:,} ids; copy the "
            "whole directory of one model"
        )
    if tag_id is None:
        option = f"--{key.replace('_', '-')}"
        raise directory.error(
            f"{key} is missing; give {option}, the language to translate "
            f"{'into' if key == 'tgt_lang' else 'from'}",
            file=TOKENIZER_FILE,
        )
    return tokenizer.pieces([tag_id])[0]
