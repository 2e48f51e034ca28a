"""From a configuration to the parts of a model: which class and sizes each setting means."""

from torch import nn

from heedful.config import ModelConfig
from heedful.nn.attention import MultiHeadAttention
from heedful.nn.embeddings import InputEmbedding
from heedful.nn.feed_forward import FeedForward, GatedFeedForward
from heedful.nn.layers import DecoderLayer, EncoderLayer
from heedful.nn.positions import (
    LearnedPositions,
    NoPositions,
    SinusoidalPositions,
    concatenated_sinusoids,
    fairseq_sinusoids,
    sinusoids,
)
from heedful.nn.relative_positions import (
    AttentionPositions,
    BucketedBiases,
    LinearBiases,
    RotaryPositions,
)
from heedful.nn.relative_positions import NoPositions as NoAttentionPositions

_SINUSOIDS = {"sinusoidal": sinusoids, "concatenated": concatenated_sinusoids, "fairseq": fairseq_sinusoids}


def input_embedding(config: ModelConfig, tokens: nn.Embedding) -> InputEmbedding:
    """What turns ids into the first states of a stack; `tokens` may be shared with the other."""
    positions: SinusoidalPositions | LearnedPositions | NoPositions
    if config.positions in _SINUSOIDS:
        positions = SinusoidalPositions(config.d_model, _SINUSOIDS[config.positions])
    elif config.positions == "learned":
        positions = LearnedPositions(config.d_model, config.max_positions)
    else:
        positions = NoPositions()
    return InputEmbedding(
        tokens,
        positions,
        dropout=config.dropout,
        word_dropout=config.word_dropout,
        scale=config.scale_embeddings,
        norm=_norm(config) if config.embedding_norm else None,
    )


def encoder_layers(config: ModelConfig) -> list[EncoderLayer]:
    """The N layers of the encoder."""
    positions = _attention_positions(config, bidirectional=True)  # one for all layers, as T5
    return [
        EncoderLayer(
            _attention(config, positions),
            _feed_forward(config),
            d_model=config.d_model,
            dropout=config.dropout,
            norm_first=config.norm == "pre",
            rms_norm=config.norm_kind == "rms",
            eps=config.layer_norm_eps,
        )
        for _ in range(config.num_encoder_layers)
    ]


def decoder_layers(config: ModelConfig) -> list[DecoderLayer]:
    """The N layers of the decoder."""
    positions = _attention_positions(config, bidirectional=False)
    return [
        DecoderLayer(
            _attention(config, positions),
            _attention(config, NoAttentionPositions()),  # distances to the source mean nothing
            _feed_forward(config),
            d_model=config.d_model,
            dropout=config.dropout,
            norm_first=config.norm == "pre",
            rms_norm=config.norm_kind == "rms",
            eps=config.layer_norm_eps,
        )
        for _ in range(config.num_decoder_layers)
    ]


def _attention_positions(config: ModelConfig, *, bidirectional: bool) -> AttentionPositions:
    if config.positions == "rotary":
        return RotaryPositions()
    if config.positions == "alibi":
        return LinearBiases(config.num_heads)
    if config.positions == "relative":
        return BucketedBiases(
            config.num_heads,
            num_buckets=config.relative_buckets,
            max_distance=config.relative_max_distance,
            bidirectional=bidirectional,
        )
    return NoAttentionPositions()


def _attention(config: ModelConfig, positions: AttentionPositions) -> MultiHeadAttention:
    return MultiHeadAttention(
        config.d_model,
        config.num_heads,
        d_k=config.d_k,
        d_v=config.d_v,
        num_kv_heads=config.num_kv_heads,
        positions=positions,
        dropout=config.attention_dropout,
        bias=config.attention_bias,
    )


def _feed_forward(config: ModelConfig) -> FeedForward:
    kind = GatedFeedForward if config.gated else FeedForward
    return kind(
        config.d_model,
        config.d_ff,
        activation=config.activation,
        dropout=config.activation_dropout,
        bias=config.feed_forward_bias,
    )


def _norm(config: ModelConfig) -> nn.Module:
    kind = nn.RMSNorm if config.norm_kind == "rms" else nn.LayerNorm
    return kind(config.d_model, config.layer_norm_eps)


def final_norm(config: ModelConfig) -> nn.Module:
    """Post-norm layers end in a norm of their own; pre-norm ones need one after the stack."""
    return _norm(config) if config.norm == "pre" or config.final_norm else nn.Identity()


def initialise(module: nn.Module) -> None:
    """Draw the weights of one module: matrices from N(0, 0.02²), biases zero (docs/log.md)."""
    if isinstance(module, nn.Linear | nn.Embedding | LearnedPositions | BucketedBiases):
        nn.init.normal_(module.weight, std=0.02)
    if isinstance(module, nn.Linear) and module.bias is not None:
        nn.init.zeros_(module.bias)
