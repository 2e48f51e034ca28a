"""Read models that fairseq trained, as saved by transformers: BART and its kin, M2M100 and NLLB.

BART and mBART have learned positions and a norm on the embedded input; BART is post-norm, mBART pre-norm.
mBART has language tags after the source and as the decoder's start token; mBART-50 before the source, and as
the forced first token of the output. MVP without prompts is a BART; PLBart is one with mBART's tags, of
programming languages. M2M100 and NLLB have tags as mBART-50, and are pre-norm with fairseq's sinusoids.
"""

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

from heedful.errors import InteropError
from heedful.interop.conversion import STACKS, Conversion, Imported
from heedful.interop.fairseq import move_layers, move_learned_positions, move_output_bias, move_tokens
from heedful.interop.huggingface.added_tokens import pipeline_with_added_tokens, read_added_tokens
from heedful.interop.huggingface.generation import read_search, read_special_id, read_start_id
from heedful.interop.huggingface.pretrained import (
    PIPELINE_FILE,
    TOKENIZER_FILE,
    ImportedBundle,
    ImportOptions,
    PretrainedDirectory,
    tag_of,
)
from heedful.interop.huggingface.reading import (
    ReadSettings,
    TextSettings,
    assemble,
    check_special_ids,
    fairseq_tokens,
    read_architecture,
    tokenizer_of_pipeline,
    vocabulary_tokenizer,
)
from heedful.interop.vocabulary import read_words
from heedful.settings.parsing import shown
from heedful.text import Tokenizer, TokenizerPair

BART, BART_FAMILIES = "bart", ("bart", "mbart", "mvp", "plbart")
MBART, MBART_50 = "mbart", "mbart-50"
_CLASSES = {
    "bart": ("BartTokenizer", "RobertaTokenizer"),
    "mbart": ("MBartTokenizer", "MBart50Tokenizer"),
    "mvp": ("MvpTokenizer", "BartTokenizer", "RobertaTokenizer"),
    "plbart": ("PLBartTokenizer",),
}
_MODEL_FILE = "sentencepiece.bpe.model"
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
# Of PLBart, by the "language_codes" of a tokenizer's settings (PLBartTokenizer of transformers).
_PROGRAMMING_LANGUAGES = {
    "base": "__java__ __python__ __en_XX__",
    "multi": "__java__ __python__ __en_XX__ __javascript__ __php__ __ruby__ __go__",
}
_UNUSED_ROWS = 2  # of the position tables
# Keys of older classes that today's do not support.
_POST_NORM = {"normalize_before": False, "add_final_layer_norm": False}
_FIXED = {
    "bart": _POST_NORM,
    "mbart": {"normalize_before": True, "add_final_layer_norm": True},
    "mvp": {**_POST_NORM, "use_prompt": False},
    "plbart": _POST_NORM,
}
_OF_PROMPTS = ("prompt_length", "prompt_mid_dim")  # without effect where there are none
_ALWAYS_FIXED = {"add_bias_logits": False, "normalize_embedding": True, "static_position_embeddings": False}


def read_bart(directory: PretrainedDirectory, options: ImportOptions) -> ImportedBundle:
    """Read a directory of BART, mBART, mBART-50, MVP without prompts, or PLBart.

    The languages of mBART and PLBart are those in `options`, or else those in the directory.

    Raises:
        InteropError: a file is missing, has unsupported settings, or the languages are not specified.
        TokenizerError: the tokenizer files are not usable, or a language has no tag.
        ConfigError: the settings are invalid.
    """
    family = directory.typed().text("model_type")
    fixed = _ALWAYS_FIXED | _FIXED.get(family or "", {})
    facts = read_architecture(directory, BART_FAMILIES, known=_OF_PROMPTS, fixed=fixed)
    search, text = read_search(directory), None
    if directory.has_tokenizer:
        text = _READERS[_kind(directory)](directory, options, search)
    read = ReadSettings(model=facts, search=search, text=text)
    convert = partial(_convert, norm="pre" if family == "mbart" else "post")
    return assemble(directory, options, read, convert, layout=BART)


def _convert(conversion: Conversion, *, norm: str) -> Imported:
    move_layers(conversion, prefix="model.")
    move_learned_positions(conversion, prefix="model.", unused=_UNUSED_ROWS)
    move_tokens(conversion, prefix="model.", shared="model.shared.weight", output="lm_head.weight")
    move_output_bias(conversion, "final_logits_bias")
    return conversion.finish(norm=norm)


def _kind(directory: PretrainedDirectory) -> str:
    """Return the key of `_READERS`; mBART-50 has the configuration of mBART and another tokenizer."""
    family = str(directory.config["model_type"])
    if family != "mbart":
        directory.tokenizer_class(*_CLASSES[family])
        return "bart" if family == "mvp" else family
    name = directory.tokenizer_class(*_CLASSES[MBART])
    by_class = name and (MBART_50 if name == "MBart50Tokenizer" else MBART)
    by_tags = _kind_by_tags(directory)
    if by_class and (by_tags is None or by_class == by_tags):
        return by_class
    kind = by_tags or _kind_by_size(directory)
    if by_class or kind is None:
        problem = f"{name} contradicts the language tags" if by_class else "tokenizer_class is missing"
        raise directory.error(
            f'{problem}; add "tokenizer_class": "MBartTokenizer" or "MBart50Tokenizer"', file=TOKENIZER_FILE
        )
    return kind


def _kind_by_tags(directory: PretrainedDirectory) -> str | None:
    """Return mBART-50 if there are all of its tags, mBART if there are its own alone; None: neither."""
    if directory.tokenizer.get("language_codes") == "ML50":
        return MBART_50
    if (directory.path / PIPELINE_FILE).is_file():
        known = {*pipeline_with_added_tokens(directory, directory.read_object(PIPELINE_FILE))[1]}
    else:
        known = {each.content for each in read_added_tokens(directory)}
    if known.issuperset(_MORE_LANGUAGES_50.split()):
        return MBART_50
    is_plain = known.issuperset(_LANGUAGES.split()) and known.isdisjoint(_MORE_LANGUAGES_50.split())
    return MBART if is_plain else None


def _kind_by_size(directory: PretrainedDirectory) -> str | None:
    """Return the kind of mBART that has as many tokens as the model has rows; None: neither."""
    model = directory.path / _MODEL_FILE
    if not model.is_file():
        return None
    count = len(fairseq_tokens(directory.read_bytes(_MODEL_FILE)))
    sizes = {count + len(_tags(directory, kind)): kind for kind in (MBART, MBART_50)}
    return sizes.get(directory.typed().whole_number("vocab_size") or 0)


def _read_bart_text(
    directory: PretrainedDirectory, options: ImportOptions, search: dict[str, Any]
) -> TextSettings:
    """Return BART's settings: `<s>` before each source, and often forced before the output."""
    if options.src_lang or options.tgt_lang:
        raise directory.error("--src-lang, --tgt-lang: BART and MVP have no languages; leave them out")
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
    usual = _USUAL_SOURCE if _kind(directory) == MBART else None
    src_tag = tag_of(directory, tokenizer, "src_lang", options.src_lang, usual=usual)
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
    """Load tokenizer.json or, as for many published models, a SentencePiece model followed by the tags."""
    kind = _kind(directory)
    if kind == "bart" or (directory.path / PIPELINE_FILE).is_file():
        tokenizer: Tokenizer = tokenizer_of_pipeline(directory)
    else:
        model = directory.read_bytes(_MODEL_FILE)
        special = _tags(directory, kind)
        tokens = [*fairseq_tokens(model), *special]
        tokenizer = vocabulary_tokenizer(
            directory, model, tokens, special=special, in_library=kind != "plbart"
        )
    check_special_ids(directory, tokenizer)
    return tokenizer


def _tags(directory: PretrainedDirectory, kind: str) -> list[str]:
    """Return the special tokens after a SentencePiece model's: tags, and `<mask>` unless PLBart has 7."""
    if kind != "plbart":
        return [*_LANGUAGES.split(), *(_MORE_LANGUAGES_50.split() if kind == MBART_50 else ()), "<mask>"]
    codes = directory.typed(TOKENIZER_FILE).text("language_codes") or "base"
    if codes not in _PROGRAMMING_LANGUAGES:
        raise _unknown_codes(directory, codes, _PROGRAMMING_LANGUAGES)
    return [*_PROGRAMMING_LANGUAGES[codes].split(), *(["<mask>"] if codes == "base" else [])]


def _unknown_codes(directory: PretrainedDirectory, codes: str, known: Iterable[str]) -> InteropError:
    return directory.error(
        f"language_codes={shown(codes)} is unknown; there are {', '.join(known)}", file=TOKENIZER_FILE
    )


def _text_settings(tokenizer: Tokenizer, start_id: int, languages: dict[str, str]) -> TextSettings:
    pair = TokenizerPair(tokenizer, tokenizer)
    return TextSettings(tokenizers=pair, start_id=start_id, languages=languages)


_READERS: dict[str, Callable[[PretrainedDirectory, ImportOptions, dict[str, Any]], TextSettings]] = {
    "bart": _read_bart_text,
    MBART: _read_mbart_text,
    MBART_50: _read_mbart50_text,
    "plbart": _read_mbart_text,
}


M2M100 = "m2m100"
_M2M100_SOURCES = ("__en__", "eng_Latn")  # the defaults of transformers' tokenizers
_PAD_ID = 1  # fairseq's sinusoids count from the position after that of padding

# The languages in the order of their ids, which follow those of vocab.json, by the "language_codes" of a
# tokenizer's settings (M2M100Tokenizer of transformers).
_M2M100_LANGUAGES = {
    "m2m100": (
        "af am ar ast az ba be bg bn br bs ca ceb cs cy da de el en es et fa ff fi fr fy ga gd gl gu ha he "
        "hi hr ht hu hy id ig ilo is it ja jv ka kk km kn ko lb lg ln lo lt lv mg mk ml mn mr ms my ne nl no "
        "ns oc or pa pl ps pt ro ru sd si sk sl so sq sr ss su sv sw ta th tl tn tr uk ur uz vi wo xh yi yo "
        "zh zu"
    ),
    "wmt21": "en ha is ja cs ru zh de",
}


def read_m2m100(directory: PretrainedDirectory, options: ImportOptions) -> ImportedBundle:
    """Read a directory of M2M100 or NLLB.

    The languages are those in `options`, or else those in the tokenizer's settings; they are the defaults of
    `heedful translate`.

    Raises:
        InteropError: a file is missing, has unsupported settings, or the languages are not specified.
        TokenizerError: the tokenizer files are not usable, or a language has no tag.
        ConfigError: the settings are invalid.
    """
    facts = read_architecture(directory, ["m2m_100"])
    check_positions(directory)
    search, text = read_search(directory), None
    if directory.has_tokenizer:
        text = _read_m2m100_text(directory, options, forced_id=search.pop("forced_first_id"))
    read = ReadSettings(model=facts, search=search, text=text)
    return assemble(directory, options, read, _convert_m2m100, layout=M2M100)


def check_positions(directory: PretrainedDirectory) -> None:
    """Refuse models whose sinusoids do not count from 2; they count from the padding id, and skip padding."""
    pad_id, start_id = read_special_id(directory, "pad_token_id"), read_start_id(directory)
    if pad_id != _PAD_ID or start_id == pad_id:
        raise directory.error(
            f"pad_token_id={pad_id} and decoder_start_token_id={start_id} are not supported: positions count "
            f"from 2 only if padding is {_PAD_ID} and does not start the decoder"
        )


def _convert_m2m100(conversion: Conversion) -> Imported:
    move_layers(conversion, prefix="model.")
    for stack in STACKS:
        name = f"model.{stack}.embed_positions.weights"  # in older files; transformers ignores it too
        if name in conversion.left:
            conversion.take(name)
    move_tokens(conversion, prefix="model.", shared="model.shared.weight", output="lm_head.weight")
    return conversion.finish(norm="pre", positions="fairseq")


def _m2m100_tokenizer(directory: PretrainedDirectory) -> Tokenizer:
    """Load NLLB's tokenizer.json, or M2M100's SentencePiece model, list of tokens, and language tags."""
    directory.tokenizer_class("M2M100Tokenizer", "NllbTokenizer")
    if (directory.path / PIPELINE_FILE).is_file():
        return tokenizer_of_pipeline(directory)
    if not (directory.path / "vocab.json").is_file():
        raise directory.error(
            "no such file, nor is there a vocab.json; save the tokenizer again with today's transformers",
            file=PIPELINE_FILE,
        )
    codes = directory.typed(TOKENIZER_FILE).text("language_codes") or "m2m100"
    if codes not in _M2M100_LANGUAGES:
        raise _unknown_codes(directory, codes, _M2M100_LANGUAGES)
    tags = [f"__{code}__" for code in _M2M100_LANGUAGES[codes].split()]
    return vocabulary_tokenizer(
        directory,
        directory.read_bytes(_MODEL_FILE),
        [*read_words(directory.path / "vocab.json"), *tags],
        special=tags,
    )


def _read_m2m100_text(
    directory: PretrainedDirectory, options: ImportOptions, *, forced_id: int | None
) -> TextSettings:
    tokenizer = _m2m100_tokenizer(directory)
    check_special_ids(directory, tokenizer)
    usual = next((tag for tag in _M2M100_SOURCES if tag in tokenizer.tags()), None)
    is_last = directory.tokenizer.get("legacy_behaviour") is True  # of NLLB's first tokenizer
    return TextSettings(
        tokenizers=TokenizerPair(tokenizer, tokenizer),
        start_id=read_start_id(directory),
        languages={
            "src_tag": tag_of(directory, tokenizer, "src_lang", options.src_lang, usual=usual),
            "tgt_tag": tag_of(directory, tokenizer, "tgt_lang", options.tgt_lang, default_id=forced_id),
            "src_tag_position": "last" if is_last else "first",
        },
    )
