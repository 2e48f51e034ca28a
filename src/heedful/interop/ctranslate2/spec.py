"""A model as CTranslate2's own description of a Transformer, weight by weight.

Whatever a model of heedful can be, CTranslate2 can compute. Two parts that have no end here end there, at
`NUM_POSITIONS`: sinusoids, which become a table, and the linear biases of ALiBi.
"""

import math
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn

from heedful.config import ModelConfig
from heedful.interop.ctranslate2.position_limit import NUM_POSITIONS
from heedful.model import Decoder, Encoder, Transformer
from heedful.nn.attention import MultiHeadAttention
from heedful.nn.feed_forward import FeedForward
from heedful.nn.layers import DecoderLayer, EncoderLayer
from heedful.nn.positions import AttentionPositions, LearnedPositions, SinusoidalPositions
from heedful.variants.gated_feed_forward import GatedFeedForward

if TYPE_CHECKING:
    from ctranslate2.specs import TransformerDecoderSpec, TransformerEncoderSpec, TransformerSpec
    from ctranslate2.specs.attention_spec import MultiHeadAttentionSpec
    from ctranslate2.specs.common_spec import EmbeddingsSpec, LayerNormSpec, LinearSpec
    from ctranslate2.specs.transformer_spec import (
        FeedForwardSpec,
        TransformerDecoderLayerSpec,
        TransformerEncoderLayerSpec,
    )


_ACTIVATIONS = {"relu": "RELU", "gelu": "GELU", "gelu_tanh": "GELUTanh", "swish": "SWISH"}


def transformer_spec(model: Transformer) -> "TransformerSpec":
    """Describe a model; vocabularies and special tokens are still to be added.

    The weights in it are copies: CTranslate2 quantises in place.
    """
    from ctranslate2.specs import TransformerDecoderSpec, TransformerEncoderSpec, TransformerSpec

    config = model.config
    encoder = TransformerEncoderSpec(config.num_encoder_layers, config.num_heads, **_parts(config))
    decoder = TransformerDecoderSpec(config.num_decoder_layers, config.num_heads, **_parts(config))
    _set_stack(encoder, encoder.embeddings[0], model.encoder, config)
    _set_stack(decoder, decoder.embeddings, model.decoder, config)
    _set_linear(decoder.projection, model.output.weight, model.output.bias)
    spec = TransformerSpec(encoder, decoder)
    spec.config.layer_norm_epsilon = config.layer_norm_eps
    return spec


def _parts(config: ModelConfig) -> dict[str, Any]:
    """Return the arguments of the spec of a stack, encoder or decoder."""
    from ctranslate2.specs import Activation

    return {
        "pre_norm": _has_final_norm(config),  # gives the stack a final norm; the flag is set afterwards
        "activation": Activation[_ACTIVATIONS[config.activation]],
        "layernorm_embedding": config.embedding_norm,
        "relative_attention_bias": config.positions in ("relative", "alibi"),
        "ffn_glu": config.gated,
        "rms_norm": config.norm_kind == "rms",
        "num_heads_kv": config.num_kv_heads,
        "head_dim": _head_size(config),
        "rotary_dim": config.head_key_size if config.positions == "rotary" else None,
        "rotary_interleave": False,  # the pairs are (i, i + d_k / 2), as ours
    }


def _has_final_norm(config: ModelConfig) -> bool:
    return config.norm == "pre" or config.final_norm


def _head_size(config: ModelConfig) -> int:
    """CTranslate2 has one size for a head's queries, keys and values: zeros fill up the smaller ones."""
    return max(config.head_key_size, config.head_value_size)


def _set_stack(
    spec: "TransformerEncoderSpec | TransformerDecoderSpec",
    tokens: "EmbeddingsSpec",
    stack: Encoder | Decoder,
    config: ModelConfig,
) -> None:
    spec.pre_norm = config.norm == "pre"
    spec.scale_embeddings = config.scale_embeddings
    tokens.weight = _copy(stack.embedding.tokens.weight)
    positions = stack.embedding.positions
    if isinstance(positions, SinusoidalPositions):
        spec.position_encodings.encodings = positions.formula(NUM_POSITIONS, config.d_model)
    elif isinstance(positions, LearnedPositions):
        spec.position_encodings.encodings = _copy(positions.weight)
    if config.embedding_norm:
        _set_norm(spec.layernorm_embedding, stack.embedding.norm)
    if _has_final_norm(config):
        _set_norm(spec.layer_norm, stack.final_norm)
    for layer_spec, layer in zip(spec.layer, stack.layers, strict=True):
        assert isinstance(layer, EncoderLayer | DecoderLayer)
        _set_layer(layer_spec, layer, config)


def _set_layer(
    spec: "TransformerEncoderLayerSpec | TransformerDecoderLayerSpec",
    layer: EncoderLayer | DecoderLayer,
    config: ModelConfig,
) -> None:
    _set_attention(spec.self_attention, layer.self_attention, config, is_self=True)
    _set_norm(spec.self_attention.layer_norm, layer.self_attention_norm)
    if config.positions in ("relative", "alibi"):
        reach = config.relative_max_distance if config.positions == "relative" else NUM_POSITIONS
        biases = _biases(layer.self_attention.positions, reach, both_ways=isinstance(layer, EncoderLayer))
        spec.self_attention.relative_attention_bias = biases
        spec.self_attention.relative_attention_max_distance = np.int32(2 * reach)
    if isinstance(layer, DecoderLayer):
        _set_attention(spec.attention, layer.cross_attention, config, is_self=False)
        _set_norm(spec.attention.layer_norm, layer.cross_attention_norm)
    _set_feed_forward(spec.ffn, layer.feed_forward)
    _set_norm(spec.ffn.layer_norm, layer.feed_forward_norm)


def _set_attention(
    spec: "MultiHeadAttentionSpec", attention: MultiHeadAttention, config: ModelConfig, *, is_self: bool
) -> None:
    """Queries, keys and values of one input are one matrix there: all three, or keys and values."""
    size = _head_size(config)
    projections = [
        (
            _per_head(layer.weight, heads, size),
            None if layer.bias is None else _per_head(layer.bias, heads, size),
        )
        for layer, heads in (
            (attention.query, attention.num_heads),
            (attention.key, attention.num_kv_heads),
            (attention.value, attention.num_kv_heads),
        )
    ]
    groups = [projections] if is_self else [projections[:1], projections[1:]]
    for linear, group in zip(spec.linear, groups, strict=False):
        biases = [bias for _, bias in group if bias is not None]
        _set_linear(linear, torch.cat([weight for weight, _ in group]), torch.cat(biases) if biases else None)
    output = _per_head(attention.output.weight.T, attention.num_heads, size).T
    _set_linear(spec.linear[-1], output, attention.output.bias)
    spec.queries_scale = 1 / math.sqrt(config.head_key_size)


def _per_head(rows: Tensor, num_heads: int, size: int) -> Tensor:
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


def _set_feed_forward(spec: "FeedForwardSpec", layer: FeedForward) -> None:
    if isinstance(layer, GatedFeedForward):  # there, the layer with the activation is the first one
        _set_linear(spec.linear_0, layer.gate.weight, layer.gate.bias)
        _set_linear(spec.linear_0_noact, layer.inner.weight, layer.inner.bias)
    else:
        _set_linear(spec.linear_0, layer.inner.weight, layer.inner.bias)
    _set_linear(spec.linear_1, layer.outer.weight, layer.outer.bias)


def _set_linear(spec: "LinearSpec", weight: Tensor, bias: Tensor | None) -> None:
    spec.weight = _copy(weight)
    if bias is not None:
        spec.bias = _copy(bias)


def _set_norm(spec: "LayerNormSpec", norm: nn.Module) -> None:
    assert isinstance(norm, nn.LayerNorm | nn.RMSNorm)
    spec.gamma = _copy(norm.weight)
    if isinstance(norm, nn.LayerNorm):
        spec.beta = _copy(norm.bias)


def _copy(weight: Tensor) -> Tensor:
    return weight.detach().to("cpu", torch.float32, copy=True).contiguous()
