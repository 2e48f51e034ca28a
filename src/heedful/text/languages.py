"""Choose the source and target language of a multilingual model."""

from heedful.config import Config
from heedful.errors import InputError, TokenizerError
from heedful.text.pair import TokenizerPair
from heedful.text.tokenizer import Tokenizer

_MARIAN = ">>"  # the start of Marian's tags, which are in the source and name the target language


def choose_languages(
    config: Config, tokenizers: TokenizerPair, *, src_lang: str | None = None, tgt_lang: str | None = None
) -> Config:
    """Return the configuration with other languages; None keeps a language.

    The tag of the target language is at the start of the output (M2M100, NLLB, mBART-50), the decoder's first
    input (mBART), or before the source (Marian).

    Args:
        config: of the model.
        tokenizers: of the model.
        src_lang: the language to translate from, in any form that `Tokenizer.tag_id` accepts.
        tgt_lang: the language to translate into.

    Raises:
        InputError: the language has no tag, or the model has no choice of languages.
    """
    if src_lang is not None:
        config = _with_source(config, tokenizers.src, src_lang)
    if tgt_lang is not None:
        config = _with_target(config, tokenizers, tgt_lang)
    return config


def _with_source(config: Config, tokenizer: Tokenizer, language: str) -> Config:
    tag = config.languages.src_tag
    if tag is None or tag.startswith(_MARIAN) or not _is_language(tokenizer.tag_id(tag), tokenizer):
        raise InputError(
            f"src_lang={language!r}: this model has no tag for its source language; leave it out"
        )
    return _with_languages(config, src_tag=_tag("src_lang", language, tokenizer))


def _with_target(config: Config, tokenizers: TokenizerPair, language: str) -> Config:
    src, tgt = tokenizers.src, tokenizers.tgt
    tag, start_id = config.languages.tgt_tag, config.model.decoder_start_id
    if tag is not None and _is_language(tgt.tag_id(tag), tgt):
        return _with_languages(config, tgt_tag=_tag("tgt_lang", language, tgt))
    if start_id is not None and _is_language(start_id, tgt):
        start_id = tgt.tag_id(_tag("tgt_lang", language, tgt))
        return config.replace(model=config.model.replace(decoder_start_id=start_id).model_dump())
    if any(tag.startswith(_MARIAN) for tag in src.tags()):
        return _with_languages(config, src_tag=_tag("tgt_lang", language, src))
    raise InputError(f"tgt_lang={language!r}: this model translates into one language only; leave it out")


def _with_languages(config: Config, **tags: str) -> Config:
    return config.replace(languages=config.languages.replace(**tags).model_dump())


def _is_language(tag_id: int, tokenizer: Tokenizer) -> bool:
    """Return whether an id is the tag of a language; BART has its begin token instead."""
    return tokenizer.pieces([tag_id])[0] in tokenizer.tags()


def _tag(name: str, language: str, tokenizer: Tokenizer) -> str:
    """Return the tag of a language as in the vocabulary."""
    try:
        tag_id = tokenizer.tag_id(language)
    except TokenizerError as error:
        raise InputError(f"{name}: {error}") from None
    if not _is_language(tag_id, tokenizer):
        raise InputError(f"{name}: {language!r} is not a language")
    return tokenizer.pieces([tag_id])[0]
