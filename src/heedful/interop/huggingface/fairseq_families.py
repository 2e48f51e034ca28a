"""BART and its kin, M2M100 and NLLB: models that fairseq trained, as saved by transformers.

BART and mBART have learned positions and a norm on the embedded input; BART is post-norm, mBART pre-norm.
mBART has language tags after the source and as the decoder's start token; mBART-50 before the source, and as
the forced first token of the output. MVP without prompts is a BART; PLBart is one with mBART's tags, of
programming languages. M2M100 and NLLB have tags as mBART-50, and are pre-norm with fairseq's sinusoids.
"""

from dataclasses import replace

from heedful.interop.conversion import Positions, Values
from heedful.interop.fairseq import BIAS, PAD_ID, POSITIONS, rows
from heedful.interop.huggingface.added_tokens import pipeline_with_added_tokens, read_added_tokens
from heedful.interop.huggingface.generation import read_special_id
from heedful.interop.huggingface.pretrained import (
    PIPELINE_FILE,
    TOKENIZER_FILE,
    PretrainedDirectory,
    tag_of,
)
from heedful.interop.huggingface.reading import (
    Family,
    fairseq_tokens,
    keys,
    no_languages,
    tokenizer_of_pipeline,
    vocabulary_tokenizer,
)
from heedful.interop.tables import Table
from heedful.interop.vocabulary import read_words
from heedful.settings.parsing import shown
from heedful.text import Tokenizer

_MODEL_FILE = "sentencepiece.bpe.model"
MBART_CLASS, MBART_50_CLASS = "MBartTokenizer", "MBart50Tokenizer"
# The languages in the order of their ids, which follow the tokens (MBartTokenizer and
# MBart50Tokenizer of transformers).
_LANGUAGES = (
    "ar_AR cs_CZ de_DE en_XX es_XX et_EE fi_FI fr_XX gu_IN hi_IN it_IT ja_XX kk_KZ ko_KR lt_LT lv_LV my_MM "
    "ne_NP nl_XX ro_RO ru_RU si_LK tr_TR vi_VN zh_CN"
)
_MORE_LANGUAGES = (
    "af_ZA az_AZ bn_IN fa_IR he_IL hr_HR id_ID ka_GE km_KH mk_MK ml_IN mn_MN mr_IN pl_PL ps_AF pt_XX sv_SE "
    "sw_KE ta_IN te_IN th_TH tl_XX uk_UA ur_PK xh_ZA gl_ES sl_SI"
)
MBART_LANGUAGES, MORE_LANGUAGES_50 = _LANGUAGES.split(), _MORE_LANGUAGES.split()
# By the "language_codes" of a tokenizer's settings (PLBartTokenizer, M2M100Tokenizer of transformers), the
# languages in the order of their ids, which follow the tokens.
_PROGRAMMING_LANGUAGES = {
    "base": "java python en_XX",
    "multi": "java python en_XX javascript php ruby go",
}
M2M100_LANGUAGES = {
    "m2m100": (
        "af am ar ast az ba be bg bn br bs ca ceb cs cy da de el en es et fa ff fi fr fy ga gd gl gu ha he "
        "hi hr ht hu hy id ig ilo is it ja jv ka kk km kn ko lb lg ln lo lt lv mg mk ml mn mr ms my ne nl no "
        "ns oc or pa pl ps pt ro ru sd si sk sl so sq sr ss su sv sw ta th tl tn tr uk ur uz vi wo xh yi yo "
        "zh zu"
    ),
    "wmt21": "en ha is ja cs ru zh de",
}
_USUAL_SOURCE = "en_XX"  # the default of mBART's tokenizers
_M2M100_SOURCES = ("__en__", "eng_Latn")  # of M2M100's and NLLB's


def _coded_tags(directory: PretrainedDirectory, usual: str, known: dict[str, str]) -> tuple[str, list[str]]:
    """Return the "language_codes" of a tokenizer's settings, and the tags that they stand for."""
    codes = directory.tokenizer.get("language_codes") or usual
    if not isinstance(codes, str) or codes not in known:
        problem = f"language_codes={shown(codes)} is unknown; there are {', '.join(known)}"
        directory.refuse(problem, file=TOKENIZER_FILE)
    return codes, [f"__{code}__" for code in known[codes].split()]


def _bart_languages(directory: PretrainedDirectory, tokenizer: Tokenizer, search: Values) -> Values:
    """Return BART's begin token, which stands before each source, and is often forced before the output."""
    no_languages(directory, tokenizer, search)
    bos = tokenizer.tokens([tokenizer.bos_id])[0]
    if search["forced_first_id"] != tokenizer.bos_id:
        return {"src_tag": bos}
    del search["forced_first_id"]
    return {"src_tag": bos, "tgt_tag": bos}


def mbart_class(directory: PretrainedDirectory) -> str:
    """Return the class of the tokenizer, which alone distinguishes mBART-50 from mBART.

    The files name it, or it is inferred from the language tags, or from the number of the model's rows.
    """
    name = directory.tokenizer_class(MBART_CLASS, MBART_50_CLASS)
    by_tags = _mbart_class_by_tags(directory)
    if name and by_tags in (None, name):
        return name
    found = by_tags or _mbart_class_by_size(directory)
    if name or found is None:
        problem = f"{name} contradicts the language tags" if name else "tokenizer_class is missing"
        directory.refuse(
            f'{problem}; add "tokenizer_class": "{MBART_CLASS}" or "{MBART_50_CLASS}"', file=TOKENIZER_FILE
        )
    return found


def _mbart_class_by_tags(directory: PretrainedDirectory) -> str | None:
    """Return the class of mBART-50 if there are all of its tags, of mBART if there are only its own."""
    if directory.tokenizer.get("language_codes") == "ML50":
        return MBART_50_CLASS
    if (directory.path / PIPELINE_FILE).is_file():
        known = {*pipeline_with_added_tokens(directory)[1]}
    else:
        known = {each.content for each in read_added_tokens(directory)}
    if known.issuperset(MORE_LANGUAGES_50):
        return MBART_50_CLASS
    is_plain = known.issuperset(MBART_LANGUAGES) and known.isdisjoint(MORE_LANGUAGES_50)
    return MBART_CLASS if is_plain else None


def _mbart_class_by_size(directory: PretrainedDirectory) -> str | None:
    """Return the class with a token for each row of the model."""
    if not (directory.path / _MODEL_FILE).is_file():
        return None
    count = len(fairseq_tokens(directory.read_bytes(_MODEL_FILE))) + len([*MBART_LANGUAGES, "<mask>"])
    sizes = {count: MBART_CLASS, count + len(MORE_LANGUAGES_50): MBART_50_CLASS}
    return sizes.get(directory.typed().whole_number("vocab_size") or 0)


def _mbart_tokenizer(directory: PretrainedDirectory) -> Tokenizer:
    more = MORE_LANGUAGES_50 if mbart_class(directory) == MBART_50_CLASS else []
    return _with_tags(directory, [*MBART_LANGUAGES, *more, "<mask>"], in_library=True)


def _plbart_tokenizer(directory: PretrainedDirectory) -> Tokenizer:
    codes, tags = _coded_tags(directory, "base", _PROGRAMMING_LANGUAGES)
    return _with_tags(directory, [*tags, *(["<mask>"] if codes == "base" else [])], in_library=False)


def _with_tags(directory: PretrainedDirectory, tags: list[str], *, in_library: bool) -> Tokenizer:
    """Load tokenizer.json or, as for many published models, a SentencePiece model followed by the tags."""
    if (directory.path / PIPELINE_FILE).is_file():
        return tokenizer_of_pipeline(directory)
    model = directory.read_bytes(_MODEL_FILE)
    tokens = [*fairseq_tokens(model), *tags]
    return vocabulary_tokenizer(directory, model, tokens, special=tags, in_library=in_library)


def _mbart_languages(directory: PretrainedDirectory, tokenizer: Tokenizer, search: Values) -> Values:
    is_plbart = directory.config["model_type"] == "plbart"
    usual = None if is_plbart else _USUAL_SOURCE
    languages = {"src_tag": tag_of(directory, tokenizer, "src_lang", usual=usual)}
    if not is_plbart and mbart_class(directory) == MBART_50_CLASS:
        forced_id = search.pop("forced_first_id")
        tgt_tag = tag_of(directory, tokenizer, "tgt_lang", default_id=forced_id)
        return languages | {"tgt_tag": tgt_tag}
    default = directory.typed(directory.generation_file).whole_number("decoder_start_token_id")
    tgt_tag = tag_of(directory, tokenizer, "tgt_lang", default_id=default)
    return languages | {"src_tag_position": "last", "start_id": tokenizer.tag_id(tgt_tag)}


def _m2m100_tokenizer(directory: PretrainedDirectory) -> Tokenizer:
    """Load NLLB's tokenizer.json, or M2M100's SentencePiece model, list of tokens, and language tags."""
    if (directory.path / PIPELINE_FILE).is_file():
        return tokenizer_of_pipeline(directory)
    if not (directory.path / "vocab.json").is_file():
        directory.refuse(
            "no such file, nor is there a vocab.json; save the tokenizer again with today's transformers",
            file=PIPELINE_FILE,
        )
    _, tags = _coded_tags(directory, "m2m100", M2M100_LANGUAGES)
    tokens = [*read_words(directory.path / "vocab.json"), *tags]
    return vocabulary_tokenizer(directory, directory.read_bytes(_MODEL_FILE), tokens, special=tags)


def _m2m100_languages(directory: PretrainedDirectory, tokenizer: Tokenizer, search: Values) -> Values:
    forced_id = search.pop("forced_first_id")
    usual = next((tag for tag in _M2M100_SOURCES if tag in tokenizer.tags()), None)
    is_last = directory.tokenizer.get("legacy_behaviour") is True  # of NLLB's first tokenizer
    return {
        "src_tag": tag_of(directory, tokenizer, "src_lang", usual=usual),
        "tgt_tag": tag_of(directory, tokenizer, "tgt_lang", default_id=forced_id),
        "src_tag_position": "last" if is_last else "first",
    }


def check_positions(directory: PretrainedDirectory) -> None:
    """Refuse models with sinusoids that do not count from 2: they count from the padding id on."""
    pad_id, start_id = (read_special_id(directory, f"{key}_token_id") for key in ("pad", "decoder_start"))
    if pad_id != PAD_ID or start_id == pad_id:
        directory.refuse(
            f"pad_token_id={pad_id} and decoder_start_token_id={start_id} are not supported: positions count "
            f"from 2 only if padding is {PAD_ID} and does not start the decoder"
        )


# Keys of older classes that today's do not support.
_ALWAYS = """
    false  add_bias_logits static_position_embeddings
    true   normalize_embedding
"""
_POST_NORM = _ALWAYS + "false normalize_before add_final_layer_norm\n"
_PRE_NORM = _ALWAYS + "true normalize_before add_final_layer_norm\n"
_PROMPTS = ("prompt_length", "prompt_mid_dim")  # without effect if there are no prompts

_TABLE = Table(rows() + POSITIONS + BIAS, positions=Positions(learned=True, unused=2), facts={"norm": "post"})
BART = Family(
    layout="bart",
    model_type="bart",
    weights=_TABLE,
    keys=keys(_POST_NORM, _PROMPTS),
    classes=("BartTokenizer", "RobertaTokenizer", "MvpTokenizer"),
    languages=_bart_languages,
)
MBART = replace(
    BART,
    model_type="mbart",
    weights=replace(_TABLE, facts={"norm": "pre"}),
    keys=keys(_PRE_NORM, _PROMPTS),
    classes=(MBART_CLASS, MBART_50_CLASS),
    tokenizer=_mbart_tokenizer,
    languages=_mbart_languages,
)
MVP = replace(BART, model_type="mvp", keys=keys(_POST_NORM + "false use_prompt", _PROMPTS))
PLBART = replace(
    BART,
    model_type="plbart",
    classes=("PLBartTokenizer",),
    tokenizer=_plbart_tokenizer,
    languages=_mbart_languages,
)
M2M100 = Family(
    layout="m2m100",
    model_type="m2m_100",
    weights=Table(
        # The tables of older files, which transformers ignores too.
        rows() + "    model.{stack}.embed_positions.weights  -\n",
        facts={"norm": "pre", "positions": "fairseq"},
        positions=Positions(required=False),
    ),
    check=check_positions,
    classes=("M2M100Tokenizer", "NllbTokenizer"),
    tokenizer=_m2m100_tokenizer,
    languages=_m2m100_languages,
)
