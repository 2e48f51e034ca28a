"""Assemble a bundle from a directory: special-token template, weights, and one configuration."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from heedful.config import ModelConfig
from heedful.config.loading import validate
from heedful.interop.conversion import Conversion, Imported
from heedful.interop.huggingface.generation import read_special_id, read_start_id
from heedful.interop.huggingface.pretrained import ImportedBundle, ImportOptions, PretrainedDirectory
from heedful.text import TokenizerPair


@dataclass(frozen=True, kw_only=True)
class TextSettings:
    """Tokenizers and special-token template of a model.

    Attributes:
        tokenizers: of source and target.
        start_id: the decoder's first input.
        languages: the settings of `LanguageConfig`.
        one_vocabulary: whether an id means the same in source and target.
    """

    tokenizers: TokenizerPair
    start_id: int
    languages: Mapping[str, Any] = field(default_factory=dict)
    one_vocabulary: bool = True


@dataclass(frozen=True, kw_only=True)
class ReadSettings:
    """The settings of the files, as settings of this package.

    Attributes:
        model: of `ModelConfig`.
        search: of `DecodeConfig`.
        text: tokenizers and template; None: the model has no tokenizer.
    """

    model: Mapping[str, Any]
    search: Mapping[str, Any]
    text: TextSettings | None


def assemble(
    directory: PretrainedDirectory,
    options: ImportOptions,
    read: ReadSettings,
    convert: Callable[[Conversion], Imported],
    *,
    layout: str,
) -> ImportedBundle:
    """Read and convert the weights; return the whole model.

    Args:
        directory: of the model.
        options: the user's settings, which override those of the files.
        read: the settings of the files.
        convert: converts the weights.
        layout: for error messages.

    Raises:
        InteropError: a weight is wrong, or the tokenizers have more ids than the model.
        ConfigError: the settings are invalid.
    """
    if read.text is None and (options.src_lang or options.tgt_lang):
        raise directory.error(
            "--src-lang, --tgt-lang: without a tokenizer there are no languages; leave them out"
        )
    conversion = Conversion(
        directory.read_tensors(),
        layout=layout,
        origin=directory.path,
        settings={**read.model, **_ids(directory, read.text), **options.settings},
    )
    model = convert(conversion)
    sections: dict[str, Any] = {"model": model.config.model_dump(), "decode": read.search}
    if read.text is not None:
        _check_sizes(directory, model.config, read.text.tokenizers)
        src = read.text.tokenizers.src
        joint = read.text.one_vocabulary
        sections["languages"] = read.text.languages
        sections["tokenizer"] = {"kind": src.kind, "vocab_size": src.vocab_size, "joint": joint}
    tokenizers = None if read.text is None else read.text.tokenizers
    return ImportedBundle(validate(sections), model.weights, tokenizers)


def _ids(directory: PretrainedDirectory, text: TextSettings | None) -> dict[str, int]:
    if text is not None:
        src, tgt = text.tokenizers.src, text.tokenizers.tgt
        return {"src_pad_id": src.pad_id, "tgt_pad_id": tgt.pad_id, "decoder_start_id": text.start_id}
    pad_id = read_special_id(directory, "pad_token_id")
    return {"src_pad_id": pad_id, "tgt_pad_id": pad_id, "decoder_start_id": read_start_id(directory)}


def _check_sizes(directory: PretrainedDirectory, config: ModelConfig, tokenizers: TokenizerPair) -> None:
    for text, tokenizer, size in (
        ("source", tokenizers.src, config.src_vocab_size),
        ("target", tokenizers.tgt, config.tgt_vocab_size),
    ):
        if tokenizer.vocab_size > size:
            raise directory.error(
                f"the {text} tokenizer has {tokenizer.vocab_size:,} ids, but the model {size:,}; "
                "copy the whole directory of one model"
            )
