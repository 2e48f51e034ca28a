"""FSMT, Pegasus and Blenderbot, as saved by transformers.

FSMT is fairseq's Transformer (post-norm, its sinusoids, two vocabularies), and its text is split by Moses'
rules. Pegasus and Blenderbot are BARTs in pre-norm. Pegasus has concatenated sinusoids, and a SentencePiece
model with ids after its masks; Blenderbot has learned positions that count from 0.
BlenderbotSmall is in post-norm, with words in lower case. A source ends with the end token, but not in
BlenderbotSmall, and has no other special tokens.
"""

from collections.abc import Mapping
from dataclasses import replace
from functools import partial

from torch import Tensor
from torch.nn.functional import layer_norm

from heedful.interop.conversion import STACKS, Conversion, DeferredTensor, Positions
from heedful.interop.fairseq import BIAS, POSITIONS, rows
from heedful.interop.huggingface.added_tokens import with_added_tokens
from heedful.interop.huggingface.fairseq_families import check_positions
from heedful.interop.huggingface.pretrained import TOKENIZER_FILE, PretrainedDirectory
from heedful.interop.huggingface.reading import (
    USUAL_TOKENS,
    Family,
    clean_up_spaces,
    keys,
    read_special_ids,
    tokenizer_of_pipeline,
    vocabulary_tokenizer,
)
from heedful.interop.tables import Table, Transform
from heedful.interop.vocabulary import ids_of, is_texts, pieces, read_words
from heedful.model.transformer import SINUSOIDS
from heedful.settings.model import SINUSOID_OFFSETS
from heedful.settings.parsing import decode_text, shown
from heedful.text import MosesTokenizer, Tokenizer, TokenizerPair
from heedful.text.moses_tokenizer import read_merges

_MERGES_FILE = "merges.txt"


def _fsmt_tokenizers(directory: PretrainedDirectory) -> TokenizerPair:
    """Load the tokenizers of source and target, which have the same byte-pair codes."""
    if directory.tokenizer.get("do_lower_case") is True:
        directory.refuse("do_lower_case=true is not supported", file=TOKENIZER_FILE)
    languages = directory.tokenizer.get("langs") or directory.config.get("langs")
    if not is_texts(languages) or len(languages) != len(STACKS):
        directory.refuse(f"langs={shown(languages)} are not two languages", file=TOKENIZER_FILE)
    src, tgt = (
        moses_tokenizer(directory, words, language, rules="fsmt")
        for words, language in zip(("vocab-src.json", "vocab-tgt.json"), languages, strict=True)
    )
    return TokenizerPair(src, tgt)


def moses_tokenizer(
    directory: PretrainedDirectory,
    words: str,
    language: str,
    *,
    rules: str,
    special: Mapping[str, str] = USUAL_TOKENS,
) -> MosesTokenizer:
    """Load a file of words and the merges.txt beside it."""
    tokens, added = with_added_tokens(directory, read_words(directory.path / words))
    return MosesTokenizer(
        _merges(directory, first=0 if rules == "fsmt" else 1),  # after the version
        tokens,
        read_special_ids(directory, ids_of(tokens), usual=special),
        language=language,
        rules=rules,
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
        directory.refuse(str(error), file=_MERGES_FILE)
    return sorted(ranks, key=ranks.__getitem__)


_OUTPUT = "model.decoder.output_projection.weight"


def _as_tied(table: Table, conversion: Conversion) -> Table:
    """If `tie_word_embeddings` is true, a matrix may be missing, because it is shared with another."""
    is_tied = conversion.beside.get("tie_word_embeddings") is True
    return replace(table, rows=rows(output=_OUTPUT) + POSITIONS) if is_tied else table


FSMT = Family(
    layout="fsmt",
    model_type="fsmt",
    weights=Table(
        rows(shared=False, output=_OUTPUT) + POSITIONS,
        positions=Positions(
            fixed=True, required=False, formula=SINUSOIDS["fairseq"], unused=SINUSOID_OFFSETS["fairseq"]
        ),
        facts={"norm": "post", "positions": "fairseq"},
        adapt=_as_tied,
    ),
    keys=keys(ignored=("decoder", "langs", "src_vocab_size", "tgt_vocab_size")),
    check=check_positions,
    classes=("FSMTTokenizer",),
    tokenizer=_fsmt_tokenizers,
)

_MODEL_FILE = "spiece.model"
_USUAL_OFFSET = 103  # of the model's ids; those before are for pre-training
_LEAST_OFFSET = 2


def _pegasus_tokenizer(directory: PretrainedDirectory) -> Tokenizer:
    """Load the SentencePiece model, after the tokens of pre-training, or a tokenizer.json."""
    if not (directory.path / _MODEL_FILE).is_file():
        return tokenizer_of_pipeline(directory, starts_with_pad=True)
    model = directory.read_bytes(_MODEL_FILE)
    of_model = pieces(model, _MODEL_FILE)
    offset = directory.typed(TOKENIZER_FILE).whole_number("offset")
    offset = _USUAL_OFFSET if offset is None else offset
    if not _LEAST_OFFSET <= offset <= len(of_model) + _USUAL_OFFSET:
        directory.refuse(f"offset={offset:,} is not supported", file=TOKENIZER_FILE)
    masks = [directory.token("mask_token_sent", "<mask_1>"), directory.token("mask_token", "<mask_2>")]
    special = [*masks, *(f"<unk_{i}>" for i in range(2, offset))]
    first = [directory.token("pad_token", "<pad>"), directory.token("eos_token", "</s>")]
    tokens = [*first, *special, *of_model[len(first) :]]
    return vocabulary_tokenizer(
        directory, model, tokens, special=special, starts_with_pad=True, in_library=True
    )


# Keys of older classes that today's do not support.
_PRE_NORM = """
    false  add_bias_logits normalize_embedding
    true   add_final_layer_norm normalize_before static_position_embeddings
"""
PEGASUS = Family(
    layout="pegasus",
    model_type="pegasus",
    weights=Table(
        rows() + POSITIONS + BIAS,
        positions=Positions(fixed=True, required=False, formula=SINUSOIDS["concatenated"]),
        facts={"norm": "pre", "positions": "concatenated"},
    ),
    keys=keys(_PRE_NORM),
    classes=("PegasusTokenizer",),
    tokenizer=_pegasus_tokenizer,
)


_CHAT_ROWS = rows() + POSITIONS + BIAS
_CHAT = (
    _PRE_NORM
    + """
    false  extra_layer_norm static_position_embeddings
"""
)
_WITHOUT_EFFECT = ("do_blenderbot_90_layernorm", "unk_token_id")
BLENDERBOT = Family(
    layout="blenderbot",
    model_type="blenderbot",
    weights=Table(_CHAT_ROWS, positions=Positions(learned=True), facts={"norm": "pre"}),
    keys=keys(_CHAT + '"prelayernorm" layernorm_variant', _WITHOUT_EFFECT),
    classes=("BlenderbotTokenizer",),
)

_SMALL_TOKENS = {"pad": "__null__", "unk": "__unk__", "bos": "__start__", "eos": "__end__"}


def _small_tokenizer(directory: PretrainedDirectory) -> Tokenizer:
    """Load vocab.json and merges.txt; texts are split at spaces and punctuation, in lower case."""
    return moses_tokenizer(directory, "vocab.json", "en", rules="parlai", special=_SMALL_TOKENS)


def _with_norm(table: Table, conversion: Conversion) -> Table:
    """Normalise the decoder's embeddings: it does so before it adds positions, and does not scale them.

    The normalised vectors, one for each token, become the embedding of the decoder.
    """
    norm = "model.decoder.layernorm_embedding"
    gain, shift = conversion.take(f"{norm}.weight"), conversion.take(f"{norm}.bias")
    is_scaled = bool(conversion.settings.get("scale_embeddings"))
    normalised = partial(_normalised, gain=gain, shift=shift, is_scaled=is_scaled)
    transform = Transform(lambda matrix: DeferredTensor(matrix, normalised, matrix.shape))
    return replace(table, transforms={"normalised": transform})


def _normalised(matrix: Tensor, *, gain: Tensor, shift: Tensor, is_scaled: bool) -> Tensor:
    scale = matrix.shape[1] ** 0.5 if is_scaled else 1.0
    return layer_norm(matrix, matrix.shape[1:], gain, shift) / scale


_SMALL_EMBEDDING = """
    model.decoder.embed_tokens.weight|model.shared.weight|model.encoder.embed_tokens.weight|lm_head.weight \
        decoder.embedding.tokens.weight  normalised
"""
_OF_SMALL = (
    _CHAT
    + """
    false  add_final_layer_norm normalize_before
    "xlm"  layernorm_variant
    true   normalize_embedding
"""
)
BLENDERBOT_SMALL = Family(
    layout="blenderbot",
    model_type="blenderbot-small",
    weights=Table(
        _SMALL_EMBEDDING + _CHAT_ROWS,
        positions=Positions(learned=True),
        facts={"norm": "post"},
        adapt=_with_norm,
    ),
    keys=keys(_OF_SMALL, _WITHOUT_EFFECT),
    classes=("BlenderbotSmallTokenizer",),
    tokenizer=_small_tokenizer,
    source_eos=False,
)
