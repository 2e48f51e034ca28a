"""Read M2M100 and NLLB, multilingual models, as saved by transformers.

Pre-norm with fairseq's sinusoids. The tag of the source language is before the source, that of the target
language is the forced first token of the output.
"""

from heedful.interop.conversion import STACKS, Conversion, Imported
from heedful.interop.fairseq import move_layers, move_tokens
from heedful.interop.huggingface.generation import read_search, read_special_id, read_start_id
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
    read_architecture,
    tokenizer_of_pipeline,
    vocabulary_tokenizer,
)
from heedful.interop.vocabulary import read_words
from heedful.settings.parsing import shown
from heedful.text import Tokenizer, TokenizerPair

LAYOUT = "m2m100"
_USUAL_SOURCES = ("__en__", "eng_Latn")  # the defaults of transformers' tokenizers
_PAD_ID = 1  # fairseq's sinusoids count from the position after that of padding

# The languages in the order of their ids, which follow those of vocab.json, by the "language_codes" of a
# tokenizer's settings (M2M100Tokenizer of transformers).
_LANGUAGES = {
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
    pad_id, start_id = read_special_id(directory, "pad_token_id"), read_start_id(directory)
    if pad_id != _PAD_ID or start_id == pad_id:
        raise directory.error(
            f"pad_token_id={pad_id} and decoder_start_token_id={start_id} are not supported: positions count "
            f"from 2 only if padding is {_PAD_ID} and does not start the decoder"
        )
    search, text = read_search(directory), None
    if directory.has_tokenizer:
        text = _read_text(directory, options, forced_id=search.pop("forced_first_id"))
    read = ReadSettings(model=facts, search=search, text=text)
    return assemble(directory, options, read, _convert, layout=LAYOUT)


def _convert(conversion: Conversion) -> Imported:
    move_layers(conversion, prefix="model.")
    for stack in STACKS:
        name = f"model.{stack}.embed_positions.weights"  # in older files; transformers ignores it too
        if name in conversion.left:
            conversion.take(name)
    move_tokens(conversion, prefix="model.", shared="model.shared.weight", output="lm_head.weight")
    return conversion.finish(norm="pre", positions="fairseq")


def _read_tokenizer(directory: PretrainedDirectory) -> Tokenizer:
    """Load NLLB's tokenizer.json, or M2M100's SentencePiece model, list of tokens, and language tags."""
    if (directory.path / PIPELINE_FILE).is_file():
        return tokenizer_of_pipeline(directory)
    if not (directory.path / "vocab.json").is_file():
        raise directory.error(
            "no such file, nor is there a vocab.json; save the tokenizer again with today's transformers",
            file=PIPELINE_FILE,
        )
    codes = directory.typed(TOKENIZER_FILE).text("language_codes") or "m2m100"
    if codes not in _LANGUAGES:
        raise directory.error(
            f"language_codes={shown(codes)} is unknown; there are {', '.join(_LANGUAGES)}",
            file=TOKENIZER_FILE,
        )
    tags = [f"__{code}__" for code in _LANGUAGES[codes].split()]
    return vocabulary_tokenizer(
        directory,
        directory.read_bytes("sentencepiece.bpe.model"),
        [*read_words(directory.path / "vocab.json"), *tags],
        special=tags,
    )


def _read_text(
    directory: PretrainedDirectory, options: ImportOptions, *, forced_id: int | None
) -> TextSettings:
    tokenizer = _read_tokenizer(directory)
    check_special_ids(directory, tokenizer)
    usual = next((tag for tag in _USUAL_SOURCES if tag in tokenizer.tags()), None)
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
