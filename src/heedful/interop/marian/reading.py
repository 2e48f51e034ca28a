"""MarianMT, the about 1,500 opus-mt models, as transformers saves them.

Post-norm, like the paper. What differs: sines and cosines are concatenated, the activation is swish as a
rule, the logits have a bias, and the decoder starts with the padding token.
"""

from functools import partial

from heedful.interop.conversion import SIDES, Conversion, Imported
from heedful.interop.fairseq.names import move_layers, move_output_bias, move_tokens
from heedful.interop.huggingface.architecture import read_architecture
from heedful.interop.huggingface.assembling import ReadSettings, TextSide, assemble
from heedful.interop.huggingface.generation import read_search, read_start_id
from heedful.interop.huggingface.pretrained import ImportedBundle, ImportOptions, PretrainedDirectory
from heedful.interop.huggingface.tokenizer_files import check_special_ids, tokenizer_of_pieces
from heedful.interop.position_tables import move_positions
from heedful.interop.vocabulary import read_words
from heedful.text import TokenizerPair
from heedful.variants.sinusoids import concatenated_sinusoids

LAYOUT = "marian"
_SHARED = "share_encoder_decoder_embeddings"
# Keys of an older class; today's has no like of them.
_FIXED = {
    "add_bias_logits": False,
    "add_final_layer_norm": False,
    "normalize_before": False,
    "normalize_embedding": False,
    "static_position_embeddings": True,
}


def read_marian(directory: PretrainedDirectory, options: ImportOptions) -> ImportedBundle:
    """Read a directory of MarianMT.

    A target language asked for names the tag that each source begins with, such as `>>fra<<`.

    Raises:
        InteropError: a file is missing, or asks for what cannot be here.
        TokenizerError: tokenizer files that cannot be used, or a language without a tag.
        ConfigError: settings that cannot be.
    """
    shared = directory.config.get(_SHARED, True) is True
    read = ReadSettings(
        model=read_architecture(directory, ["marian"], known=[_SHARED, "decoder_vocab_size"], fixed=_FIXED),
        search=read_search(directory),
        text=_read_text_side(directory, options) if directory.has_tokenizer else None,
    )
    return assemble(directory, options, read, partial(_convert, shared=shared), layout=LAYOUT)


def _convert(conversion: Conversion, *, shared: bool) -> Imported:
    move_layers(conversion, prefix="model.")
    tables = {side: f"model.{side}.embed_positions.weight" for side in SIDES}
    there = {side: name for side, name in tables.items() if name in conversion.left}
    move_positions(conversion, there, fixed=True, formula=concatenated_sinusoids)
    common = "model.shared.weight"
    move_tokens(conversion, prefix="model.", shared=common if shared else None, output="lm_head.weight")
    move_output_bias(conversion, "final_logits_bias")
    return conversion.finish(norm="post", positions="concatenated")


def _read_text_side(directory: PretrainedDirectory, options: ImportOptions) -> TextSide:
    separate = directory.tokenizer.get("separate_vocabs") is True
    tokenizers = _read_tokenizers(directory, separate=separate)
    if options.src_lang is not None:
        raise directory.error(f"--src-lang {options.src_lang}: Marian has no tag for it; leave it out")
    languages = {}
    if options.tgt_lang is not None:
        tag_id = tokenizers.src.tag_id(options.tgt_lang)
        languages["src_tag"] = tokenizers.src.pieces([tag_id])[0]
    return TextSide(
        tokenizers=tokenizers,
        start_id=read_start_id(directory),
        languages=languages,
        one_vocabulary=not separate,
    )


def _read_tokenizers(directory: PretrainedDirectory, *, separate: bool) -> TokenizerPair:
    """source.spm and target.spm tokenise; vocab.json has the ids, or target_vocab.json the target's own."""
    models = [directory.read_bytes(name) for name in ("source.spm", "target.spm")]
    lists = [read_words(directory.path / "vocab.json")]
    lists.append(read_words(directory.path / "target_vocab.json") if separate else lists[0])
    sides = [
        tokenizer_of_pieces(directory, model, pieces, begins_with_pad=True, leading_tags=True)
        for model, pieces in zip(models, lists, strict=True)
    ]
    check_special_ids(directory, sides[1])
    is_one = models[0] == models[1] and not separate
    return TokenizerPair(sides[0], sides[0] if is_one else sides[1])
