"""Read checkpoints of OpenNMT-py 3 (`.pt`) and directories of its successor Eole.

Both are pre-norm with final norms. With sinusoids they multiply embeddings by the root of d_model, with
rotary positions they do not. Their vocabularies are in the file, and their texts are tokens with spaces
between them, unless the options name SentencePiece models. A source has no end token.
"""

import argparse
import math
import re
import zipfile
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from heedful.errors import InteropError
from heedful.interop.conversion import (
    ANGLE_ROUNDING,
    STACKS,
    Conversion,
    DeferredTensor,
    Imported,
    Positions,
    in_float32,
    move_positions,
    read_checkpoint,
)
from heedful.interop.ctranslate2.reading import TextFiles, tokenizer_of
from heedful.interop.huggingface.pretrained import ImportedBundle, ImportOptions
from heedful.interop.vocabulary import read_bytes, read_settings, unique_names
from heedful.model.transformer import SINUSOIDS
from heedful.settings.parsing import is_whole, shown
from heedful.settings.run import Config
from heedful.storage.torch_weights import read_pickled
from heedful.text import SpecialIds, TokenizerPair

LAYOUT, EOLE = "opennmt-py", "eole"
_SPECIAL = {"pad": "<blank>", "unk": "<unk>", "bos": "<s>", "eos": "</s>"}
_POSITIONS = {"SinusoidalInterleaved": "sinusoidal", "SinusoidalConcat": "marian"}
_ACTIVATIONS = {"relu": ("relu", False), "gelu": ("gelu", False), "gated-gelu": ("gelu", True)}
_ATTENTION = dict(linear_query="query", linear_keys="key", linear_values="value", final_linear="output")
# The default search of OpenNMT-py and Eole.
_SEARCH: Mapping[str, Any] = {
    "beam_size": 5,
    "length_normalization": "power",
    "length_penalty": 1.0,
    "max_length": 250,
    "max_length_offset": 1024,
}
_EPS = 1e-6  # of norms, by default
_OLDER = re.compile(r"'(onmt|torchtext)\.")  # classes of the vocabulary
_ROTARY, _ROTARY_BASE = -1, 10_000
# Options of the model that must have one of these values or be absent.
_FIXED: Mapping[str, Sequence[Any]] = {
    "copy_attn": (False,),
    "coverage_attn": (False,),
    "decoder_type": ("transformer",),
    "encoder_type": ("transformer",),
    "generator_function": ("softmax",),
    "lora_embedding": (False,),
    "lora_layers": ([],),
    "model_task": ("seq2seq",),
    "model_type": ("text",),
    "n_src_feats": (0,),
    "num_experts": (0,),
    "parallel_residual": (False,),
    "quant_layers": ([],),
    "relative_positions_buckets": (0,),
    "rotary_theta": (_ROTARY_BASE,),
    "self_attn_type": ("scaled-dot", "scaled-dot-flash"),
    "shared_layer_norm": (False,),
    "sliding_window": (0,),
}


@dataclass(frozen=True)
class _Names:
    """The names of a system's parts, by stack.

    Attributes:
        layers: the list of layers.
        norms: of a layer: theirs and ours.
        feed_forward: the matrices: inner or, if there is a gate, the gate; inner beside a gate; outer.
        tokens: the embedding.
        tables: the positions.
    """

    layers: Mapping[str, str]
    norms: Mapping[str, Mapping[str, str]]
    feed_forward: tuple[str, str, str]
    tokens: Mapping[str, str]
    tables: Mapping[str, str]


_OPENNMT = _Names(
    layers={"encoder": "encoder.transformer", "decoder": "decoder.transformer_layers"},
    norms={
        "encoder": {"layer_norm": "self_attention_norm", "feed_forward.layer_norm": "feed_forward_norm"},
        "decoder": {
            "layer_norm_1": "self_attention_norm",
            "layer_norm_2": "cross_attention_norm",
            "feed_forward.layer_norm": "feed_forward_norm",
        },
    },
    feed_forward=("feed_forward.w_1", "feed_forward.w_3", "feed_forward.w_2"),
    tokens={stack: f"{stack}.embeddings.make_embedding.emb_luts.0" for stack in STACKS},
    tables={stack: f"{stack}.embeddings.make_embedding.pe" for stack in STACKS},
)

_EOLE = _Names(
    layers={stack: f"{stack}.transformer_layers" for stack in STACKS},
    norms={
        "encoder": {
            "input_layernorm": "self_attention_norm",
            "post_attention_layernorm": "feed_forward_norm",
        },
        "decoder": {
            "input_layernorm": "self_attention_norm",
            "precontext_layernorm": "cross_attention_norm",
            "post_attention_layernorm": "feed_forward_norm",
        },
    },
    feed_forward=("mlp.gate_up_proj", "mlp.up_proj", "mlp.down_proj"),
    tokens={"encoder": "src_emb.embeddings", "decoder": "tgt_emb.embeddings"},
    tables={"encoder": "src_emb.pe", "decoder": "tgt_emb.pe"},
)


def is_opennmt(path: Path) -> bool:
    """Return whether a file is a checkpoint of OpenNMT-py 3; InteropError for one of 2 or older."""
    if not zipfile.is_zipfile(path):
        return False
    try:
        contents = read_pickled(path)
    except ValueError as error:
        if _OLDER.search(str(error)) is None:
            return False
        raise InteropError(
            f"{path}: of OpenNMT-py 2 or older, whose vocabulary is code; give one of 3"
        ) from None
    return isinstance(contents, Mapping) and {"model", "generator", "opt", "vocab"} <= contents.keys()


def read_opennmt(path: Path, options: ImportOptions) -> ImportedBundle:
    """Read a checkpoint of OpenNMT-py 3.

    Raises:
        InteropError: it is not one, or has options or tensors that are not supported.
        TokenizerError: a SentencePiece model beside it is not usable.
        ConfigError: the settings are invalid.
    """
    is_opennmt(path)  # refuses older ones by name
    checkpoint = read_checkpoint(path)
    source = _Source(path, LAYOUT, options)
    arguments, vocabulary = (checkpoint.beside.get(key) for key in ("opt", "vocab"))
    if not isinstance(arguments, argparse.Namespace) or not isinstance(vocabulary, Mapping):
        raise source.error("it has no options or no lists of tokens; give a checkpoint of OpenNMT-py 3")
    arguments = vars(arguments)
    for key, allowed in _FIXED.items():
        value = arguments.get(key)
        if value is not None and value not in allowed:
            raise source.error(f"the option {key}={shown(value)} is not supported")
    vocabularies = source.vocabularies(vocabulary)
    tensors = dict(checkpoint.tensors)
    generator = checkpoint.beside.get("generator")
    for name, tensor in generator.items() if isinstance(generator, Mapping) else ():
        if isinstance(tensor, Tensor) and name in ("weight", "bias"):
            tensors[f"generator.{name}"] = in_float32(tensor)
    facts = _facts(source, arguments)
    conversion = source.conversion(tensors, facts, vocabularies)
    is_interleaved = arguments.get("rotary_interleave", True) is True
    imported = _convert(conversion, _OPENNMT, facts, is_interleaved=is_interleaved)
    subwords = [arguments.get(f"{language}_subword_model") for language in ("src", "tgt")]
    transforms = arguments.get("transforms")
    is_used = isinstance(transforms, list | tuple) and "sentencepiece" in transforms
    return source.bundle(imported, vocabularies, subwords if is_used else [])


def _facts(source: "_Source", arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of `ModelConfig`."""
    activation = arguments.get("pos_ffn_activation_fn", "relu")
    known = _ACTIVATIONS | {"silu": ("swish", True)}
    if not isinstance(activation, str) or activation not in known:
        raise source.error(
            f"pos_ffn_activation_fn={shown(activation)} is unknown; there are {', '.join(known)}"
        )
    norm = arguments.get("layer_norm", "standard")
    if norm not in ("standard", "rms"):
        raise source.error(f"layer_norm={shown(norm)} is unknown; there are standard and rms")
    reach = arguments.get("max_relative_positions", 0)
    absolute = arguments.get("position_encoding", False)
    kind = arguments.get("position_encoding_type") or "SinusoidalInterleaved"
    if (reach, absolute) == (_ROTARY, False):
        if arguments.get("rotary_dim"):
            raise source.error(f"rotary_dim={shown(arguments['rotary_dim'])} is not supported")
        positions = "rotary"
    elif (reach, absolute) == (0, True) and isinstance(kind, str) and kind in _POSITIONS:
        positions = _POSITIONS[kind]
    else:
        raise source.error(
            f"position_encoding={shown(absolute)} of type {shown(kind)} with max_relative_positions="
            f"{shown(reach)} is not supported; sinusoids and rotary positions are"
        )
    return _numbers(source, arguments, ("heads", "num_kv", "norm_eps"), eps=_EPS) | {
        "activation": known[activation][0],
        "gated": known[activation][1],
        "norm_kind": "rms" if norm == "rms" else "layer",
        "positions": positions,
        "scale_embeddings": positions != "rotary",
    }


def _numbers(
    source: "_Source", values: Mapping[str, Any], keys: tuple[str, str, str], *, eps: float
) -> dict[str, Any]:
    """Return heads, heads of keys and values, the epsilon of norms, and dropouts."""
    heads, kv, epsilon = (values.get(key) for key in keys)
    if not is_whole(heads, least=1, most=2**16):
        raise source.error(f"{keys[0]}={shown(heads)} is not a number of heads")
    facts = {"num_heads": heads, "layer_norm_eps": eps if epsilon is None else epsilon}
    if kv:
        facts["num_kv_heads"] = kv
    for theirs, names in (
        ("dropout", ("dropout", "activation_dropout")),
        ("attention_dropout", ("attention_dropout",)),
    ):
        value = values.get(theirs)
        value = value[0] if isinstance(value, list) and value else value
        if isinstance(value, float):
            facts |= dict.fromkeys(names, value)
    return facts


def _convert(
    conversion: Conversion, names: _Names, facts: Mapping[str, Any], *, is_interleaved: bool
) -> Imported:
    for stack, layers in names.layers.items():
        attentions = {"self_attn": "self_attention"}
        if stack == "decoder":
            attentions["context_attn"] = "cross_attention"
        for theirs, ours in conversion.layers(stack, layers):
            for attention, name in attentions.items():
                for part, other in _ATTENTION.items():
                    conversion.move_parts(f"{theirs}.{attention}.{part}", f"{ours}.{name}.{other}")
            for norm, name in names.norms[stack].items():
                conversion.move_parts(f"{theirs}.{norm}", f"{ours}.{name}")
            first, second, outer = names.feed_forward
            gated = bool(facts["gated"])
            conversion.move_parts(f"{theirs}.{first}", f"{ours}.feed_forward.{'gate' if gated else 'inner'}")
            if gated:
                conversion.move_parts(f"{theirs}.{second}", f"{ours}.feed_forward.inner")
            conversion.move_parts(f"{theirs}.{outer}", f"{ours}.feed_forward.outer")
        conversion.move_parts(f"{stack}.layer_norm", f"{stack}.final_norm")
    _move_tokens(conversion, names)
    if facts["positions"] in SINUSOIDS:
        tables = {stack: f"{name}.pe" for stack, name in names.tables.items()}
        there = {stack: name for stack, name in tables.items() if name in conversion.left}
        formula = SINUSOIDS[facts["positions"]]
        computed = Positions(fixed=True, formula=formula, rounding=ANGLE_ROUNDING)
        move_positions(conversion, there, computed)
    elif facts["positions"] == "learned":
        tables = {stack: f"{name}.weight" for stack, name in names.tables.items()}
        nothing = Positions(formula=lambda *size: torch.full(size, math.nan))
        move_positions(conversion, tables, nothing)
    imported = conversion.finish(norm="pre", **facts)
    return _in_halves(imported) if facts["positions"] == "rotary" and is_interleaved else imported


def _move_tokens(conversion: Conversion, names: _Names) -> None:
    """Move the embeddings and the output matrix; Eole leaves out those that are shared."""
    matrix = None
    for stack, name in names.tokens.items():
        if f"{name}.weight" in conversion.left or matrix is None:
            matrix = conversion.take(f"{name}.weight")
        conversion.put(f"{stack}.embedding.tokens.weight", matrix, origin=f"{name}.weight")
    if "generator.weight" in conversion.left:
        matrix = conversion.take("generator.weight")
    assert matrix is not None
    conversion.put("output.weight", matrix, origin="generator.weight")
    if "generator.bias" in conversion.left:
        conversion.move("generator.bias", "output.bias")


def _in_halves(imported: Imported) -> Imported:
    """Reorder queries and keys: rotary pairs are neighbours (2i, 2i + 1) there, and halves apart here."""
    config, weights = imported.config, dict(imported.weights)
    for name, tensor in imported.weights.items():
        module = name.rsplit(".", 1)[0]
        if module.endswith(("self_attention.query", "self_attention.key")):
            weights[name] = DeferredTensor(
                tensor, partial(_reordered, size=config.head_key_size), tensor.shape
            )
    return Imported(config, weights)


def _reordered(rows: Tensor, *, size: int) -> Tensor:
    heads = rows.reshape(-1, size, *rows.shape[1:])
    return torch.cat([heads[:, ::2], heads[:, 1::2]], dim=1).reshape(rows.shape)


@dataclass(frozen=True)
class _Vocabulary:
    """The tokens of a language, without repetitions, and the ids of the special ones."""

    tokens: list[str]
    ids: SpecialIds


@dataclass(frozen=True)
class _Source:
    """The imported path, for messages and the steps that both systems share.

    Attributes:
        path: the checkpoint or directory.
        layout: the system.
        options: the user's.
    """

    path: Path
    layout: str
    options: ImportOptions

    def error(self, problem: str) -> InteropError:
        """Return an exception that names the file and the layout."""
        return InteropError(f"{self.path}: as layout {self.layout!r}, {problem}")

    def vocabularies(self, saved: Mapping[str, Any]) -> list[_Vocabulary]:
        """Return those of source and target; the begin token of the target starts the decoder."""
        if self.options.src_lang or self.options.tgt_lang:
            raise self.error("there is no choice of languages; leave out --src-lang and --tgt-lang")
        if saved.get("src_feats"):
            raise self.error("features of source tokens are not supported")
        names = {**_SPECIAL}
        specials = saved.get("specials")
        specials = specials if isinstance(specials, Mapping) else {}
        for kind in _SPECIAL:
            if isinstance(token := specials.get(f"{kind}_token"), str):
                names[kind] = token
        start = saved.get("decoder_start_token", names["bos"])
        if not isinstance(start, str):
            raise self.error(f"decoder_start_token={shown(start)} is not a token")
        results = []
        for language in ("src", "tgt"):
            tokens = saved.get(language)
            if not isinstance(tokens, list) or not all(isinstance(each, str) for each in tokens):
                raise self.error(f"the vocabulary {language} is not a list of tokens")
            known = {token: i for i, token in reversed([*enumerate(tokens)])}
            special = names | ({"bos": start} if language == "tgt" else {})
            for kind, token in special.items():
                if token not in known and (kind, language) != ("bos", "src"):
                    raise self.error(f"the vocabulary {language} has no token {shown(token)}")
            ids = {kind: known.get(token, known[names["eos"]]) for kind, token in special.items()}
            results.append(_Vocabulary(unique_names(tokens, {}), SpecialIds(**ids)))
        return results

    def conversion(
        self, tensors: Mapping[str, Tensor], facts: Mapping[str, Any], vocabularies: Sequence[_Vocabulary]
    ) -> Conversion:
        """Return the tensors with the ids of both vocabularies."""
        src, tgt = (each.ids for each in vocabularies)
        ids = {"src_pad_id": src.pad, "tgt_pad_id": tgt.pad, "decoder_start_id": tgt.bos}
        sizes = {key: facts[key] for key in ("d_k", "d_v") if key in facts}
        settings = {**sizes, **ids, **self.options.settings}
        return Conversion(tensors, layout=self.layout, origin=self.path, settings=settings)

    def bundle(
        self, imported: Imported, vocabularies: Sequence[_Vocabulary], subwords: Iterable[object]
    ) -> ImportedBundle:
        """Return the model with its tokenizers: SentencePiece models of these names beside it, or spaces."""
        config = imported.config
        for vocabulary, size in zip(
            vocabularies, (config.src_vocab_size, config.tgt_vocab_size), strict=True
        ):
            if len(vocabulary.tokens) != size:
                raise self.error(f"{len(vocabulary.tokens):,} tokens, but {size:,} rows in the embedding")
        folder = self.path if self.path.is_dir() else self.path.parent
        files = [folder / Path(name).name for name in subwords if isinstance(name, str) and name]
        models = [read_bytes(file) for file in files if file.is_file()]
        if len(models) < len(files) or len(files) == 1:
            models = []
        notes: tuple[str, ...] = ()
        if not models:
            notes = ("Texts are tokens with spaces between them, as OpenNMT-py and Eole take them.",)
        src, tgt = vocabularies
        pair = [
            tokenizer_of(models[i] if models else None, each.tokens, each.ids, TextFiles())
            for i, each in enumerate(vocabularies)
        ]
        is_joint = src == tgt and len(set(models)) < len(STACKS)
        tokenizers = TokenizerPair(pair[0], pair[0] if is_joint else pair[1])
        sections: dict[str, Any] = {
            "model": config.model_dump(),
            "decode": _SEARCH,
            "tokenizer": {
                "kind": tokenizers.src.kind,
                "vocab_size": tokenizers.src.vocab_size,
                "joint": is_joint,
                "source_eos": False,
            },
        }
        return ImportedBundle(Config(**sections), imported.weights, tokenizers, notes)


# Settings of an Eole model that must have one of these values or be absent. Those of other kinds of models
# are not here: they are unknown, and so refused.
_EOLE_FIXED: Mapping[str, Sequence[Any]] = {
    "add_estimator": (False,),
    "add_key_bias": (None, False, True),
    "architecture": ("transformer", "custom"),
    "attn_scaling": (None,),
    "coverage_attn": (False,),
    "decoder_type": ("transformer",),
    "embedding_layer_norm": (False,),
    "embedding_type": ("standard",),
    "encoder_layer_style": ("standard",),
    "encoder_type": ("transformer",),
    "ffn_layernorm": (False,),
    "final_encoder_layer_norm": (True,),
    "generator_function": ("softmax",),
    "key_norm": (False,),
    "layer_types": (None,),
    "LM_type": ("causal",),
    "num_experts": (0,),
    "num_mtp_heads": (0,),
    "parallel_residual": (False,),
    "position_shift": (0, None),
    "q_gating": (False,),
    "query_norm": (False,),
    "relative_positions_buckets": (0,),
    "shared_layer_norm": (False,),
    "sliding_window": (0,),
    "value_norm": (False,),
    "with_cross_attn": (True,),
}
_EOLE_ROTARY_FIXED: Mapping[str, Sequence[Any]] = {
    "interleave_local": (0,),
    "multidimensional_rope": (False,),
    "partial_rotary_factor": (0.0, 0),
    "rotary_dim": (0,),
    "rotary_dim_global": (0,),
    "rotary_theta": (_ROTARY_BASE,),
    "scaling_type": (None,),
    "tmax_index": (0,),
    "xdrope_section": (None,),
}
_EOLE_KNOWN = frozenset(
    (
        "adapter_bias", "add_ffnbias", "add_final_linear_bias", "add_qkvbias", "alignment_heads",
        "alignment_layer", "decoder", "dim_per_head", "embeddings", "encoder", "eole_version",
        "estimator_type", "first_k_dense_replace", "freeze_word_vecs_dec", "freeze_word_vecs_enc",
        "full_context_alignment", "generator_bias", "head_dim", "heads", "heads_kv", "hidden_size",
        "huggingface_model", "input_feed", "lambda_align", "lambda_coverage", "layer_norm", "layers",
        "left_pad", "max_position_embeddings", "mlp_activation_fn", "n_positions", "norm_eps", "normalize",
        "num_experts_per_tok", "num_shared_experts", "position_encoding", "position_encoding_type",
        "rope_config", "share_decoder_embeddings", "share_embeddings", "src_word_vec_size",
        "tgt_word_vec_size", "token_type_vocab_size", "transformer_ff", "word_vec_size",
    )
)  # fmt: skip
# Keys of rotary positions that only their scaling reads.
_EOLE_ROTARY_KNOWN = frozenset(
    (
        "alpha", "high_freq_factor", "low_freq_factor", "original_max_position_embeddings",
        "rotary_interleave", "rotary_theta_local", "scaling_factor",
    )
)  # fmt: skip
_EOLE_ACTIVATIONS = {
    **_ACTIVATIONS,
    "gelu-tanh": ("gelu_tanh", False),
    "gated-gelu-tanh": ("gelu_tanh", True),
    "silu": ("swish", False),
    "gated-silu": ("swish", True),
}
_EOLE_EPS = 1e-5
_CONFIG, _VOCABULARY, _WEIGHTS = "config.json", "vocab.json", "model.*.safetensors"


def is_eole(path: Path) -> bool:
    """Return whether a path is a directory of Eole."""
    return (path / _VOCABULARY).is_file() and any(path.glob(_WEIGHTS)) and (path / _CONFIG).is_file()


def read_eole(path: Path, options: ImportOptions) -> ImportedBundle:
    """Read a directory of Eole.

    Raises:
        InteropError: a file is missing, or has settings or tensors that are not supported.
        TokenizerError: a SentencePiece model beside it is not usable.
        ConfigError: the settings are invalid.
    """
    source = _Source(path, EOLE, options)
    if not is_eole(path):
        raise source.error(f"there is no {_CONFIG}, {_VOCABULARY} or {_WEIGHTS}; copy the whole directory")
    config = read_settings(path / _CONFIG)
    values, rotary = _eole_settings(source, config)
    training = config.get("training")
    training = training if isinstance(training, Mapping) else {}
    facts = _eole_facts(source, {**values, **{k: training.get(k) for k in ("dropout", "attention_dropout")}})
    vocabularies = source.vocabularies(read_settings(path / _VOCABULARY))
    tensors: dict[str, Tensor] = {}
    for file in sorted(path.glob(_WEIGHTS)):
        tensors |= read_checkpoint(file).tensors
    for name in [name for name in tensors if name.endswith(".layer_scalar")]:
        if bool((tensors.pop(name) != 1).any()):
            raise source.error(f"the weight {name!r} is not 1, which is not supported")
    conversion = source.conversion(tensors, facts, vocabularies)
    imported = _convert(
        conversion, _EOLE, facts, is_interleaved=rotary.get("rotary_interleave", True) is True
    )
    return source.bundle(imported, vocabularies, _subword_models(config))


def _eole_settings(
    source: "_Source", config: Mapping[str, Any]
) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
    """Return the settings of the model, which are equal in both stacks, and those of rotary positions."""
    model = config.get("model")
    if not isinstance(model, Mapping):
        raise source.error(f"{_CONFIG} has no settings of a model")
    parts = {key: model.get(key) or {} for key in ("embeddings", "encoder", "decoder")}
    merged = {key: value for key, value in model.items() if key not in parts}
    for part, values in parts.items():
        if not isinstance(values, Mapping):
            raise source.error(f"{part}={shown(values)} are not settings")
        for key, value in values.items():
            if key not in ("layers", "encoder_type", "decoder_type") and merged.get(key, value) != value:
                raise source.error(
                    f"{key} is {shown(value)} in {part}, but {shown(merged[key])} elsewhere; they must be "
                    "equal"
                )
            merged[key] = value
    if model.get("encoder") is None or model.get("decoder") is None:
        raise source.error("it has no encoder or no decoder; only models with both are supported")
    _check_keys(source, merged, _EOLE_FIXED, _EOLE_KNOWN)
    rotary = merged.get("rope_config") or {}
    if not isinstance(rotary, Mapping):
        raise source.error(f"rope_config={shown(rotary)} are not settings")
    _check_keys(source, rotary, _EOLE_ROTARY_FIXED, _EOLE_ROTARY_KNOWN)
    return merged, rotary


def _check_keys(
    source: "_Source",
    values: Mapping[str, Any],
    fixed: Mapping[str, Sequence[Any]],
    known: Collection[str],
) -> None:
    """Refuse unknown keys that the user does not ignore, and values that are not supported."""
    for key, value in values.items():
        if key in fixed and not any(value == each and type(value) is type(each) for each in fixed[key]):
            raise source.error(f"{key}={shown(value)} is not supported, and would change the outputs")
        if key not in fixed and key not in known and key not in source.options.ignored and value is not None:
            raise source.error(
                f"{shown(key)} is unknown, and may change the outputs; if it only describes text, give "
                f"--ignore {shown(key)}"
            )


def _eole_facts(source: "_Source", values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of `ModelConfig`."""
    activation = values.get("mlp_activation_fn", "relu")
    if not isinstance(activation, str) or activation not in _EOLE_ACTIVATIONS:
        raise source.error(
            f"mlp_activation_fn={shown(activation)} is unknown; there are {', '.join(_EOLE_ACTIVATIONS)}"
        )
    norm = values.get("layer_norm", "standard")
    if norm not in ("standard", "rms"):
        raise source.error(f"layer_norm={shown(norm)} is not supported; standard and rms are")
    kind = values.get("position_encoding_type", "SinusoidalInterleaved")
    others = {"Rotary": "rotary", "Learned": "learned"}
    positions = (_POSITIONS | others).get(kind) if isinstance(kind, str) else None
    if positions is None or (values.get("normalize") and positions != "rotary"):
        raise source.error(
            f"position_encoding_type={shown(kind)} with normalize={shown(values.get('normalize'))} is not "
            "supported; sinusoids, learned and rotary positions are"
        )
    facts = _numbers(source, {"heads": 8, **values}, ("heads", "heads_kv", "norm_eps"), eps=_EOLE_EPS)
    if values.get("head_dim"):
        facts |= {"d_k": values["head_dim"], "d_v": values["head_dim"]}
    return facts | {
        "activation": _EOLE_ACTIVATIONS[activation][0],
        "gated": _EOLE_ACTIVATIONS[activation][1],
        "norm_kind": "rms" if norm == "rms" else "layer",
        "positions": positions,
        "scale_embeddings": kind in _POSITIONS or values.get("normalize") is True,
    }


def _subword_models(config: Mapping[str, Any]) -> list[object]:
    """Return the SentencePiece models that the settings name, of source and target."""
    transforms, settings = config.get("transforms"), config.get("transforms_configs")
    values = settings.get("sentencepiece") if isinstance(settings, Mapping) else None
    is_used = isinstance(transforms, list) and "sentencepiece" in transforms
    if not is_used or not isinstance(values, Mapping):
        return []
    return [values.get(f"{language}_subword_model") for language in ("src", "tgt")]
