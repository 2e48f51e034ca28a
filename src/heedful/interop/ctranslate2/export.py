"""A bundle as a CTranslate2 model: weights, vocabularies, tokenizer files and a README that shows its use."""

import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from string import Template
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch
from torch import Tensor

from heedful.decoding.options import longest_output
from heedful.errors import InteropError, needing, suggestion
from heedful.interop.conversion import STACKS, Values
from heedful.interop.ctranslate2.weights import ACTIVATIONS, GATED, PLAIN, SINUSOIDS
from heedful.interop.exporting import refuse_changed, write_readme
from heedful.interop.vocabulary import unique_names
from heedful.model.attention import MultiHeadAttention
from heedful.model.layers import DecoderLayer, EncoderLayer
from heedful.model.positions import AttentionPositions, SinusoidalPositions
from heedful.model.transformer import Decoder, Encoder, Transformer
from heedful.runtime.durable import new_directory
from heedful.settings.model import ModelConfig
from heedful.settings.run import Config
from heedful.storage.bundle import Bundle
from heedful.text import (
    HuggingFaceTokenizer,
    MosesTokenizer,
    SentencePieceTokenizer,
    Tokenizer,
    VocabularyTokenizer,
)
from heedful.text.pair import JOINT, SOURCE, TARGET
from heedful.text.special_tokens import SpecialTokens, suppressed_ids
from heedful.text.tokenizer import is_sentinel

if TYPE_CHECKING:
    from ctranslate2.specs import TransformerDecoderSpec, TransformerEncoderSpec, TransformerSpec

NUM_POSITIONS = 2048  # twice the source tokens after which CTranslate2 truncates by default


def position_limit(config: ModelConfig) -> int | None:
    """Return the maximum length of source and target in the exported model, in tokens; None: no limit."""
    if config.positions == "learned":
        return config.max_positions
    return None if config.positions in ("rotary", "relative", SINUSOIDS) else NUM_POSITIONS


class TokenNames(NamedTuple):
    """The name of each id, unique in source and in target."""

    src: Sequence[str]
    tgt: Sequence[str]


def token_names(bundle: Bundle) -> TokenNames:
    """Name each id by its token.

    CTranslate2 has one name for the unknown and end tokens of source and target: the target's.
    """
    config, src, tgt = bundle.config.model, bundle.tokenizers.src, bundle.tokenizers.tgt
    tgt_names = unique_names(_tokens(tgt, config.tgt_vocab_size), {})
    shared = {src.unk_id: tgt_names[tgt.unk_id], src.eos_id: tgt_names[tgt.eos_id]}
    return TokenNames(unique_names(_tokens(src, config.src_vocab_size), shared), tgt_names)


def _tokens(tokenizer: Tokenizer, count: int) -> list[str]:
    """The token of each id; a model may have more ids than its tokenizer."""
    known = min(count, tokenizer.vocab_size)
    return [*tokenizer.tokens(range(known)), *(f"<{i}>" for i in range(known, count))]


# Options of every search of CTranslate2 by heedful's names, and the values that it has by itself.
_PENALTIES: Mapping[str, tuple[str, tuple[int, ...]]] = {
    "length_penalty": ("length_penalty", ()),
    "repetition_penalty": ("repetition_penalty", (1,)),
    "no_repeat_ngram_size": ("no_repeat_ngram_size", (0,)),
    "min_decoding_length": ("min_length", (0, 1)),
}
_README = Template("""# Transformer $size, for CTranslate2

Exported with heedful, with weights in $weights. After `pip install ctranslate2 $packages`:

```python
import ctranslate2
$imports

directory = "."  # where this file is
$tokenizers
translator = ctranslate2.Translator(directory)
special = $special


def translate(lines):
    results = translator.translate_batch(
        [$source for line in lines],
        $arguments,
        return_end_token=True,
    )
    outputs = [[token for token in result.hypotheses[0] if token not in special] for result in results]
    return [$text for tokens in outputs]


print(translate(["..."]))
```

$notes
""")


class _Library(NamedTuple):
    """The Python of a README that loads a tokenizer, cuts `line` into tokens and joins `tokens`."""

    package: str
    loading: str
    cutting: str
    joining: str


_SENTENCEPIECE = _Library(
    "sentencepiece",
    'sentencepiece.SentencePieceProcessor(model_file=f"{{directory}}/{file}")',
    "{name}.encode(line, out_type=str)",
    "{name}.decode(tokens)",
)
# Tokens that the model does not know are joined as they are.
_WITH_VOCABULARY = _SENTENCEPIECE._replace(joining='{name}.decode(tokens).replace("▁", " ").strip()')
_TOKENIZERS = _Library(
    "tokenizers",
    'tokenizers.Tokenizer.from_file(f"{{directory}}/{file}")',
    "{name}.encode(line, add_special_tokens=False).tokens",
    "{name}.decode([{name}.token_to_id(token) for token in tokens])",
)
# For rules that no library has by itself: Moses', or added tokens.
_OWN = _Library(
    "heedful",
    "heedful.text.TokenizerPair.load(directory).{side}",
    "{name}.tokens({name}.encode(line))",
    "{name}.decode([{name}.tokens(range({name}.vocab_size)).index(token) for token in tokens])",
)


def _library(tokenizer: Tokenizer, stem: str, name: str) -> _Library:
    """Return the Python of a tokenizer with these names of its files and of its variable."""
    match tokenizer:
        case MosesTokenizer():
            library = _OWN
        case VocabularyTokenizer():
            library = _OWN if tokenizer.added else _WITH_VOCABULARY
        case HuggingFaceTokenizer():
            library = _TOKENIZERS
        case _:
            library = _SENTENCEPIECE
    file, side = f"{stem}{next(iter(tokenizer.to_files()))}", "tgt" if stem == TARGET else "src"
    return _Library(*(each.format(name=name, file=file, side=side) for each in library))


def _readme(bundle: Bundle, special_tokens: SpecialTokens, names: TokenNames) -> dict[str, str]:
    """Return the fields of the README."""
    tokenizers, src = bundle.tokenizers, bundle.tokenizers.src
    if tokenizers.joint:
        libraries = {"tokenizer": _library(src, JOINT, "tokenizer")}
    else:
        libraries = {
            "source": _library(src, SOURCE, "source"),
            "target": _library(tokenizers.tgt, TARGET, "target"),
        }
    packages = sorted({each.package for each in libraries.values()})
    first, *_, last = [*libraries.values()] * 2
    # An end token that comes last is written by CTranslate2 itself.
    after = () if special_tokens.src_suffix == (src.eos_id,) else special_tokens.src_suffix
    tokens = [_literal(names.src[i]) for i in (*special_tokens.src_prefix, *after)]
    num_before = len(special_tokens.src_prefix)
    around = [*tokens[:num_before], f"*{first.cutting}", *tokens[num_before:]]
    return {
        "packages": " ".join(packages),
        "imports": "\n".join(f"import {each}" for each in packages).replace("heedful", "heedful.text"),
        "tokenizers": "\n".join(f"{name} = {each.loading}" for name, each in libraries.items()),
        "special": _literal(_special(bundle, special_tokens, names)),
        "source": f"[{', '.join(around)}]" if tokens else first.cutting,
        "arguments": ",\n        ".join(_arguments(bundle, special_tokens, names)),
        "text": last.joining,
    }


def _special(bundle: Bundle, special_tokens: SpecialTokens, names: TokenNames) -> list[str]:
    """The tokens of an output that stand for no text; SentencePiece alone writes unknown ones as `⁇`."""
    tgt, never = bundle.tokenizers.tgt, bundle.config.decode.suppressed_ids or ()
    ids = {tgt.pad_id, tgt.bos_id, tgt.eos_id, *special_tokens.tgt_prefix}
    ids |= {i for i, token in enumerate(names.tgt) if is_sentinel(token) and i not in never}
    if not isinstance(tgt, SentencePieceTokenizer):
        ids.add(tgt.unk_id)
    return [names.tgt[i] for i in sorted(ids)]


def _arguments(bundle: Bundle, special_tokens: SpecialTokens, names: TokenNames) -> Iterable[str]:
    """The bundle's own search, as far as CTranslate2 has it."""
    search, tgt = bundle.config.decode, bundle.tokenizers.tgt
    first = special_tokens.tgt_prefix
    if not first and search.forced_first_id is not None:
        first = (search.forced_first_id,)
    if first:
        yield f"target_prefix=[{_literal([names.tgt[i] for i in first])}] * len(lines)"
    yield f"beam_size={search.beam_size}"
    for name, (ours, usual) in _PENALTIES.items():
        if (value := getattr(search, ours)) not in usual:
            yield f"{name}={value}"
    if search.beam_size > 1 and search.early_stopping == "optimal":
        yield "patience=2"
    suppressed = suppressed_ids(
        search.suppressed_ids, start_id=special_tokens.start_id, pad_id=tgt.pad_id, eos_id=tgt.eos_id
    )
    if sequences := [[names.tgt[i]] for i in suppressed]:
        yield f"suppress_sequences={_literal(sequences)}"
    if (limit := longest_output(bundle.config)) is not None:
        yield f"max_decoding_length={limit}"
    yield f"max_batch_size={search.batch_tokens}"
    yield 'batch_type="tokens"'


def _notes(config: Config, src: Tokenizer, special_tokens: SpecialTokens, names: TokenNames) -> Iterable[str]:
    around = (*special_tokens.src_prefix, *special_tokens.src_suffix)
    source = [names.src[i] for i in around if i != src.eos_id]
    tags = [*source, *(names.tgt[i] for i in special_tokens.tgt_prefix)]
    if tags:
        listed = " and ".join(f"`{tag}`" for tag in tags)
        yield f"{listed} name the languages; other tags of the vocabulary may take their places."
    yield (
        "CTranslate2 reads 1,024 tokens of a line and writes 256, unless it is given another "
        "`max_input_length` and `max_decoding_length`."
    )
    if config.decode.repetition_penalty != 1:
        yield "Its repetition penalty changes logits, where heedful's changes log-probabilities."
    if size := config.decode.encoder_no_repeat_ngram_size:
        yield f"It cannot forbid the {size}-grams of the source, as heedful does."
    limit = position_limit(config.model)
    if limit is not None and config.model.positions == "alibi":
        yield f"Distances from {limit:,} tokens on count as {limit:,}."
    elif limit is not None:
        yield f"Positions end at {limit:,} tokens on either side; beyond, CTranslate2 stops with an error."
    yield (
        'It searches as heedful does with `length_normalization = "power"`, `early_stopping = "first"` and '
        "`renormalize = true`: scores are log-probabilities divided by the length to the power of the "
        "penalty, a sentence ends with its beam_size-th finished hypothesis, and what is suppressed leaves "
        "its probability to the rest. With `patience=2` it ends with twice as many, and rarely misses what "
        '"optimal" finds.'
    )


def _literal(value: Sequence[str] | Sequence[Sequence[str]]) -> str:
    return json.dumps(value, ensure_ascii=False)


def transformer_spec(model: Transformer) -> "TransformerSpec":
    """Describe a model; vocabularies and special tokens are still to be added.

    The weights in it are copies: CTranslate2 quantises in place.
    """
    from ctranslate2.specs import TransformerDecoderSpec, TransformerEncoderSpec, TransformerSpec

    config = model.config
    spec = TransformerSpec(
        TransformerEncoderSpec(config.num_encoder_layers, config.num_heads, **_parts(config, "encoder")),
        TransformerDecoderSpec(
            config.num_decoder_layers, config.num_heads, **_parts(config, "decoder"), **_alignment(config)
        ),
    )
    spec.config.layer_norm_epsilon = config.layer_norm_eps
    for stack_spec, stack in ((spec.encoder, model.encoder), (spec.decoder, model.decoder)):
        _set_stack(stack_spec, stack, config)
    weights = {
        name: _per_head(name, each, config) for name, each in model.named_parameters(remove_duplicate=False)
    }
    num_layers = {stack: getattr(config, f"num_{stack}_layers") for stack in STACKS}
    for name, tensor in (GATED if config.gated else PLAIN).export(weights, num_layers).items():
        _set(spec, name, _copy(tensor))
    return spec


def _alignment(config: ModelConfig) -> Values:
    """Return the arguments of the decoder's spec for the heads that were trained to align words, if any."""
    if config.alignment_layer is None:
        return {}
    return {"alignment_layer": config.alignment_layer - 1, "alignment_heads": config.alignment_heads}


def _parts(config: ModelConfig, stack: str) -> Values:
    """Return the arguments of the spec of a stack, encoder or decoder."""
    from ctranslate2.specs import Activation

    return {
        "pre_norm": config.norm == "pre" or config.final_norm,  # of a final norm; `_set_stack` sets the flag
        "activation": Activation[ACTIVATIONS[config.activation]],
        "layernorm_embedding": config.embedding_norm in (True, stack),
        "relative_attention_bias": config.positions in ("relative", "alibi"),
        "ffn_glu": config.gated,
        "rms_norm": config.norm_kind == "rms",
        "num_heads_kv": config.num_kv_heads,
        "head_dim": _head_size(config),
        "rotary_dim": config.head_key_size if config.positions == "rotary" else None,
        "rotary_interleave": False,  # the pairs are (i, i + d_k / 2), as ours
    }


def _head_size(config: ModelConfig) -> int:
    """CTranslate2 has one size for a head's queries, keys and values: zeros fill up the smaller ones."""
    return max(config.head_key_size, config.head_value_size)


def _set(spec: object, path: str, value: Tensor) -> None:
    """Set a variable by its name in the file: part `layer_3` is the attribute, or item 3 of `layer`."""
    *scopes, attribute = path.split("/")
    for scope in scopes:
        name, _, index = scope.rpartition("_")
        spec = getattr(spec, scope) if hasattr(spec, scope) else getattr(spec, name)[int(index)]
    assert hasattr(spec, attribute), path
    setattr(spec, attribute, value)


def _set_stack(
    spec: "TransformerEncoderSpec | TransformerDecoderSpec", stack: Encoder | Decoder, config: ModelConfig
) -> None:
    """Set all but the weights."""
    spec.pre_norm = config.norm == "pre"
    spec.scale_embeddings = config.scale_embeddings
    positions = stack.embedding.positions
    if isinstance(positions, SinusoidalPositions) and config.positions != SINUSOIDS:
        spec.position_encodings.encodings = positions.formula(NUM_POSITIONS, config.d_model)
    for layer_spec, layer in zip(spec.layer, stack.layers, strict=True):
        assert isinstance(layer, EncoderLayer | DecoderLayer)
        attentions = [layer_spec.self_attention]
        if isinstance(layer, DecoderLayer):
            attentions.append(layer_spec.attention)
        for attention in attentions:
            attention.queries_scale = 1 / math.sqrt(config.head_key_size)
        if config.positions in ("relative", "alibi"):
            reach = config.relative_max_distance if config.positions == "relative" else NUM_POSITIONS
            assert isinstance(layer.self_attention, MultiHeadAttention)
            biases = _biases(layer.self_attention.positions, reach, both_ways=isinstance(layer, EncoderLayer))
            layer_spec.self_attention.relative_attention_bias = biases
            layer_spec.self_attention.relative_attention_max_distance = np.int32(2 * reach)


_HEADS = re.compile(r"_attention\.(query|key|value|output(?=\.weight))\.(weight|bias)$")


def _per_head(name: str, weight: Tensor, config: ModelConfig) -> Tensor:
    """Fill up the heads of a projection with zeros to one size; other weights are returned unchanged."""
    match = _HEADS.search(name)
    if match is None:
        return weight
    num_heads = config.num_kv_heads if match[1] in ("key", "value") else None
    if match[1] == "output":
        return _filled(weight.T, config.num_heads, _head_size(config)).T
    return _filled(weight, num_heads or config.num_heads, _head_size(config))


def _filled(rows: Tensor, num_heads: int, size: int) -> Tensor:
    """Fill up the rows of each head, (num_heads * d, ...), with zeros to (num_heads * size, ...)."""
    heads = rows.reshape(num_heads, rows.shape[0] // num_heads, *rows.shape[1:])
    missing = heads.new_zeros(num_heads, size - heads.shape[1], *heads.shape[2:])
    return torch.cat([heads, missing], dim=1).flatten(0, 1)


def _biases(positions: AttentionPositions, reach: int, *, both_ways: bool) -> Tensor:
    """The bias of each distance, (buckets, H), such that each distance below `reach` has its own bucket.

    CTranslate2 knows T5's buckets: half of them hold one distance each, and the others grow logarithmically.
    With enough of them the first half says it all, and the others repeat the bias at the distance `reach`.
    """
    biases = positions.bias(reach, 1, 2 * reach + 1, torch.zeros(()))
    assert biases is not None
    to_the_left, to_the_right = biases[:, 0, : reach + 1].flip(1).T, biases[:, 0, reach:].T
    halves = [to_the_left, to_the_right] if both_ways else [to_the_left]
    return _copy(torch.cat([torch.cat([half[:-1], half[-1:].expand(reach, -1)]) for half in halves]))


def _copy(weight: Tensor) -> Tensor:
    return weight.detach().to("cpu", torch.float32, copy=True).contiguous()


def export_ctranslate2(bundle: Bundle, output: Path, *, quantization: str | None = None) -> None:
    """Write a directory for `ctranslate2.Translator`, with tokenizer files and a README.

    Args:
        bundle: what to export; it is not changed.
        output: the directory to make; it appears as a whole, or not at all.
        quantization: one of CTranslate2's types of weights, such as "int8"; None: float32, as they are.

    Raises:
        RunError: the output exists.
        InteropError: a quantization that CTranslate2 does not know.
        MissingExtraError: ctranslate2 is not installed.
    """
    _check_quantization(quantization)
    refuse_changed(bundle.model, "ctranslate2")
    src, tgt = bundle.tokenizers.src, bundle.tokenizers.tgt
    if "byte" in (src.kind, tgt.kind):
        raise InteropError("--to ctranslate2: CTranslate2 has no byte tokenizer; use --to onnx")
    special_tokens = SpecialTokens.of(bundle.config, bundle.tokenizers)
    names = token_names(bundle)
    with new_directory(output) as directory:
        spec = transformer_spec(bundle.model)
        spec.register_source_vocabulary(list(names.src))
        spec.register_target_vocabulary(list(names.tgt))
        spec.config.unk_token = names.tgt[tgt.unk_id]
        spec.config.bos_token = names.tgt[tgt.bos_id]
        spec.config.eos_token = names.tgt[tgt.eos_id]
        spec.config.decoder_start_token = names.tgt[special_tokens.start_id]
        spec.config.add_source_eos = special_tokens.src_suffix == (src.eos_id,)
        spec.validate()
        spec.optimize(quantization=quantization)
        spec.save(str(directory))
        bundle.tokenizers.save(directory)
        write_readme(
            directory,
            _README,
            bundle.config.model,
            notes=_notes(bundle.config, src, special_tokens, names),
            weights=quantization or "float32",
            **_readme(bundle, special_tokens, names),
        )


def _check_quantization(quantization: str | None) -> None:
    with needing("exporting to CTranslate2 needs ctranslate2", extra="interop"):
        from ctranslate2.specs.model_spec import ACCEPTED_MODEL_TYPES
    if quantization is not None and quantization not in ACCEPTED_MODEL_TYPES:
        raise InteropError(
            f"quantization {quantization!r}: CTranslate2 has no such type"
            + suggestion(quantization, ACCEPTED_MODEL_TYPES)
        )
