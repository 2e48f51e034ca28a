"""BART, mBART and mBART-50, as transformers saves them.

Learned positions and a norm on the embedded input; BART is post-norm, mBART pre-norm. In mBART tags say the
languages: after the source, and as what the decoder starts with; in mBART-50 before the source, and forced as
the first token of the output.
"""

from typing import Any

from heedful.interop.architecture import read_architecture
from heedful.interop.conversion import Conversion, Imported
from heedful.interop.fairseq_names import move_layers, move_learned_positions, move_output_bias, move_tokens
from heedful.interop.generation import read_search, read_start_id
from heedful.interop.language_tags import tag_of
from heedful.interop.pretrained import ImportedBundle, ImportWishes, PretrainedDirectory, assemble
from heedful.interop.tokenizer_files import check_special_ids, tokenizer_of_pipeline
from heedful.text import Tokenizer, TokenizerPair

LAYOUT = "bart"
_UNUSED_ROWS = 2  # of the tables of positions
# Keys of older classes; today's have no like of them.
_FIXED = {
    "bart": {"normalize_before": False, "add_final_layer_norm": False},
    "mbart": {"normalize_before": True, "add_final_layer_norm": True},
}
_ALWAYS_FIXED = {"add_bias_logits": False, "normalize_embedding": True, "static_position_embeddings": False}


def read_bart(directory: PretrainedDirectory, wishes: ImportWishes) -> ImportedBundle:
    """Read a directory of BART, mBART or mBART-50.

    The languages of mBART are those of the wishes, or else those that the directory names.

    Raises:
        InteropError: a file is missing, or asks for what cannot be here, or nobody names the languages.
        TokenizerError: tokenizer files that cannot be used, or a language without a tag.
        ConfigError: settings that cannot be.
    """
    family = directory.config.get("model_type")
    fixed = _ALWAYS_FIXED | _FIXED.get(str(family), {})
    facts = read_architecture(directory, ["bart", "mbart"], fixed=fixed)
    search = read_search(directory)
    tokenizer = tokenizer_of_pipeline(directory)
    check_special_ids(directory, tokenizer)
    if family == "bart":
        if wishes.src_lang or wishes.tgt_lang:
            raise directory.error("--src-lang, --tgt-lang: BART has no languages; leave them out")
        languages = _sentence_tokens(tokenizer, search)
        start_id = read_start_id(directory)
    elif str(directory.tokenizer.get("tokenizer_class", "")).startswith("MBart50"):
        languages = {
            "src_tag": tag_of(directory, tokenizer, "src_lang", wishes.src_lang),
            "tgt_tag": tag_of(
                directory, tokenizer, "tgt_lang", wishes.tgt_lang, default_id=search.pop("forced_first_id")
            ),
        }
        start_id = read_start_id(directory)
    else:
        languages = {
            "src_tag": tag_of(directory, tokenizer, "src_lang", wishes.src_lang),
            "src_tag_position": "last",
        }
        default = directory.generation.get("decoder_start_token_id")
        tgt_tag = tag_of(directory, tokenizer, "tgt_lang", wishes.tgt_lang, default_id=default)
        start_id = tokenizer.tag_id(tgt_tag)
    facts |= {"decoder_start_id": start_id, "src_pad_id": tokenizer.pad_id, "tgt_pad_id": tokenizer.pad_id}
    conversion = Conversion(
        directory.read_tensors(), layout=LAYOUT, origin=directory.path, settings=facts | dict(wishes.settings)
    )
    model = _convert(conversion, norm="post" if family == "bart" else "pre")
    pair = TokenizerPair(tokenizer, tokenizer)
    return assemble(directory, model, pair, search=search, languages=languages)


def _convert(conversion: Conversion, *, norm: str) -> Imported:
    move_layers(conversion, prefix="model.")
    move_learned_positions(conversion, prefix="model.", unused=_UNUSED_ROWS)
    move_tokens(conversion, prefix="model.", shared="model.shared.weight", output="lm_head.weight")
    move_output_bias(conversion, "final_logits_bias")
    return conversion.finish(norm=norm)


def _sentence_tokens(tokenizer: Tokenizer, search: dict[str, Any]) -> dict[str, str]:
    """BART reads `<s>` before each text, and many a model of it is made to write it too."""
    begin = tokenizer.pieces([tokenizer.bos_id])[0]
    languages = {"src_tag": begin}
    if search["forced_first_id"] == tokenizer.bos_id:
        languages["tgt_tag"] = begin
        del search["forced_first_id"]
    return languages
