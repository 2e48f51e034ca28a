"""BART, mBART and mBART-50, as transformers saves them.

Learned positions and a norm on the embedded input; BART is post-norm, mBART pre-norm. In mBART tags say the
languages: after the source, and as what the decoder starts with; in mBART-50 before the source, and forced as
the first token of the output.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

from heedful.interop.conversion import Conversion, Imported
from heedful.interop.fairseq.names import move_layers, move_learned_positions, move_output_bias, move_tokens
from heedful.interop.huggingface.architecture import read_architecture
from heedful.interop.huggingface.assembling import ReadSettings, TextSide, assemble
from heedful.interop.huggingface.generation import read_search, read_start_id
from heedful.interop.huggingface.language_tags import tag_of
from heedful.interop.huggingface.pretrained import (
    TOKENIZER_FILE,
    ImportedBundle,
    ImportOptions,
    PretrainedDirectory,
)
from heedful.interop.huggingface.tokenizer_files import (
    PIPELINE_FILE,
    check_special_ids,
    fairseq_pieces,
    tokenizer_of_pieces,
    tokenizer_of_pipeline,
)
from heedful.text import Tokenizer, TokenizerPair

LAYOUT = "bart"
_USUAL_SOURCE = "en_XX"  # what mBART's tokenizers take where nothing is said
# The languages in the order of their ids, which follow those of the tokens (MBartTokenizer and
# MBart50Tokenizer of transformers).
_LANGUAGES = (
    "ar_AR cs_CZ de_DE en_XX es_XX et_EE fi_FI fr_XX gu_IN hi_IN it_IT ja_XX kk_KZ ko_KR lt_LT lv_LV my_MM "
    "ne_NP nl_XX ro_RO ru_RU si_LK tr_TR vi_VN zh_CN"
)
_MORE_LANGUAGES_50 = (
    "af_ZA az_AZ bn_IN fa_IR he_IL hr_HR id_ID ka_GE km_KH mk_MK ml_IN mn_MN mr_IN pl_PL ps_AF pt_XX sv_SE "
    "sw_KE ta_IN te_IN th_TH tl_XX uk_UA ur_PK xh_ZA gl_ES sl_SI"
)
_UNUSED_ROWS = 2  # of the tables of positions
# Keys of older classes; today's have no like of them.
_FIXED = {
    "bart": {"normalize_before": False, "add_final_layer_norm": False},
    "mbart": {"normalize_before": True, "add_final_layer_norm": True},
}
_ALWAYS_FIXED = {"add_bias_logits": False, "normalize_embedding": True, "static_position_embeddings": False}


def read_bart(directory: PretrainedDirectory, options: ImportOptions) -> ImportedBundle:
    """Read a directory of BART, mBART or mBART-50.

    The languages of mBART are those asked for, or else those that the directory names.

    Raises:
        InteropError: a file is missing, or asks for what cannot be here, or nobody names the languages.
        TokenizerError: tokenizer files that cannot be used, or a language without a tag.
        ConfigError: settings that cannot be.
    """
    family = directory.typed().text("model_type")
    fixed = _ALWAYS_FIXED | _FIXED.get(family or "", {})
    facts = read_architecture(directory, ["bart", "mbart"], fixed=fixed)
    search, text = read_search(directory), None
    if directory.has_tokenizer:
        text = _READERS[_kind(directory)](directory, options, search)
    read = ReadSettings(model=facts, search=search, text=text)
    convert = partial(_convert, norm="post" if family == "bart" else "pre")
    return assemble(directory, options, read, convert, layout=LAYOUT)


def _convert(conversion: Conversion, *, norm: str) -> Imported:
    move_layers(conversion, prefix="model.")
    move_learned_positions(conversion, prefix="model.", unused=_UNUSED_ROWS)
    move_tokens(conversion, prefix="model.", shared="model.shared.weight", output="lm_head.weight")
    move_output_bias(conversion, "final_logits_bias")
    return conversion.finish(norm=norm)


def _kind(directory: PretrainedDirectory) -> str:
    """Which of the three; mBART-50 has the configuration of mBART and a tokenizer of its own."""
    if directory.config.get("model_type") == "mbart":
        kind = directory.typed(TOKENIZER_FILE).text("tokenizer_class") or ""
        return "mbart-50" if kind.startswith("MBart50") else "mbart"
    return "bart"


def _read_bart_text(
    directory: PretrainedDirectory, options: ImportOptions, search: dict[str, Any]
) -> TextSide:
    """BART reads `<s>` before each text, and many a model of it is made to write it too."""
    if options.src_lang or options.tgt_lang:
        raise directory.error("--src-lang, --tgt-lang: BART has no languages; leave them out")
    tokenizer = _tokenizer(directory)
    begin = tokenizer.pieces([tokenizer.bos_id])[0]
    languages = {"src_tag": begin}
    if search["forced_first_id"] == tokenizer.bos_id:
        languages["tgt_tag"] = begin
        del search["forced_first_id"]
    return _text_side(tokenizer, read_start_id(directory), languages)


def _read_mbart_text(
    directory: PretrainedDirectory, options: ImportOptions, search: dict[str, Any]
) -> TextSide:
    tokenizer = _tokenizer(directory)
    src_tag = tag_of(directory, tokenizer, "src_lang", options.src_lang, usual=_USUAL_SOURCE)
    default = directory.typed(directory.generation_file).whole_number("decoder_start_token_id")
    tgt_tag = tag_of(directory, tokenizer, "tgt_lang", options.tgt_lang, default_id=default)
    return _text_side(tokenizer, tokenizer.tag_id(tgt_tag), {"src_tag": src_tag, "src_tag_position": "last"})


def _read_mbart50_text(
    directory: PretrainedDirectory, options: ImportOptions, search: dict[str, Any]
) -> TextSide:
    tokenizer = _tokenizer(directory)
    forced_id = search.pop("forced_first_id")
    languages = {
        "src_tag": tag_of(directory, tokenizer, "src_lang", options.src_lang, usual=_USUAL_SOURCE),
        "tgt_tag": tag_of(directory, tokenizer, "tgt_lang", options.tgt_lang, default_id=forced_id),
    }
    return _text_side(tokenizer, read_start_id(directory), languages)


def _tokenizer(directory: PretrainedDirectory) -> Tokenizer:
    """A tokenizer.json, or as many a published mBART has it a SentencePiece model with the tags after it."""
    kind = _kind(directory)
    if kind == "bart" or (directory.path / PIPELINE_FILE).is_file():
        tokenizer: Tokenizer = tokenizer_of_pipeline(directory)
    else:
        model = directory.read_bytes("sentencepiece.bpe.model")
        tags = [*_LANGUAGES.split(), *(_MORE_LANGUAGES_50.split() if kind == "mbart-50" else ())]
        tokenizer = tokenizer_of_pieces(
            directory, model, [*fairseq_pieces(model), *tags, "<mask>"], special=[*tags, "<mask>"]
        )
    check_special_ids(directory, tokenizer)
    return tokenizer


def _text_side(tokenizer: Tokenizer, start_id: int, languages: dict[str, str]) -> TextSide:
    pair = TokenizerPair(tokenizer, tokenizer)
    return TextSide(tokenizers=pair, start_id=start_id, languages=languages)


_READERS: dict[str, Callable[[PretrainedDirectory, ImportOptions, dict[str, Any]], TextSide]] = {
    "bart": _read_bart_text,
    "mbart": _read_mbart_text,
    "mbart-50": _read_mbart50_text,
}
