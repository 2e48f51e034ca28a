"""Read FSMT, Pegasus and Blenderbot as saved by transformers.

FSMT is fairseq's Transformer (post-norm, its sinusoids, two vocabularies), and its text is split by Moses'
rules. Pegasus and Blenderbot are BARTs in pre-norm. Pegasus has concatenated sinusoids, and a SentencePiece
model whose ids follow those of its masks; Blenderbot has learned positions that count from 0.
BlenderbotSmall is in post-norm, with words in lower case. A source ends with the end token, but not in
BlenderbotSmall, and has no other special tokens.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

from torch import Tensor
from torch.nn.functional import layer_norm

from heedful.interop.conversion import STACKS, Conversion, Imported, Positions, move_positions
from heedful.interop.fairseq import move_layers, move_learned_positions, move_output_bias, move_tokens
from heedful.interop.huggingface.added_tokens import with_added_tokens
from heedful.interop.huggingface.fairseq_families import check_positions
from heedful.interop.huggingface.generation import read_search, read_start_id
from heedful.interop.huggingface.pretrained import (
    TOKENIZER_FILE,
    ImportedBundle,
    ImportOptions,
    PretrainedDirectory,
)
from heedful.interop.huggingface.reading import (
    ReadSettings,
    TextSettings,
    assemble,
    check_special_ids,
    clean_up_spaces,
    read_architecture,
    read_special_ids,
    tokenizer_of_pipeline,
    vocabulary_tokenizer,
)
from heedful.interop.vocabulary import read_words
from heedful.model.transformer import SINUSOIDS
from heedful.settings.model import SINUSOID_OFFSETS
from heedful.settings.parsing import decode_text, shown
from heedful.text import MosesTokenizer, Tokenizer, TokenizerPair
from heedful.text.moses_tokenizer import read_merges
from heedful.text.sentencepiece_tokenizer import load_sentencepiece

FSMT = "fsmt"
_MERGES_FILE = "merges.txt"
_OF_FSMT = ("decoder", "langs", "src_vocab_size", "tgt_vocab_size")


def read_fsmt(directory: PretrainedDirectory, options: ImportOptions) -> ImportedBundle:
    """Read a directory of FSMT; it has one pair of languages.

    Raises:
        InteropError: a file is missing, or has settings that are not supported.
        TokenizerError: the tokenizer files are not usable.
        MissingExtraError: the sacremoses library is not installed.
        ConfigError: the settings are invalid.
    """
    facts = read_architecture(directory, ["fsmt"], known=_OF_FSMT)
    check_positions(directory)
    text = None
    if directory.has_tokenizer or (directory.path / _MERGES_FILE).is_file():
        _refuse_languages(directory, options)
        tokenizers = TokenizerPair(*(_fsmt_tokenizer(directory, i) for i in (0, 1)))
        check_special_ids(directory, tokenizers.tgt)
        src, tgt = (each.tokens(range(each.vocab_size)) for each in (tokenizers.src, tokenizers.tgt))
        text = TextSettings(
            tokenizers=tokenizers, start_id=read_start_id(directory), one_vocabulary=src == tgt
        )
    read = ReadSettings(model=facts, search=read_search(directory), text=text)
    tied = directory.config.get("tie_word_embeddings") is True
    return assemble(directory, options, read, partial(_convert_fsmt, tied=tied), layout=FSMT)


def _convert_fsmt(conversion: Conversion, *, tied: bool) -> Imported:
    move_layers(conversion, prefix="model.")
    tables = {stack: f"model.{stack}.embed_positions.weight" for stack in STACKS}
    there = {stack: name for stack, name in tables.items() if name in conversion.left}
    for name in there.values():
        conversion.put_back(name, conversion.take(name)[SINUSOID_OFFSETS["fairseq"] :])
    move_positions(conversion, there, Positions(fixed=True, formula=SINUSOIDS["fairseq"]))
    output, common = "model.decoder.output_projection.weight", "model.shared.weight"
    move_tokens(conversion, prefix="model.", shared=common if tied else None, output=output)
    return conversion.finish(norm="post", positions="fairseq")


def _fsmt_tokenizer(directory: PretrainedDirectory, which: int) -> MosesTokenizer:
    """Load the tokenizer of the source (0) or of the target (1); both have the same codes."""
    directory.tokenizer_class("FSMTTokenizer")
    if directory.tokenizer.get("do_lower_case") is True:
        raise directory.error("do_lower_case=true is not supported", file=TOKENIZER_FILE)
    languages = directory.tokenizer.get("langs") or directory.config.get("langs")
    if not (
        isinstance(languages, list)
        and len(languages) == len(STACKS)
        and all(isinstance(each, str) for each in languages)
    ):
        raise directory.error(f"langs={shown(languages)} are not two languages", file=TOKENIZER_FILE)
    words = read_words(directory.path / ("vocab-src.json", "vocab-tgt.json")[which])
    tokens, added = with_added_tokens(directory, words)
    ids = read_special_ids(directory, {token: i for i, token in enumerate(tokens)})
    return MosesTokenizer(
        _merges(directory, first=0),
        tokens,
        ids,
        language=languages[which],
        rules="fsmt",
        added=added,
        clean_up_spaces=clean_up_spaces(directory),
        name=str(directory.path / "tokenizer"),
    )


def _merges(directory: PretrainedDirectory, *, first: int) -> list[tuple[str, str]]:
    """Return the byte-pair codes from a line of the file on; the last of equal ones counts."""
    try:
        lines = decode_text(directory.read_bytes(_MERGES_FILE)).split("\n")[first:-1]
        ranks = {pair: rank for rank, pair in enumerate(read_merges(lines))}
    except ValueError as error:
        raise directory.error(str(error), file=_MERGES_FILE) from None
    return sorted(ranks, key=ranks.__getitem__)


PEGASUS = "pegasus"
# Keys of older classes that today's do not support.
_PRE_NORM: dict[str, Any] = {
    "add_bias_logits": False,
    "add_final_layer_norm": True,
    "normalize_before": True,
    "normalize_embedding": False,
}
_MODEL_FILE = "spiece.model"
_USUAL_OFFSET = 103  # of the model's ids; those before are for pre-training
_LEAST_OFFSET = 2


def read_pegasus(directory: PretrainedDirectory, options: ImportOptions) -> ImportedBundle:
    """Read a directory of Pegasus.

    Raises:
        InteropError: a file is missing, or has settings that are not supported.
        TokenizerError: the tokenizer files are not usable.
        ConfigError: the settings are invalid.
    """
    fixed = _PRE_NORM | {"static_position_embeddings": True}
    facts = read_architecture(directory, ["pegasus"], fixed=fixed)
    text = _read_text(directory, options, _pegasus_tokenizer) if directory.has_tokenizer else None
    read = ReadSettings(model=facts, search=read_search(directory), text=text)
    return assemble(directory, options, read, _convert_pegasus, layout=PEGASUS)


def _convert_pegasus(conversion: Conversion) -> Imported:
    tables = {stack: f"model.{stack}.embed_positions.weight" for stack in STACKS}
    there = {stack: name for stack, name in tables.items() if name in conversion.left}
    move_positions(conversion, there, Positions(fixed=True, formula=SINUSOIDS["concatenated"]))
    return _convert(conversion, positions="concatenated")


def _convert(conversion: Conversion, **facts: str) -> Imported:
    """Move all but the positions."""
    move_layers(conversion, prefix="model.")
    move_tokens(conversion, prefix="model.", shared="model.shared.weight", output="lm_head.weight")
    move_output_bias(conversion, "final_logits_bias")
    return conversion.finish(norm="pre", **facts)


def _pegasus_tokenizer(directory: PretrainedDirectory) -> Tokenizer:
    """Load the SentencePiece model, after the tokens of pre-training, or a tokenizer.json."""
    directory.tokenizer_class("PegasusTokenizer")
    if not (directory.path / _MODEL_FILE).is_file():
        return tokenizer_of_pipeline(directory, starts_with_pad=True)
    model = directory.read_bytes(_MODEL_FILE)
    spm = load_sentencepiece(model, name=_MODEL_FILE)
    of_model = [spm.id_to_piece(i) for i in range(spm.get_piece_size())]
    offset = directory.typed(TOKENIZER_FILE).whole_number("offset")
    offset = _USUAL_OFFSET if offset is None else offset
    if not _LEAST_OFFSET <= offset <= len(of_model) + _USUAL_OFFSET:
        raise directory.error(f"offset={offset:,} is not supported", file=TOKENIZER_FILE)
    masks = [directory.token("mask_token_sent", "<mask_1>"), directory.token("mask_token", "<mask_2>")]
    special = [*masks, *(f"<unk_{i}>" for i in range(2, offset))]
    first = [directory.token("pad_token", "<pad>"), directory.token("eos_token", "</s>")]
    tokens = [*first, *special, *of_model[len(first) :]]
    return vocabulary_tokenizer(
        directory, model, tokens, special=special, starts_with_pad=True, in_library=True
    )


BLENDERBOT, SMALL = "blenderbot", "blenderbot-small"
BLENDERBOTS = (BLENDERBOT, SMALL)
_SMALL_TOKENS = {"pad": "__null__", "unk": "__unk__", "bos": "__start__", "eos": "__end__"}


def read_blenderbot(directory: PretrainedDirectory, options: ImportOptions) -> ImportedBundle:
    """Read a directory of Blenderbot or BlenderbotSmall.

    Raises:
        InteropError: a file is missing, or has settings that are not supported.
        TokenizerError: the tokenizer files are not usable.
        ConfigError: the settings are invalid.
    """
    small = directory.config.get("model_type") == SMALL
    norms = {
        "add_final_layer_norm": not small,
        "layernorm_variant": "xlm" if small else "prelayernorm",
        "normalize_before": not small,
        "normalize_embedding": small,
    }
    fixed = _PRE_NORM | norms | {"extra_layer_norm": False, "static_position_embeddings": False}
    known = ("do_blenderbot_90_layernorm", "unk_token_id")  # without effect
    facts = read_architecture(directory, BLENDERBOTS, known=known, fixed=fixed)
    text = None
    if directory.has_tokenizer or (directory.path / _MERGES_FILE).is_file():
        directory.tokenizer_class("BlenderbotSmallTokenizer" if small else "BlenderbotTokenizer")
        text = _read_text(directory, options, _words_tokenizer if small else tokenizer_of_pipeline)
        text = replace(text, source_eos=not small)
    read = ReadSettings(model=facts, search=read_search(directory), text=text)
    is_scaled = bool(facts.get("scale_embeddings"))
    convert = partial(_convert_small, is_scaled=is_scaled) if small else _convert_blenderbot
    return assemble(directory, options, read, convert, layout=BLENDERBOT)


def _convert_blenderbot(conversion: Conversion) -> Imported:
    move_learned_positions(conversion, prefix="model.", unused=0)
    return _convert(conversion)


def _convert_small(conversion: Conversion, *, is_scaled: bool) -> Imported:
    """Convert a post-norm model, whose decoder normalises embeddings, unscaled, before it adds positions.

    These are as many vectors as there are tokens, so they become the embedding of the decoder.
    """
    gain, shift = (
        conversion.take(f"model.decoder.layernorm_embedding.{part}") for part in ("weight", "bias")
    )
    move_learned_positions(conversion, prefix="model.", unused=0)
    move_layers(conversion, prefix="model.")
    move_tokens(conversion, prefix="model.", shared="model.shared.weight", output="lm_head.weight")
    move_output_bias(conversion, "final_logits_bias")
    conversion.change(
        "decoder.embedding.tokens.weight", partial(_normalised, gain=gain, shift=shift, is_scaled=is_scaled)
    )
    return conversion.finish(norm="post")


def _normalised(matrix: Tensor, *, gain: Tensor, shift: Tensor, is_scaled: bool) -> Tensor:
    scale = matrix.shape[1] ** 0.5 if is_scaled else 1.0
    return layer_norm(matrix, matrix.shape[1:], gain, shift) / scale


def _words_tokenizer(directory: PretrainedDirectory) -> MosesTokenizer:
    """Load vocab.json and merges.txt; texts are split at spaces and punctuation, in lower case."""
    tokens, added = with_added_tokens(directory, read_words(directory.path / "vocab.json"))
    ids = read_special_ids(directory, {token: i for i, token in enumerate(tokens)}, usual=_SMALL_TOKENS)
    merges = _merges(directory, first=1)  # after the version
    return MosesTokenizer(
        merges,
        tokens,
        ids,
        language="en",
        rules="parlai",
        added=added,
        clean_up_spaces=clean_up_spaces(directory),
        name=str(directory.path / "tokenizer"),
    )


def _read_text(
    directory: PretrainedDirectory,
    options: ImportOptions,
    read_tokenizer: Callable[[PretrainedDirectory], Tokenizer],
) -> TextSettings:
    _refuse_languages(directory, options)
    tokenizer = read_tokenizer(directory)
    check_special_ids(directory, tokenizer)
    return TextSettings(tokenizers=TokenizerPair(tokenizer, tokenizer), start_id=read_start_id(directory))


def _refuse_languages(directory: PretrainedDirectory, options: ImportOptions) -> None:
    if options.src_lang or options.tgt_lang:
        family = directory.config["model_type"]
        raise directory.error(f"--src-lang, --tgt-lang: {family} has no choice of languages; leave them out")
