"""Marian's own models: `model.npz` or `.bin` with the options in it, decoder.yml, vocabularies, shortlists.

Marian's arithmetic is followed exactly: its sinusoids and epsilon, and a decoder that starts from a zero
embedding. That is a row of zeros here, a token `<pad>` after all others; its logit is so low that its
probability is 0.
"""

import fnmatch
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from heedful.data.lexicon import Lexicon
from heedful.decoding.shortlist import Shortlist
from heedful.errors import InteropError
from heedful.interop.containers import Cursor, require
from heedful.interop.conversion import (
    TOKENS,
    Conversion,
    DeferredTensor,
    Imported,
    Settings,
    Values,
    add_tokens,
)
from heedful.interop.huggingface.pretrained import ImportedBundle, ImportOptions, tokenizer_section
from heedful.interop.keys import allowed, split
from heedful.interop.marian_files import (
    MarianFiles,
    find_files,
    opened,
    read_vocabulary,
    read_weights,
)
from heedful.interop.tables import Table
from heedful.interop.vocabulary import (
    GUIDED_KIND,
    MARIAN_TAG,
    TypedSettings,
    as_list,
    pieces,
    read,
    read_bytes,
    tag_of_language,
)
from heedful.settings.parsing import is_whole
from heedful.settings.run import Config
from heedful.text import SpecialIds, Tokenizer, TokenizerPair, VocabularyTokenizer
from heedful.text.vocabulary_tokenizer import tokenizer_from_words

LAYOUT = "marian-native"
_EPS = 1e-6
_PAD = "<pad>"
_SPACE = "▁"
_CONTROL_BYTES = frozenset(f"<0x{byte:02X}>" for byte in range(32))
# Options of a model that must have this value or be absent.
FIXED = allowed(
    """
    false         right-left ulr transformer-disable-position-embeddings transformer-no-affine
    false         transformer-no-bias transformer-no-projection transformer-pool
    false         transformer-rnn-projection transformer-train-positions
    []            char-conv-filters-num special-vocab
    0             factors-dim-emb lemma-dim-emb
    "transformer" type
    true          bert-train-type-embeddings
    "sum"         factors-combine
    []|["sequence","sequence"]  input-types
    ""            lemma-dependency
    "default"     transformer-attention-mask
    2             transformer-ffn-depth
    0|2           transformer-decoder-ffn-depth
    """
)
# Today's Marian has transformer-train-position-embeddings, and reads it nowhere in a transformer.
WITHOUT_EFFECT = split(
    """
    bert-type-vocab-size dec-cell-base-depth dec-cell-high-depth dim-rnn enc-cell enc-cell-depth enc-type
    output-approx-knn separator-symbol skip transformer-aan-activation transformer-aan-depth
    transformer-aan-nogate transformer-alibi-shift transformer-alibi-trainable transformer-depth-scaling
    transformer-dim-aan transformer-train-position-embeddings ulr-dim-emb
    ulr-trainable-transformation version
    """
)
_READ = split(
    """
    dec-cell dec-depth dim-emb dim-vocabs enc-depth layer-normalization output-omit-bias tied-embeddings
    tied-embeddings-all tied-embeddings-src transformer-decoder-autoreg transformer-decoder-dim-ffn
    transformer-dim-ffn transformer-ffn-activation transformer-guided-alignment-layer transformer-heads
    transformer-postprocess transformer-postprocess-emb transformer-postprocess-top transformer-preprocess
    transformer-tied-layers
    """
)
# Options of decoder.yml that are read, that must have a value, and that change no outputs.
_SEARCH_READ = split(
    "alignment allow-special allow-unk beam-size gemm-precision guided-alignment models normalize shortlist "
    "transformer-guided-alignment-layer vocabs"
)
SEARCH_FIXED = allowed(
    """
    false               best-deep force-decode right-left tsv
    0                   all-caps-every english-title-case-every word-penalty
    []                  output-approx-knn
    false|[]|["0"]|[0]  output-sampling
    []|[1]              weights
    """
)
SEARCH_WITHOUT_EFFECT = split(
    """
    authors build-info check-nan cite clip-gemm config cpu-threads data-threads devices dump-config
    fp16 gemm-type ignore-model-config input int16 interpolate-env-vars log log-level
    log-time-zone max-length max-length-break max-length-crop max-length-factor maxi-batch maxi-batch-sort
    mini-batch mini-batch-words model-mmap n-best no-spm-decode no-spm-encode num-devices optimize output port
    precision quantize-range quiet quiet-translation relative-paths seed skip-cost ssplit-mode
    ssplit-prefix-file stat-freq tempdir tsv-fields use-legacy-batching version word-scores workspace
    """
)
_RECURRENT = allowed('"ssru" dec-cell\nfalse layer-normalization')  # of a decoder of cells
# Names of weights of layer {n}, which is {i} here: of all layers, and of their self-attention or cells.
LAYERS = """
    {stack}_l{n}_                        {stack}.layers.{i}.
        ffn_W{1,2}                       feed_forward.{inner,outer}.weight
        ffn_b{1,2}                       feed_forward.{inner,outer}.bias                flat
        ffn_ffn_NORM_{scale,bias}PRE     feed_forward_norm.{weight,bias}                flat
    decoder_l{n}_                        decoder.layers.{i}.
        context_W{q,k,v,o}               cross_attention.{query,key,value,output}.weight
        context_b{q,k,v,o}               cross_attention.{query,key,value,output}.bias  flat
        context_Wo_NORM_{scale,bias}PRE  cross_attention_norm.{weight,bias}             flat
"""
ATTENTION = """
    {stack}_l{n}_                        {stack}.layers.{i}.
        self_W{q,k,v,o}                  self_attention.{query,key,value,output}.weight
        self_b{q,k,v,o}                  self_attention.{query,key,value,output}.bias   flat
        self_Wo_NORM_{scale,bias}PRE     self_attention_norm.{weight,bias}              flat
"""
CELLS = """
    decoder_l{n}_rnn_                    decoder.layers.{i}.
        {W,Wf}                           self_attention.{input,forget}.weight
        bf                               self_attention.forget.bias                     flat
        CELL_{scale,bias}PRE             self_attention_norm.{weight,bias}              flat
"""
EMBEDDINGS = """
    encoder_Wemb|Wemb                    encoder.embedding.tokens.weight
    decoder_Wemb|Wemb                    decoder.embedding.tokens.weight
    decoder_ff_logit_out_W|decoder_ff_logit_out_Wt|decoder_Wemb|Wemb  output.weight
    decoder_ff_logit_out_b               output.bias                                    flat
    *_QuantMultA                         -
"""
EMBEDDING_NORM = "    {stack}_emb_NORM_{scale,bias}_pre  {stack}.embedding.norm.{weight,bias}  flat"
FINAL_NORM = "    {stack}_top_NORM_{scale,bias}  {stack}.final_norm.{weight,bias}  flat"
# What stands for the marks in these rows, by the place of norms and by their letter; RMSNorm has no shift.
_MARKS = {
    "post": {"CELL": "ffn_NORM", "PRE": ""},
    "pre": {"CELL": "NORM", "PRE": "_pre"},
    "n": {"NORM": "ln"},
    "r": {"NORM": "rms", "{scale,bias}": "scale", "{weight,bias}": "weight"},
}
# By transformer-preprocess and -postprocess.
_PLACES = {("", "an"): "post", ("", "ar"): "post", ("n", "a"): "pre", ("r", "a"): "pre"}
_ACTIVATIONS = {name: name for name in ("swish", "relu", "gelu")}
_EXACT_GELU = (1, 12, 3)  # before that version "gelu" was x sigmoid(1.702 x)
_NORMED_KEYS = (1, 11, 0)  # before that version pre-norm attention had keys and values of unnormalised states
_SHORTLIST_MULTIPLE = 8
_BEAM_SIZE = 12  # Marian's, if no file says another
# The clients of Firefox's students give these options; the files do not have them.
_STUDENT = {"beam-size": 1, "normalize": 1.0, "word-penalty": 0}
_OF_STUDENTS = (
    "There is no decoder.yml, so the search is as in clients of such students: beam 1, scores divided by the "
    "length."
)
_OF_MARIAN = (
    f"There is no decoder.yml, so the search is Marian's default: beam {_BEAM_SIZE}, scores not divided by "
    "the length."
)


def read_marian_native(source: Path, options: ImportOptions) -> ImportedBundle:
    """Read a folder, an archive (OPUS-MT's releases), or a file of weights beside its other files.

    Args:
        source: the path.
        options: the user's settings; with a target language, each source starts with its tag.

    Raises:
        InteropError: a file is missing, or something in it is not supported.
        TokenizerError: the vocabulary is not usable, or a language has no tag.
        ConfigError: the settings are invalid.
    """
    with opened(source) as path:
        return _read(find_files(path, vocabularies=options.vocabularies), options)


def _read(files: MarianFiles, options: ImportOptions) -> ImportedBundle:
    weights, architecture = read_weights(files.model)
    is_in_8_bits = any(map(_is_in_8_bits, weights.values()))
    is_student = files.shortlist is not None and is_in_8_bits
    layer = _alignment_layer(files, architecture, is_in_8_bits=is_in_8_bits)
    model = _convert(files, weights, architecture, replace(options, settings={**layer, **options.settings}))
    del weights
    notes: tuple[str, ...] = ()
    if not files.options_file.is_file():
        is_student = is_student or model.config.decoder_unit == "ssru"
        files = replace(files, options=_STUDENT if is_student else {})
        notes = (_OF_STUDENTS if is_student else _OF_MARIAN,)
    sizes = model.config.src_vocab_size - 1, model.config.tgt_vocab_size - 1
    tokenizers = None if files.vocabularies is None else _read_tokenizers(files, sizes)
    search = _read_search(files)
    sections: Values = {"model": model.config.model_dump(), "decode": search}
    if tokenizers is None:
        if options.tgt_lang or options.src_lang:
            raise InteropError(f"{files.model}: without vocabularies there are no languages; leave them out")
        search["suppressed_ids"] = (sizes[1],)
        return ImportedBundle(Config(**sections), model.weights, None, notes)
    search["suppressed_ids"] = _suppressed_ids(files, tokenizers.tgt)
    sections["languages"] = _languages(files, tokenizers.src, options)
    joint = model.config.tied == "all" or tokenizers.joint
    sections["tokenizer"] = tokenizer_section(tokenizers, joint=joint)
    shortlist = None if files.shortlist is None else _read_shortlist(files.shortlist, sizes, tokenizers)
    return ImportedBundle(Config(**sections), model.weights, tokenizers, notes, shortlist)


def _is_in_8_bits(weight: Tensor) -> bool:
    """Return whether a weight is stored in 8 bits, with a multiplier."""
    return isinstance(weight, DeferredTensor) and getattr(weight.decode, "multiplier", None) is not None


_GUIDED = re.compile(r"""^guided-alignment: *["']?([^"'\s]+)""", re.MULTILINE)


def _alignment_layer(files: MarianFiles, architecture: Settings, *, is_in_8_bits: bool) -> Values:
    """Return the decoder layer that guided alignment trained a head of, as settings; {}: none is known.

    The head is the layer's first: Marian trains and reads no other.

    Each model of Marian has an option for the layer, "last" by default, and none that says whether there was
    guided alignment. That is known from the options of the training (model.npz.yml), from a layer with a
    number, from a decoder.yml that asks for alignments, and from the kind of model: students and OPUS-MT's
    transformer-align are trained so.
    """
    key = "transformer-guided-alignment-layer"
    options = {**files.options, **architecture}  # the model's options win, as in Marian
    settings = TypedSettings(options, files.model)
    depth = _number(settings, "dec-depth")
    layer = options.get(key, "last")
    is_last = layer == "last"
    number = depth if is_last else settings.whole_number(key, least=1, most=depth)
    guided = options.get("guided-alignment") or _guided_alignment(files.model)
    is_student = is_in_8_bits or options.get("transformer-decoder-autoreg") == "rnn"
    is_student |= str(options.get("gemm-precision")).startswith("int8")
    is_known = is_student or not is_last or bool(options.get("alignment"))
    is_known |= guided is not None or GUIDED_KIND.search(files.model.name) is not None
    return {"alignment_layer": number} if is_known and guided != "none" else {}


def _guided_alignment(model: Path) -> str | None:
    """Return the training's option, "none" or a file of alignments; None: the options are not there."""
    stem, dot, _ = model.name.partition(".npz")
    file = model.with_name(f"{stem}{dot}.yml")
    if not file.is_file():
        return None
    found = _GUIDED.search(read(file, lambda content: content.decode(errors="replace")))
    return found and found[1]


def _convert(
    files: MarianFiles, weights: Mapping[str, Tensor], options: Settings, chosen: ImportOptions
) -> Imported:
    """Convert the weights with the options that are in their file."""
    conversion = Conversion(weights, layout=LAYOUT, origin=files.model, settings=chosen.settings)
    settings = TypedSettings(options, files.model)
    settings.check(FIXED, _READ | WITHOUT_EFFECT)
    is_recurrent = settings.one_of("transformer-decoder-autoreg", _UNITS, "self-attention")
    if is_recurrent:
        settings.check(_RECURRENT)
    norm, letter, outer = _norms(settings, conversion)
    self_attention = ATTENTION.replace("{stack}", "encoder") + CELLS if is_recurrent else ATTENTION
    text = "\n".join([LAYERS, self_attention, EMBEDDINGS, *outer])
    for mark, name in (_MARKS[norm] | _MARKS[letter]).items():
        text = text.replace(mark, name)
    for n, number in enumerate(_tied_layers(settings), start=1):
        prefix = f"decoder_l{number}_"
        for name in fnmatch.filter(weights, f"{prefix}*"):
            conversion.left[f"decoder_l{n}_{name.removeprefix(prefix)}"] = weights[name]
    Table(text).move(conversion)
    is_tied = bool(options.get("tied-embeddings") or options.get("tied-embeddings-all"))
    is_right = is_tied == conversion.names["output.weight"].endswith("Wemb")
    settings.require(is_right, "tied-embeddings", " contradicts the weights")
    add_tokens(conversion.moved, src=1, tgt=1)
    src_pad, tgt_pad = (
        len(conversion.moved[name]) - 1 if name in conversion.moved else 0 for name in TOKENS.values()
    )
    conversion.settings |= {"src_pad_id": src_pad, "tgt_pad_id": tgt_pad, "decoder_start_id": tgt_pad}
    depths = {f"num_{stack}coder_layers": _number(settings, f"{stack}c-depth") for stack in ("en", "de")}
    conversion.settings = depths | conversion.settings
    d_ff = _number(settings, "transformer-dim-ffn")
    settings.check({"transformer-decoder-dim-ffn": (0, d_ff)})
    return conversion.finish(
        norm=norm,
        norm_kind="rms" if letter == "r" else "layer",
        positions="marian",
        num_heads=_number(settings, "transformer-heads"),
        activation=_activation(settings, conversion),
        decoder_unit="ssru" if is_recurrent else "attention",
        layer_norm_eps=_EPS,
    )


_UNITS = {"self-attention": False, "rnn": True}


def _number(settings: TypedSettings, key: str) -> int:
    number = settings.whole_number(key, least=1, most=2**20)
    settings.require(number is not None, key, " is missing")
    return number or 0


def _tied_layers(settings: TypedSettings) -> Sequence[int]:
    """Return Marian's number of each layer of the decoder; tied layers have the number of another one."""
    depth = _number(settings, "dec-depth")
    tied = as_list(settings.values.get("transformer-tied-layers")) or range(1, depth + 1)
    is_right = len(tied) == depth and all(is_whole(i, least=1, most=1000) for i in tied)
    settings.require(is_right, "transformer-tied-layers", f" are not the {depth} layers of dec-depth")
    return tied


def _norms(settings: TypedSettings, conversion: Conversion) -> tuple[str, str, list[str]]:
    """Return "post" or "pre", the letter of the norm, and the rows of norms around the stacks."""
    usual = {"preprocess": "", "postprocess": "dan", "postprocess-emb": "d", "postprocess-top": ""}
    usual |= {key: text for key in usual if (text := settings.text(f"transformer-{key}")) is not None}
    # Dropout, which only training has, is left out.
    before, after, emb, top = (text.replace("d", "") for text in usual.values())
    letter = (before or after)[-1:]
    norm = _PLACES.get((before, after), "")
    is_final = top == letter if norm == "pre" else top in ("", letter)
    conversion.require(
        bool(norm) and is_final and emb in ("", letter),
        f"transformer-preprocess={before!r}, transformer-postprocess={after!r}, "
        f"transformer-postprocess-emb={emb!r}, transformer-postprocess-top={top!r} (without d) are not "
        "supported; post-norm is '', 'an', pre-norm 'n', 'a' with top 'n', or both with r for n",
    )
    settings.require(
        norm in ("post", conversion.settings.get("norm")) or _version(settings) >= _NORMED_KEYS,
        "version",
        " leaves keys and values unnormalised with transformer-preprocess, which is not supported; "
        "for a model of 1.11 or later, give --set model.norm=pre",
    )
    return norm, letter, [EMBEDDING_NORM] * bool(emb) + [FINAL_NORM] * bool(top)


def _activation(settings: TypedSettings, conversion: Conversion) -> str:
    name = settings.one_of("transformer-ffn-activation", _ACTIVATIONS, "swish")
    settings.require(
        name != "gelu" or "activation" in conversion.settings or _version(settings) >= _EXACT_GELU,
        "version",
        " computes transformer-ffn-activation=gelu as x sigmoid(1.702 x), which is not supported; for the "
        "exact one, give --set model.activation=gelu",
    )
    return name


def _version(settings: TypedSettings) -> tuple[int, ...]:
    """Return the version of Marian that trained the model, `v1.12.3 abcdef 2023-03-01`; (0,) if unknown."""
    match = re.match(r"v?([0-9]{1,8})\.([0-9]{1,8})\.([0-9]{1,8})", str(settings.values.get("version")))
    return tuple(map(int, match.groups())) if match else (0,)


def _read_search(files: MarianFiles) -> Values:
    """Return the settings of `DecodeConfig`: beam, and scores that are divided by a power of the length."""
    settings = TypedSettings(files.options, files.options_file)
    settings.check(SEARCH_FIXED, _SEARCH_READ | SEARCH_WITHOUT_EFFECT)
    is_flag = isinstance(files.options.get("normalize"), bool)  # true means 1
    penalty = files.options["normalize"] if is_flag else settings.number("normalize", least=0, most=30)
    return {
        "beam_size": settings.whole_number("beam-size", least=1, most=1000) or _BEAM_SIZE,
        "length_penalty": float(penalty or 0),
        "length_normalization": "power",
        # As in Marian, a sentence ends when as many hypotheses have ended as the beam has.
        "early_stopping": "first",
    }


def _suppressed_ids(files: MarianFiles, tgt: Tokenizer) -> tuple[int, ...]:
    """Return the ids that are never written: `<pad>`, the unknown token, and control characters as bytes."""
    suppressed = {tgt.pad_id}
    if files.options.get("allow-unk") is not True:
        suppressed.add(tgt.unk_id)
    if files.options.get("allow-special") is not True:
        tokens = enumerate(tgt.tokens(range(tgt.vocab_size)))
        suppressed.update(i for i, token in tokens if token in _CONTROL_BYTES)
    return tuple(sorted(suppressed))


def _languages(files: MarianFiles, src: Tokenizer, options: ImportOptions) -> Values:
    if options.src_lang is not None:
        raise InteropError(
            f"{files.model}: --src-lang {options.src_lang}: Marian has no tag for it; leave it out"
        )
    if options.tgt_lang is None:
        return {}
    return {"src_tag": tag_of_language(src, options.tgt_lang)}


def _read_tokenizers(files: MarianFiles, sizes: tuple[int, int]) -> TokenizerPair:
    """Return the tokenizers of both vocabularies; `sizes` are the rows of their embeddings."""
    assert files.vocabularies is not None
    paths = [*zip(files.vocabularies, files.splitters or (None, None), strict=True)]
    src, tgt = (_tokenizer(*path, size) for path, size in zip(paths, sizes, strict=True))
    return TokenizerPair(src, src if src.digest() == tgt.digest() else tgt)


def _tokenizer(vocabulary: Path, splitter: Path | None, num_rows: int) -> Tokenizer:
    """Return a tokenizer: SentencePiece's own ids, ids by a list of its tokens, or words between spaces."""
    name = str(vocabulary)
    if vocabulary.suffix == ".spm":
        splitter = vocabulary
        tokens = pieces(read_bytes(vocabulary), name)
    else:
        tokens = read_vocabulary(vocabulary)
    eos, unk = (_special_id(tokens, *names, name) for names in (("</s>", "eos", 0), ("<unk>", "UNK", 1)))
    if len(tokens) > num_rows:
        raise InteropError(
            f"{name}: {len(tokens):,} tokens, but the embedding has {num_rows:,} rows; give the vocabulary "
            "that the model was trained with"
        )
    tokens += [f"<unused-{i}>" for i in range(len(tokens), num_rows)]
    if _PAD in tokens:
        raise InteropError(f"{name}: it has a token {_PAD!r}, which Marian's own vocabularies have not")
    tokens.append(_PAD)
    if splitter is None:
        if any(token.startswith(_SPACE) for token in tokens):
            raise InteropError(
                f"{name}: its tokens are of SentencePiece, but source.spm and target.spm are not beside it; "
                "copy the whole folder"
            )
        return tokenizer_from_words(tokens, name=name, starts_with_pad=True)
    has_tags = any(map(MARIAN_TAG.fullmatch, tokens))
    ids = SpecialIds(pad=num_rows, unk=unk, bos=num_rows, eos=eos)
    return VocabularyTokenizer(read_bytes(splitter), tokens, ids, leading_tags=has_tags, name=name)


def _special_id(tokens: list[str], token: str, older: str, usual: int, name: str) -> int:
    """Return the id of the end or unknown token, which Nematus named otherwise."""
    if len(tokens) > usual and tokens[usual] == older:
        tokens[usual] = token
    if token not in tokens:
        raise InteropError(f"{name}: there is no token {token!r}, which Marian needs")
    return tokens.index(token)


def _read_shortlist(file: Path, sizes: tuple[int, int], tokenizers: TokenizerPair) -> Shortlist:
    """Return the shortlist of both vocabularies with `<pad>`, which has no candidates."""
    read = read_shortlist(file, *sizes)
    counts = np.diff(read.starts)
    src = np.repeat(np.arange(len(counts)), counts)
    return Shortlist(
        np.arange(min(read.first, sizes[1])),
        Lexicon(src, read.candidates, np.ones(len(src))),
        vocab_sizes=(sizes[0] + 1, sizes[1] + 1),
        copies=tokenizers.joint,
        tokenizers=tokenizers.fingerprint(),
        record={"imported from": file.name},
        multiple=_SHORTLIST_MULTIPLE,
    )


SHORTLIST_MAGIC = 0xF11A48D5013417F5


class LexicalShortlist(NamedTuple):
    """The contents of a binary shortlist of Marian.

    Attributes:
        first: the number of first target ids that are in every shortlist.
        starts: where the candidates of each source id start, (V + 1,).
        candidates: target ids.
    """

    first: int
    starts: NDArray[np.int64]
    candidates: NDArray[np.int64]


def read_shortlist(file: Path, src_size: int, tgt_size: int) -> LexicalShortlist:
    """Return the contents of a binary shortlist for vocabularies of these sizes.

    Raises:
        InteropError: it cannot be read, is damaged, or of other vocabularies.
    """

    def parse(content: bytes) -> LexicalShortlist:
        cursor = Cursor(content)
        magic, _, first, _, num_starts, count = cursor.numbers("6Q")
        is_whole_file = cursor.position + 8 * num_starts + 4 * count == len(content)
        remedy = "leave the file out to import without it"
        require(magic == SHORTLIST_MAGIC and is_whole_file, f"not a binary shortlist of Marian; {remedy}")
        starts = np.frombuffer(content, "<u8", num_starts, cursor.position)
        candidates = np.frombuffer(content, "<u4", count, cursor.position + 8 * num_starts).astype(np.int64)
        # The last offset may be missing: it is the number of entries.
        ends = np.append(starts, np.uint64(count))[: src_size + 1]
        is_ordered = (ends[:-1] <= ends[1:]).all() and ends[0] == 0 and ends[-1] <= count
        fits = (
            num_starts in (src_size, src_size + 1) and max(candidates.max(initial=0) + 1, first) <= tgt_size
        )
        sizes = f"{src_size:,} and {tgt_size:,} tokens"
        require(bool(is_ordered and fits), f"it is not for vocabularies of {sizes}; {remedy}")
        return LexicalShortlist(int(first), ends.astype(np.int64), candidates)

    return read(file, parse)
