"""A bundle as JoeyNMT and Eole hold it: the same weights under their names, and their configuration."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor

from heedful.errors import InteropError
from heedful.settings.model import ModelConfig
from heedful.storage.bundle import Bundle
from heedful.storage.torch_weights import unique_weights

# What both have no setting for, or one that nobody here converted: the values that can be.
_PLAIN: Mapping[str, Any] = {
    "d_k": None,
    "d_v": None,
    "num_kv_heads": None,
    "activation": "relu",
    "gated": False,
    "norm_kind": "layer",
    "positions": "sinusoidal",
    "tied": "all",
    "attention_bias": True,
    "feed_forward_bias": True,
    "output_bias": False,
    "scale_embeddings": True,
    "embedding_norm": False,
    "final_norm": False,
}


@dataclass(frozen=True)
class _Names:
    """What a package calls the parts that heedful calls otherwise."""

    package: str
    layers: str
    shared: tuple[str, ...]  # the matrix of both embeddings and the output
    encoder: Mapping[str, str]
    decoder: Mapping[str, str]
    projections: Mapping[str, str]


_JOEYNMT_FEED_FORWARD = {
    "feed_forward_norm": "feed_forward.layer_norm",
    "feed_forward.inner": "feed_forward.pwff_layer.0",
    "feed_forward.outer": "feed_forward.pwff_layer.3",
}
_JOEYNMT = _Names(
    package="JoeyNMT",
    layers="layers",
    shared=("src_embed.lut.weight", "trg_embed.lut.weight", "decoder.output_layer.weight"),
    encoder=_JOEYNMT_FEED_FORWARD | {"self_attention": "src_src_att", "self_attention_norm": "layer_norm"},
    decoder=_JOEYNMT_FEED_FORWARD
    | {
        "self_attention": "trg_trg_att",
        "self_attention_norm": "x_layer_norm",
        "cross_attention": "src_trg_att",
        "cross_attention_norm": "dec_layer_norm",
    },
    projections={"query": "q_layer", "key": "k_layer", "value": "v_layer", "output": "output_layer"},
)

_EOLE_ENCODER = {
    "self_attention": "self_attn",
    "self_attention_norm": "input_layernorm",
    "feed_forward_norm": "post_attention_layernorm",
    "feed_forward.inner": "mlp.gate_up_proj",
    "feed_forward.outer": "mlp.down_proj",
}
_EOLE = _Names(
    package="Eole",
    layers="transformer_layers",
    shared=("src_emb.embeddings.weight", "tgt_emb.embeddings.weight", "generator.weight"),
    encoder=_EOLE_ENCODER,
    decoder=_EOLE_ENCODER
    | {"cross_attention": "context_attn", "cross_attention_norm": "precontext_layernorm"},
    projections={
        "query": "linear_query",
        "key": "linear_keys",
        "value": "linear_values",
        "output": "final_linear",
    },
)


def to_joeynmt(bundle: Bundle, directory: Path) -> None:
    """Write model.pt (a state dict) and model.json (its "model" section, and the eps that it has fixed).

    Raises:
        InteropError: JoeyNMT has no like of a setting.
    """
    config = bundle.config.model
    weights = _renamed(bundle, _JOEYNMT)
    stacks = {
        side: {
            "type": "transformer",
            "num_layers": num_layers,
            "num_heads": config.num_heads,
            "embeddings": {"embedding_dim": config.d_model, "scale": True},
            "hidden_size": config.d_model,
            "ff_size": config.d_ff,
            "dropout": 0.0,
            "layer_norm": config.norm,
        }
        for side, num_layers in (
            ("encoder", config.num_encoder_layers),
            ("decoder", config.num_decoder_layers),
        )
    }
    directory.mkdir()
    torch.save(weights, directory / "model.pt")
    settings = {"model": {"tied_embeddings": True, "tied_softmax": True, **stacks}}
    _write_json(directory / "model.json", settings | {"norm_eps": config.layer_norm_eps})


def to_eole(bundle: Bundle, directory: Path) -> None:
    """Write config.json, vocab.json and model.00.safetensors, as Eole's training leaves them.

    Raises:
        InteropError: Eole has no like of a setting.
    """
    config, tokenizer = bundle.config.model, bundle.tokenizers.tgt
    if config.norm != "pre":
        raise InteropError(
            f'Eole: the layers of its decoder normalise first; model.norm="{config.norm}" has no like there'
        )
    weights = _renamed(bundle, _EOLE)
    words = [str(i) for i in range(config.tgt_vocab_size)]
    special = {
        f"{name}_token": str(getattr(tokenizer, f"{name}_id")) for name in ("bos", "eos", "pad", "unk")
    }
    start_id = tokenizer.bos_id if config.decoder_start_id is None else config.decoder_start_id
    model = {
        "architecture": "transformer",
        "encoder": {"layers": config.num_encoder_layers},
        "decoder": {"layers": config.num_decoder_layers},
        "hidden_size": config.d_model,
        "heads": config.num_heads,
        "transformer_ff": config.d_ff,
        "norm_eps": config.layer_norm_eps,
        "share_embeddings": True,
        "share_decoder_embeddings": True,
        "generator_bias": False,
        "add_qkvbias": True,
        "add_final_linear_bias": True,
        "add_ffnbias": True,
        "embeddings": {"position_encoding_type": "SinusoidalInterleaved", "word_vec_size": config.d_model},
    }
    directory.mkdir()
    save_file(weights, directory / "model.00.safetensors", metadata={"format": "pt"})
    unread = {"src_vocab": "unread", "tgt_vocab": "unread", "share_vocab": True, "data": {}}
    _write_json(directory / "config.json", {**unread, "model": model, "training": {}})
    vocabulary = {"src": words, "tgt": words, "specials": special, "decoder_start_token": str(start_id)}
    _write_json(directory / "vocab.json", vocabulary)


def _renamed(bundle: Bundle, names: _Names) -> dict[str, Tensor]:
    _refuse_what_is_not_plain(bundle.config.model, names.package)
    weights: dict[str, Tensor] = {}
    for name, weight in unique_weights(bundle.model).items():
        if name == "encoder.embedding.tokens.weight":
            weights |= {theirs: weight.clone() for theirs in names.shared}
        else:
            weights[_renamed_one(name, names)] = weight
    return weights


def _renamed_one(name: str, names: _Names) -> str:
    """`encoder.layers.0.self_attention.query.weight`, and `encoder.final_norm.weight`."""
    side, stack, *inside, kind = name.split(".")
    if stack == "final_norm":
        return f"{side}.layer_norm.{kind}"
    number, *part = inside
    parts = names.encoder if side == "encoder" else names.decoder
    if part[0].endswith("_attention"):
        theirs = f"{parts[part[0]]}.{names.projections[part[1]]}"
    else:
        theirs = parts[".".join(part)]
    return f"{side}.{names.layers}.{number}.{theirs}.{kind}"


def _refuse_what_is_not_plain(config: ModelConfig, package: str) -> None:
    for key, plain in _PLAIN.items():
        if (found := getattr(config, key)) != plain:
            raise InteropError(f"{package}: model.{key}={found!r} is not converted here; only {plain!r} is")


def _write_json(file: Path, content: Mapping[str, Any]) -> None:
    file.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
