"""Marian's own models: `model.npz` or `.bin` with the options in it, decoder.yml, vocabularies, shortlists.

Marian's arithmetic is followed exactly: its sinusoids and epsilon, and a decoder that starts from a zero
embedding. That is a row of zeros here, a token `<pad>` after all others; its logit is so low that its
probability is 0.
"""

import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from heedful.data.lexicon import Lexicon
from heedful.decoding.shortlist import Shortlist
from heedful.errors import InteropError
from heedful.interop.conversion import STACKS, Conversion, DeferredTensor, Imported
from heedful.interop.huggingface.pretrained import ImportedBundle, ImportOptions
from heedful.interop.marian_files import (
    MarianFiles,
    find_files,
    opened,
    read_vocabulary,
    read_weights,
    with_zero_row,
)
from heedful.interop.vocabulary import NEVER, read_bytes
from heedful.settings.parsing import is_whole, short, shown
from heedful.settings.run import Config
from heedful.text import SpecialIds, Tokenizer, TokenizerPair, VocabularyTokenizer
from heedful.text.sentencepiece_tokenizer import load_sentencepiece
from heedful.text.vocabulary_tokenizer import tokenizer_from_words

LAYOUT = "marian-native"
_EPS = 1e-6
_PAD = "<pad>"
_SPACE = "▁"
_CONTROL_BYTES = frozenset(f"<0x{byte:02X}>" for byte in range(32))
# Options of a model that must have this value or be absent.
_FIXED: Mapping[str, Sequence[Any]] = {
    "type": ("transformer",),
    "bert-train-type-embeddings": (True,),  # of another type of model
    "char-conv-filters-num": ([],),
    "factors-combine": ("sum",),
    "factors-dim-emb": (0,),
    "lemma-dependency": ("",),
    "lemma-dim-emb": (0,),
    "right-left": (False,),
    "special-vocab": ([],),
    "transformer-attention-mask": ("default",),
    "transformer-disable-position-embeddings": (False,),
    "transformer-ffn-depth": (2,),
    "transformer-decoder-ffn-depth": (0, 2),
    "transformer-no-affine": (False,),
    "transformer-no-bias": (False,),
    "transformer-no-projection": (False,),
    "transformer-pool": (False,),
    "transformer-rnn-projection": (False,),
    "transformer-train-positions": (False,),
    "ulr": (False,),
}
_WITHOUT_EFFECT = frozenset(
    (
        "bert-type-vocab-size", "dec-cell-base-depth", "dec-cell-high-depth", "dim-rnn", "enc-cell",
        "enc-cell-depth", "enc-type", "output-approx-knn", "separator-symbol", "skip",
        "transformer-aan-activation", "transformer-aan-depth", "transformer-aan-nogate",
        "transformer-alibi-shift", "transformer-alibi-trainable", "transformer-depth-scaling",
        "transformer-dim-aan", "transformer-guided-alignment-layer",
        # Today's Marian has this option and reads it nowhere in a transformer.
        "transformer-train-position-embeddings", "ulr-dim-emb", "ulr-trainable-transformation", "version",
    )
)  # fmt: skip
_READ = frozenset(
    (
        "dec-cell", "dec-depth", "dim-emb", "dim-vocabs", "enc-depth", "input-types", "layer-normalization",
        "output-omit-bias", "tied-embeddings", "tied-embeddings-all", "tied-embeddings-src",
        "transformer-decoder-autoreg", "transformer-decoder-dim-ffn", "transformer-dim-ffn",
        "transformer-ffn-activation", "transformer-heads", "transformer-postprocess",
        "transformer-postprocess-emb", "transformer-postprocess-top", "transformer-preprocess",
        "transformer-tied-layers",
    )
)  # fmt: skip
# Options of decoder.yml: those that are read, those that say how and not what is computed.
_SEARCH_READ = frozenset(
    ("allow-special", "allow-unk", "beam-size", "models", "normalize", "shortlist", "vocabs", "word-penalty")
)
_SEARCH_FIXED: Mapping[str, Sequence[Any]] = {
    "all-caps-every": (0,),
    "best-deep": (False,),
    "english-title-case-every": (0,),
    "force-decode": (False,),
    "output-approx-knn": ([],),
    "output-sampling": (False, [], ["0"], [0]),
    "right-left": (False,),
    "tsv": (False,),
    "weights": ([], [1], [1.0]),
}
_SEARCH_WITHOUT_EFFECT = frozenset(
    (
        "alignment", "authors", "build-info", "check-nan", "cite", "clip-gemm", "config", "cpu-threads",
        "data-threads", "devices", "dump-config", "fp16", "gemm-precision", "gemm-type",
        "ignore-model-config", "input", "int16", "interpolate-env-vars", "log", "log-level", "log-time-zone",
        "max-length", "max-length-break", "max-length-crop", "max-length-factor", "maxi-batch",
        "maxi-batch-sort",
        "mini-batch", "mini-batch-words", "model-mmap", "n-best", "no-spm-decode", "no-spm-encode",
        "num-devices", "optimize", "output", "port", "precision", "quantize-range", "quiet",
        "quiet-translation", "relative-paths", "seed", "skip-cost", "ssplit-mode", "ssplit-prefix-file",
        "stat-freq", "tempdir", "tsv-fields", "use-legacy-batching", "version", "word-scores", "workspace",
    )
)  # fmt: skip
_ACTIVATIONS = {"relu": "relu", "swish": "swish", "gelu": "gelu"}
_EXACT_GELU = (1, 12, 3)  # before that version "gelu" was x sigmoid(1.702 x)
_NORMED_KEYS = (1, 11, 0)  # before that version pre-norm attention had keys and values of unnormalised states
_SHORTLIST_MULTIPLE = 8
_BEAM_SIZE = 12  # Marian's, where no file says another
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
    is_student = files.shortlist is not None and any(map(_is_in_8_bits, weights.values()))
    model = _convert(files, weights, architecture, options)
    del weights
    notes: tuple[str, ...] = ()
    if not files.options_file.is_file():
        is_student = is_student or model.config.decoder_unit == "ssru"
        files = replace(files, options=_STUDENT if is_student else {})
        notes = (_OF_STUDENTS if is_student else _OF_MARIAN,)
    sizes = model.config.src_vocab_size - 1, model.config.tgt_vocab_size - 1
    tokenizers = None if files.vocabularies is None else _read_tokenizers(files, sizes)
    search = _read_search(files)
    sections: dict[str, Any] = {"model": model.config.model_dump(), "decode": search}
    if tokenizers is None:
        if options.tgt_lang or options.src_lang:
            raise InteropError(f"{files.model}: without vocabularies there are no languages; leave them out")
        search["suppressed_ids"] = (sizes[1],)
        return ImportedBundle(Config(**sections), model.weights, None, notes)
    search["suppressed_ids"] = _suppressed_ids(files, tokenizers.tgt)
    sections["languages"] = _languages(files, tokenizers.src, options)
    joint = model.config.tied == "all" or tokenizers.joint
    sections["tokenizer"] = {"kind": tokenizers.src.kind, "joint": joint}
    sections["tokenizer"]["vocab_size"] = tokenizers.src.vocab_size
    shortlist = None if files.shortlist is None else _read_shortlist(files.shortlist, sizes, tokenizers)
    return ImportedBundle(Config(**sections), model.weights, tokenizers, notes, shortlist)


def _is_in_8_bits(weight: Tensor) -> bool:
    """Return whether a weight is stored in 8 bits, with a multiplier."""
    return isinstance(weight, DeferredTensor) and getattr(weight.decode, "multiplier", None) is not None


def _convert(
    files: MarianFiles, weights: Mapping[str, Tensor], options: Mapping[str, Any], chosen: ImportOptions
) -> Imported:
    """Convert the weights with the options that are in their file."""
    conversion = Conversion(weights, layout=LAYOUT, origin=files.model, settings=chosen.settings)
    architecture = _Architecture(conversion, options)
    facts = architecture.facts()
    for stack in STACKS:
        tied = architecture.layers(stack)
        modules = {i: dict(architecture.modules(stack, i)) for i in dict.fromkeys(tied)}
        read = {i: _take_modules(conversion, each) for i, each in modules.items()}
        for i, number in enumerate(tied):
            for ours, (tensor, origin) in read[number].items():
                conversion.put(f"{stack}.layers.{i}.{ours}", tensor, origin=origin)
        for ours, theirs in architecture.norms_of_stack(stack):
            for part, (tensor, origin) in _take_modules(conversion, {ours: theirs}).items():
                conversion.put(f"{stack}.{part}", tensor, origin=origin)
    src_pad, tgt_pad = _move_tokens(conversion, architecture)
    for name in conversion.left:
        if name.endswith("_QuantMultA"):  # for activations in 8 bits
            conversion.take(name)
    ids = {"src_pad_id": src_pad, "tgt_pad_id": tgt_pad, "decoder_start_id": tgt_pad}
    conversion.settings.update(ids)
    return conversion.finish(**facts)


def _take_modules(
    conversion: Conversion, modules: Mapping[str, Mapping[str, str]]
) -> dict[str, tuple[Tensor, str]]:
    """Take weights and biases: tensor and Marian's name, by the name here; a vector (1, D) becomes (D,)."""
    taken = {}
    for module, parts in modules.items():
        for part, theirs in parts.items():
            tensor = conversion.take(theirs)
            is_vector = part == "bias" or module.endswith("norm")
            if is_vector and (tensor.ndim > 2 or (tensor.ndim == 2 and tensor.shape[0] != 1)):
                raise conversion.error(f"the weight {theirs!r} has shape {tuple(tensor.shape)}, no vector's")
            taken[f"{module}.{part}"] = tensor.reshape(-1) if is_vector else tensor, theirs
    return taken


class _Architecture:
    """The options of a model, checked: which weights it has, and what they are here."""

    def __init__(self, conversion: Conversion, options: Mapping[str, Any]) -> None:
        self._conversion = conversion
        self._options = options
        _refuse(options, _FIXED, _READ | _WITHOUT_EFFECT, conversion.error)
        self.is_recurrent = self._one_of("transformer-decoder-autoreg", ("self-attention", "rnn")) == "rnn"
        if self.is_recurrent:
            self._one_of("dec-cell", ("ssru",))
            if options.get("layer-normalization"):
                raise conversion.error("layer-normalization=True is not supported in the cells of a decoder")
        types = options.get("input-types") or []
        if types not in ([], ["sequence"] * 2):
            raise conversion.error(f"input-types={shown(types)} is not supported, only sequences are")
        self._norm, self._norm_letter = self._norms()
        self._tied_src = bool(options.get("tied-embeddings-src") or options.get("tied-embeddings-all"))
        self._tied_output = bool(options.get("tied-embeddings") or options.get("tied-embeddings-all"))

    def facts(self) -> dict[str, Any]:
        """Return the settings that the weights do not tell."""
        options = self._options
        inner = self._number("transformer-dim-ffn")
        if self._number("transformer-decoder-dim-ffn", default=0) not in (0, inner):
            raise self._conversion.error(
                f"transformer-dim-ffn={inner} and transformer-decoder-dim-ffn="
                f"{options['transformer-decoder-dim-ffn']} differ; they must be equal"
            )
        return {
            "norm": self._norm,
            "norm_kind": "rms" if self._norm_letter == "r" else "layer",
            "positions": "marian",
            "num_heads": self._number("transformer-heads"),
            "activation": self._activation(),
            "decoder_unit": "ssru" if self.is_recurrent else "attention",
            "layer_norm_eps": _EPS,
        }

    def layers(self, stack: str) -> list[int]:
        """Return Marian's number of each layer of a stack; tied layers have the number of another one."""
        depth = self._number("enc-depth" if stack == "encoder" else "dec-depth")
        tied = self._options.get("transformer-tied-layers") or []
        if stack == "encoder" or not tied:
            return list(range(1, depth + 1))
        if not isinstance(tied, list) or not all(is_whole(i, least=1, most=1000) for i in tied):
            raise self._conversion.error(f"transformer-tied-layers={shown(tied)} is no list of layers")
        if len(tied) != depth:
            raise self._conversion.error(f"transformer-tied-layers has {len(tied)} layers, dec-depth {depth}")
        return tied

    def modules(self, stack: str, number: int) -> Iterator[tuple[str, dict[str, str]]]:
        """Yield the modules of a layer: the name here, and Marian's names of its weight and bias."""
        layer = f"{stack}_l{number}"
        attentions = {"self_attention": f"{layer}_self"}
        if stack == "decoder":
            attentions["cross_attention"] = f"{layer}_context"
        if stack == "decoder" and self.is_recurrent:
            del attentions["self_attention"]
            cell = f"{layer}_rnn"
            yield "self_attention.input", {"weight": f"{cell}_W"}
            yield "self_attention.forget", {"weight": f"{cell}_Wf", "bias": f"{cell}_bf"}
            yield "self_attention_norm", self._norm_parts(cell if self._norm == "pre" else f"{cell}_ffn")
        for ours, theirs in attentions.items():
            for part, letter in (("query", "q"), ("key", "k"), ("value", "v"), ("output", "o")):
                yield f"{ours}.{part}", {"weight": f"{theirs}_W{letter}", "bias": f"{theirs}_b{letter}"}
            yield f"{ours}_norm", self._norm_parts(f"{theirs}_Wo")
        for ours, i in (("inner", 1), ("outer", 2)):
            yield f"feed_forward.{ours}", {"weight": f"{layer}_ffn_W{i}", "bias": f"{layer}_ffn_b{i}"}
        yield "feed_forward_norm", self._norm_parts(f"{layer}_ffn_ffn")

    def norms_of_stack(self, stack: str) -> Iterator[tuple[str, dict[str, str]]]:
        """Yield the norms around a stack: the name here, and Marian's names."""
        if self._letters("transformer-postprocess-emb", "d"):
            yield "embedding.norm", self._norm_parts(f"{stack}_emb", suffix="_pre")
        if self._letters("transformer-postprocess-top", ""):
            yield "final_norm", self._norm_parts(f"{stack}_top", suffix="")

    @property
    def embeddings(self) -> tuple[str, str, str]:
        """Marian's names of the source embedding, the target embedding and the output matrix."""
        src, tgt = ("Wemb", "Wemb") if self._tied_src else ("encoder_Wemb", "decoder_Wemb")
        if self._tied_output:
            return src, tgt, tgt
        older = "decoder_ff_logit_out_W"
        return src, tgt, older if older in self._conversion.left else f"{older}t"

    def _norms(self) -> tuple[str, str]:
        """Return "post" or "pre", and the letter of the norm."""
        before = self._letters("transformer-preprocess", "")
        after = self._letters("transformer-postprocess", "dan")
        emb, top = (self._letters(f"transformer-postprocess-{each}", "") for each in ("emb", "top"))
        letter = (before or after)[-1:]
        norms = {letter, *emb, *top}
        if letter not in ("n", "r") or len(norms) > 1 or len(emb) > 1 or len(top) > 1:
            norms = {"?"}
        if (before, after) == ("", f"a{letter}") and norms == {letter}:
            return "post", letter
        if (before, after, top) == (letter, "a", letter) and norms == {letter}:
            if self._conversion.settings.get("norm") != "pre" and self._version < _NORMED_KEYS:
                raise self._conversion.error(
                    f"transformer-preprocess={before} of the Marian that trained it ({self._version_shown}) "
                    "leaves keys and values unnormalised, which is not supported; for a model of 1.11 or "
                    "later, give --set model.norm=pre"
                )
            return "pre", letter
        raise self._conversion.error(
            f"transformer-preprocess={before!r}, transformer-postprocess={after!r}, "
            f"transformer-postprocess-emb={emb!r}, transformer-postprocess-top={top!r} (without d) are not "
            "supported; post-norm is '', 'an', pre-norm 'n', 'a' with top 'n', or both with r for n"
        )

    def _letters(self, key: str, default: str) -> str:
        """Return the operations of an option without dropout, which only training has."""
        letters = self._options.get(key, default)
        if not isinstance(letters, str):
            raise self._conversion.error(f"{key}={shown(letters)} is no list of operations")
        return letters.replace("d", "")

    def _norm_parts(self, prefix: str, *, suffix: str | None = None) -> dict[str, str]:
        """Return Marian's names of the gain and shift of a norm."""
        suffix = ("_pre" if self._norm == "pre" else "") if suffix is None else suffix
        if self._norm_letter == "r":
            return {"weight": f"{prefix}_rms_scale{suffix}"}
        return {"weight": f"{prefix}_ln_scale{suffix}", "bias": f"{prefix}_ln_bias{suffix}"}

    def _activation(self) -> str:
        name = self._one_of("transformer-ffn-activation", tuple(_ACTIVATIONS), default="swish")
        chosen = self._conversion.settings.get("activation")
        if name == "gelu" and chosen is None and self._version < _EXACT_GELU:
            raise self._conversion.error(
                "transformer-ffn-activation=gelu is x sigmoid(1.702 x) in the Marian that trained it "
                f"({self._version_shown}), which is not supported; for the exact one, "
                "give --set model.activation=gelu"
            )
        return _ACTIVATIONS[name]

    @property
    def _version(self) -> tuple[int, ...]:
        """The version of Marian that trained the model, from `v1.12.3 abcdef 2023-03-01`; (0,) if unknown."""
        numbers = self._version_shown.removeprefix("v").split(" ")[0].split(".")[:3]
        return tuple(int(each) if each.isdecimal() and len(each) < 9 else 0 for each in numbers)

    @property
    def _version_shown(self) -> str:
        return short(str(self._options.get("version", "unknown")))

    def _one_of(self, key: str, known: Sequence[str], *, default: str = "") -> str:
        value = self._options.get(key, default or known[0])
        if value not in known:
            raise self._conversion.error(f"{key}={shown(value)} is not supported, only {', '.join(known)}")
        return str(value)

    def _number(self, key: str, *, default: int | None = None) -> int:
        value = self._options.get(key, default)
        if not is_whole(value, least=0 if default == 0 else 1, most=2**20):
            raise self._conversion.error(f"{key}={shown(value)} is not a number of them")
        return int(value)


def _move_tokens(conversion: Conversion, architecture: _Architecture) -> tuple[int, int]:
    """Move embeddings and output, each with the row of `<pad>`; return its ids in source and target."""
    src, tgt, output = architecture.embeddings
    matrices = {}
    for name in dict.fromkeys((src, tgt, output)):
        matrix = conversion.take(name)
        if matrix.ndim != 2:
            raise conversion.error(f"the weight {name!r} has shape {tuple(matrix.shape)}, no matrix's")
        # The older output matrix is a layer's: it is turned already.
        matrices[name] = with_zero_row(matrix)
    for ours, name in (
        ("encoder.embedding.tokens.weight", src),
        ("decoder.embedding.tokens.weight", tgt),
        ("output.weight", output),
    ):
        conversion.put(ours, matrices[name], origin=name)
    name = "decoder_ff_logit_out_b"
    bias = conversion.take(name).reshape(-1) if name in conversion.left else None
    if bias is None:
        bias = torch.zeros(len(matrices[output]) - 1)
    conversion.put("output.bias", torch.cat([bias, bias.new_full((1,), NEVER)]), origin=name)
    return len(matrices[src]) - 1, len(matrices[tgt]) - 1


def _refuse(
    options: Mapping[str, Any],
    fixed: Mapping[str, Sequence[Any]],
    known: frozenset[str],
    error: Callable[[str], InteropError],
) -> None:
    """Refuse options of other values than those that are supported, and unknown ones."""
    for key, value in options.items():
        if key in fixed and value not in fixed[key]:
            raise error(f"the option {key}={shown(value)} is not supported, and would change the outputs")
        if key not in known and key not in fixed:
            raise error(f"the option {shown(key)} is unknown, and may change the outputs")


def _read_search(files: MarianFiles) -> dict[str, Any]:
    """Return the settings of `DecodeConfig`: beam, and scores that are divided by a power of the length."""
    options = files.options

    def error(problem: str) -> InteropError:
        return InteropError(f"{files.options_file}: {problem}")

    _refuse(options, _SEARCH_FIXED, _SEARCH_READ | _SEARCH_WITHOUT_EFFECT, error)
    if options.get("word-penalty", 0) != 0:
        raise error(
            f"word-penalty={shown(options['word-penalty'])} is not supported, and would change the outputs; "
            "set it to 0 there to import the model without it"
        )
    normalize, beam_size = options.get("normalize", 0), options.get("beam-size", _BEAM_SIZE)
    if not isinstance(normalize, bool | int | float) or not 0 <= normalize <= 30:
        raise error(f"normalize={shown(normalize)} is not a number from 0 to 30")
    if not is_whole(beam_size, least=1, most=1000):
        raise error(f"beam-size={shown(beam_size)} is not a whole number from 1 to 1000")
    return {
        "beam_size": beam_size,
        "length_penalty": float(normalize),
        "length_normalization": "power",
        # As in Marian a sentence ends when so many hypotheses as the beam has have ended.
        "early_stopping": "first",
    }


def _suppressed_ids(files: MarianFiles, tgt: Tokenizer) -> tuple[int, ...]:
    """Return what is never written: `<pad>`, the unknown token, and control characters as bytes."""
    suppressed = {tgt.pad_id}
    if files.options.get("allow-unk") is not True:
        suppressed.add(tgt.unk_id)
    if files.options.get("allow-special") is not True:
        tokens = enumerate(tgt.tokens(range(tgt.vocab_size)))
        suppressed |= {i for i, token in tokens if token in _CONTROL_BYTES}
    return tuple(sorted(suppressed))


def _languages(files: MarianFiles, src: Tokenizer, options: ImportOptions) -> dict[str, Any]:
    if options.src_lang is not None:
        raise InteropError(
            f"{files.model}: --src-lang {options.src_lang}: Marian has no tag for it; leave it out"
        )
    if options.tgt_lang is None:
        return {}
    return {"src_tag": src.tokens([src.tag_id(options.tgt_lang)])[0]}


def _read_tokenizers(files: MarianFiles, sizes: tuple[int, int]) -> TokenizerPair:
    """Return the tokenizers of both vocabularies, whose embeddings have so many rows."""
    assert files.vocabularies is not None
    paths = [*zip(files.vocabularies, files.splitters or (None, None), strict=True)]
    src, tgt = (_tokenizer(*path, size) for path, size in zip(paths, sizes, strict=True))
    return TokenizerPair(src, src if src.digest() == tgt.digest() else tgt)


def _tokenizer(vocabulary: Path, splitter: Path | None, num_rows: int) -> Tokenizer:
    """Return a tokenizer: SentencePiece's own ids, those of a list of its tokens, or words between spaces."""
    name = str(vocabulary)
    model = None
    if vocabulary.suffix == ".spm" or splitter is not None:
        model = read_bytes(splitter or vocabulary)
    if vocabulary.suffix == ".spm":
        spm = load_sentencepiece(model or b"", name=name)
        tokens = [spm.id_to_piece(i) for i in range(spm.get_piece_size())]
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
    if model is None:
        if any(token.startswith(_SPACE) for token in tokens):
            raise InteropError(
                f"{name}: its tokens are of SentencePiece, but source.spm and target.spm are not beside it; "
                "copy the whole folder"
            )
        return tokenizer_from_words(tokens, name=name, starts_with_pad=True)
    has_tags = any(token.startswith(">>") and token.endswith("<<") for token in tokens)
    ids = SpecialIds(pad=num_rows, unk=unk, bos=num_rows, eos=eos)
    return VocabularyTokenizer(model, tokens, ids, leading_tags=has_tags, name=name)


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


@dataclass(frozen=True)
class LexicalShortlist:
    """The contents of a binary shortlist of Marian.

    Attributes:
        first: so many first target ids are in every shortlist.
        starts: of each source id in `candidates`, (V + 1,).
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
    try:
        content = read_bytes(file)
        if len(content) < 48 or struct.unpack_from("<Q", content)[0] != SHORTLIST_MAGIC:
            raise ValueError("not a binary shortlist of Marian")
        _, first, _, num_starts, count = struct.unpack_from("<5Q", content, 8)
        if 48 + 8 * num_starts + 4 * count != len(content):
            raise ValueError("it has another size than it says")
        starts = np.frombuffer(content, "<u8", num_starts, 48)
        candidates = np.frombuffer(content, "<u4", count, 48 + 8 * num_starts).astype(np.int64)
        # The last offset may be missing: it is the number of entries.
        if num_starts not in (src_size, src_size + 1) or candidates.max(initial=0) >= tgt_size:
            raise ValueError(f"it is not for vocabularies of {src_size:,} and {tgt_size:,} tokens")
        if starts.max(initial=0) > count:
            raise ValueError("an offset beyond its end")
        ends = np.append(starts.astype(np.int64), count)[: src_size + 1]
        if (np.diff(ends) < 0).any() or first > tgt_size or (num_starts and ends[0]):
            raise ValueError("offsets that cannot be")
    except ValueError as error:
        raise InteropError(f"{file}: {error}; leave the file out to import without it") from None
    return LexicalShortlist(int(first), ends, candidates)
