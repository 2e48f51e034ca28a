"""Read MarianMT, about 1,500 opus-mt models, as saved by transformers.

Post-norm, like the paper. Differences: sines and cosines are concatenated, the activation is usually swish,
the logits have a bias, and the decoder starts with the padding token.
"""

from functools import partial

from heedful.interop.conversion import STACKS, Conversion, Imported
from heedful.interop.fairseq.names import move_layers, move_output_bias, move_tokens
from heedful.interop.huggingface.architecture import read_architecture
from heedful.interop.huggingface.assembling import ReadSettings, TextSettings, assemble
from heedful.interop.huggingface.generation import read_search, read_start_id
from heedful.interop.huggingface.pretrained import ImportedBundle, ImportOptions, PretrainedDirectory
from heedful.interop.huggingface.tokenizer_files import check_special_ids, vocabulary_tokenizer
from heedful.interop.position_tables import move_positions
from heedful.interop.vocabulary import read_words
from heedful.text import TokenizerPair
from heedful.variants.sinusoids import concatenated_sinusoids

LAYOUT = "marian"
_SHARED = "share_encoder_decoder_embeddings"
# Keys of an older class that today's does not support.
_FIXED = {
    "add_bias_logits": False,
    "add_final_layer_norm": False,
    "normalize_before": False,
    "normalize_embedding": False,
    "static_position_embeddings": True,
}


def read_marian(directory: PretrainedDirectory, options: ImportOptions) -> ImportedBundle:
    """Read a directory of MarianMT.

    With a target language, each source starts with its tag, such as `>>fra<<`.

    Raises:
        InteropError: a file is missing, or has settings that are not supported.
        TokenizerError: the tokenizer files are not usable, or a language has no tag.
        ConfigError: the settings are invalid.
    """
    shared = directory.config.get(_SHARED, True) is True
    read = ReadSettings(
        model=read_architecture(directory, ["marian"], known=[_SHARED, "decoder_vocab_size"], fixed=_FIXED),
        search=read_search(directory),
        text=_read_text(directory, options) if directory.has_tokenizer else None,
    )
    return assemble(directory, options, read, partial(_convert, shared=shared), layout=LAYOUT)


def _convert(conversion: Conversion, *, shared: bool) -> Imported:
    move_layers(conversion, prefix="model.")
    tables = {stack: f"model.{stack}.embed_positions.weight" for stack in STACKS}
    there = {stack: name for stack, name in tables.items() if name in conversion.left}
    move_positions(conversion, there, fixed=True, formula=concatenated_sinusoids)
    common = "model.shared.weight"
    move_tokens(conversion, prefix="model.", shared=common if shared else None, output="lm_head.weight")
    move_output_bias(conversion, "final_logits_bias")
    return conversion.finish(norm="post", positions="concatenated")


def _read_text(directory: PretrainedDirectory, options: ImportOptions) -> TextSettings:
    separate = directory.tokenizer.get("separate_vocabs") is True
    tokenizers = _read_tokenizers(directory, separate=separate)
    if options.src_lang is not None:
        raise directory.error(f"--src-lang {options.src_lang}: Marian has no tag for it; leave it out")
    languages = {}
    if options.tgt_lang is not None:
        tag_id = tokenizers.src.tag_id(options.tgt_lang)
        languages["src_tag"] = tokenizers.src.pieces([tag_id])[0]
    return TextSettings(
        tokenizers=tokenizers,
        start_id=read_start_id(directory),
        languages=languages,
        one_vocabulary=not separate,
    )


def _read_tokenizers(directory: PretrainedDirectory, *, separate: bool) -> TokenizerPair:
    """Load the tokenizers: source.spm and target.spm, with the ids of vocab.json or target_vocab.json."""
    models = [directory.read_bytes(name) for name in ("source.spm", "target.spm")]
    lists = [read_words(directory.path / "vocab.json")]
    lists.append(read_words(directory.path / "target_vocab.json") if separate else lists[0])
    tokenizers = [
        vocabulary_tokenizer(directory, model, tokens, starts_with_pad=True, leading_tags=True)
        for model, tokens in zip(models, lists, strict=True)
    ]
    check_special_ids(directory, tokenizers[1])
    is_one = models[0] == models[1] and not separate
    return TokenizerPair(tokenizers[0], tokenizers[0] if is_one else tokenizers[1])
