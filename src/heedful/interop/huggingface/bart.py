"""Read BART, mBART and mBART-50 as saved by transformers.

They have learned positions and a norm on the embedded input; BART is post-norm, mBART pre-norm. mBART has
language tags after the source and as the decoder's start token; mBART-50 before the source, and as the forced
first token of the output.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

from heedful.interop.conversion import Conversion, Imported
from heedful.interop.fairseq import move_layers, move_learned_positions, move_output_bias, move_tokens
from heedful.interop.huggingface.generation import read_search, read_start_id
from heedful.interop.huggingface.pretrained import (
    TOKENIZER_FILE,
    ImportedBundle,
    ImportOptions,
    PretrainedDirectory,
    tag_of,
)
from heedful.interop.huggingface.reading import (
    PIPELINE_FILE,
    ReadSettings,
    TextSettings,
    assemble,
    check_special_ids,
    fairseq_tokens,
    read_architecture,
    tokenizer_of_pipeline,
    vocabulary_tokenizer,
)
from heedful.text import Tokenizer, TokenizerPair

LAYOUT = "bart"
_USUAL_SOURCE = "en_XX"  # the default of mBART's tokenizers
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
_UNUSED_ROWS = 2  # of the position tables
# Keys of older classes that today's do not support.
_FIXED = {
    "bart": {"normalize_before": False, "add_final_layer_norm": False},
    "mbart": {"normalize_before": True, "add_final_layer_norm": True},
}
_ALWAYS_FIXED = {"add_bias_logits": False, "normalize_embedding": True, "static_position_embeddings": False}


def read_bart(directory: PretrainedDirectory, options: ImportOptions) -> ImportedBundle:
    """Read a directory of BART, mBART or mBART-50.

    The languages of mBART are those in `options`, or else those in the directory.

    Raises:
        InteropError: a file is missing, has unsupported settings, or the languages are not specified.
        TokenizerError: the tokenizer files are not usable, or a language has no tag.
        ConfigError: the settings are invalid.
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
    """Return "bart", "mbart" or "mbart-50", which has the configuration of mBART and another tokenizer."""
    if directory.config.get("model_type") == "mbart":
        kind = directory.typed(TOKENIZER_FILE).text("tokenizer_class") or ""
        return "mbart-50" if kind.startswith("MBart50") else "mbart"
    return "bart"


def _read_bart_text(
    directory: PretrainedDirectory, options: ImportOptions, search: dict[str, Any]
) -> TextSettings:
    """Return BART's settings: `<s>` before each source, and often forced before the output."""
    if options.src_lang or options.tgt_lang:
        raise directory.error("--src-lang, --tgt-lang: BART has no languages; leave them out")
    tokenizer = _tokenizer(directory)
    bos_token = tokenizer.tokens([tokenizer.bos_id])[0]
    languages = {"src_tag": bos_token}
    if search["forced_first_id"] == tokenizer.bos_id:
        languages["tgt_tag"] = bos_token
        del search["forced_first_id"]
    return _text_settings(tokenizer, read_start_id(directory), languages)


def _read_mbart_text(
    directory: PretrainedDirectory, options: ImportOptions, search: dict[str, Any]
) -> TextSettings:
    tokenizer = _tokenizer(directory)
    src_tag = tag_of(directory, tokenizer, "src_lang", options.src_lang, usual=_USUAL_SOURCE)
    default = directory.typed(directory.generation_file).whole_number("decoder_start_token_id")
    tgt_tag = tag_of(directory, tokenizer, "tgt_lang", options.tgt_lang, default_id=default)
    return _text_settings(
        tokenizer, tokenizer.tag_id(tgt_tag), {"src_tag": src_tag, "src_tag_position": "last"}
    )


def _read_mbart50_text(
    directory: PretrainedDirectory, options: ImportOptions, search: dict[str, Any]
) -> TextSettings:
    tokenizer = _tokenizer(directory)
    forced_id = search.pop("forced_first_id")
    languages = {
        "src_tag": tag_of(directory, tokenizer, "src_lang", options.src_lang, usual=_USUAL_SOURCE),
        "tgt_tag": tag_of(directory, tokenizer, "tgt_lang", options.tgt_lang, default_id=forced_id),
    }
    return _text_settings(tokenizer, read_start_id(directory), languages)


def _tokenizer(directory: PretrainedDirectory) -> Tokenizer:
    """Load tokenizer.json or, as for many published mBARTs, a SentencePiece model followed by the tags."""
    kind = _kind(directory)
    if kind == "bart" or (directory.path / PIPELINE_FILE).is_file():
        tokenizer: Tokenizer = tokenizer_of_pipeline(directory)
    else:
        model = directory.read_bytes("sentencepiece.bpe.model")
        tags = [*_LANGUAGES.split(), *(_MORE_LANGUAGES_50.split() if kind == "mbart-50" else ())]
        tokenizer = vocabulary_tokenizer(
            directory, model, [*fairseq_tokens(model), *tags, "<mask>"], special=[*tags, "<mask>"]
        )
    check_special_ids(directory, tokenizer)
    return tokenizer


def _text_settings(tokenizer: Tokenizer, start_id: int, languages: dict[str, str]) -> TextSettings:
    pair = TokenizerPair(tokenizer, tokenizer)
    return TextSettings(tokenizers=pair, start_id=start_id, languages=languages)


_READERS: dict[str, Callable[[PretrainedDirectory, ImportOptions, dict[str, Any]], TextSettings]] = {
    "bart": _read_bart_text,
    "mbart": _read_mbart_text,
    "mbart-50": _read_mbart50_text,
}
