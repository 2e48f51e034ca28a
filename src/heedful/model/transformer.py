"""The Transformer (paper, Figure 1): an encoder, a decoder, and the matrix that turns states into logits."""

from collections.abc import Callable, Iterable
from functools import partial
from typing import Self

from torch import Tensor, nn

from heedful.model.attention import DecoderCache, LayerCache, Memory, MultiHeadAttention, padding_mask
from heedful.model.layers import DecoderLayer, EncoderLayer, FeedForward, InputEmbedding
from heedful.model.positions import (
    AttentionPositions,
    LearnedPositions,
    NoPositions,
    SinusoidalPositions,
    sinusoids,
)
from heedful.model.variants import (
    SSRU,
    BucketedBiases,
    GatedFeedForward,
    LinearBiases,
    OffsetSinusoids,
    RotaryPositions,
    concatenated_sinusoids,
)
from heedful.settings.model import SHARED_EMBEDDINGS, SHARED_OUTPUT, SINUSOID_OFFSETS, ModelConfig

SINUSOIDS: dict[str, Callable[[int, int], Tensor]] = {
    "sinusoidal": sinusoids,
    "concatenated": concatenated_sinusoids,
    **{name: OffsetSinusoids(offset) for name, offset in SINUSOID_OFFSETS.items()},
}


class Encoder(nn.Module):
    """A stack of N identical layers over the embedded source (3.1)."""

    def __init__(self, embedding: InputEmbedding, layers: Iterable[nn.Module], final_norm: nn.Module) -> None:
        super().__init__()
        self.embedding = embedding
        self.layers = nn.ModuleList(layers)
        self.final_norm = final_norm  # the identity, unless the layers normalise first or it is asked for

    def forward(self, src: Tensor, mask: Tensor) -> Tensor:
        """Encode ids (B, S) to states (B, S, D)."""
        x = self.embedding(src)
        for layer in self.layers:
            x = layer(x, mask)
        return self.final_norm(x)  # type: ignore[no-any-return]


class Decoder(nn.Module):
    """A stack of N identical layers over the embedded target, attending to the encoder's output (3.1)."""

    def __init__(self, embedding: InputEmbedding, layers: Iterable[nn.Module], final_norm: nn.Module) -> None:
        super().__init__()
        self.embedding = embedding
        self.layers = nn.ModuleList(layers)
        self.final_norm = final_norm

    def forward(self, tgt_in: Tensor, memory: Memory, cache: DecoderCache | None = None) -> Tensor:
        """Turn ids (B, T) into states (B, T, D); no position sees a later one.

        Args:
            tgt_in: in training all ids, with a cache those that follow the ids of earlier calls.
            memory: the encoder's output.
            cache: of incremental decoding; the positions are added to it.
        """
        start = 0 if cache is None else cache.length
        x = self.embedding(tgt_in, start)
        for i, layer in enumerate(self.layers):
            x = layer(x, memory.states, memory.mask, cache=None if cache is None else cache.layers[i])
        if cache is not None:
            cache.length += tgt_in.shape[1]
        return self.final_norm(x)  # type: ignore[no-any-return]


class Transformer(nn.Module):
    """The whole model: logits for the next token at each target position, given the source."""

    def __init__(self, encoder: Encoder, decoder: Decoder, output: nn.Linear, config: ModelConfig) -> None:
        super().__init__()
        self.encoder = encoder
        self.decoder = decoder
        self.output = output
        self.config = config

    @classmethod
    def from_config(cls, config: ModelConfig) -> Self:
        """Build a model with fresh weights, drawn from torch's global generator.

        The paper says nothing of initialisation. All matrices, embeddings included, are drawn from
        N(0, 0.02²), as BERT's: where the sub-layers begin small, a post-norm stack learns about twice as fast
        as from Glorot's (docs/log.md).
        """
        d_model = config.d_model
        tgt_tokens = nn.Embedding(config.tgt_vocab_size, d_model)
        has_one = config.tied in SHARED_EMBEDDINGS
        src_tokens = tgt_tokens if has_one else nn.Embedding(config.src_vocab_size, d_model)
        encoder = Encoder(
            _input_embedding(config, "encoder", src_tokens), _encoder_layers(config), _final_norm(config)
        )
        decoder = Decoder(
            _input_embedding(config, "decoder", tgt_tokens), _decoder_layers(config), _final_norm(config)
        )
        output = nn.Linear(d_model, config.tgt_vocab_size, bias=config.output_bias)
        if config.tied in SHARED_OUTPUT:
            output.weight = tgt_tokens.weight  # 3.4
        model = cls(encoder, decoder, output, config)
        model.apply(_initialise)
        return model

    @property
    def num_parameters(self) -> int:
        """The number of weights; a shared matrix counts once."""
        return sum(parameter.numel() for parameter in self.parameters())

    def forward(self, src: Tensor, tgt_in: Tensor) -> Tensor:
        """Return logits (B, T, V) for source ids (B, S) and right-shifted target ids (B, T), padded right."""
        return self.project(self.decode(tgt_in, self.encode(src)))

    def encode(self, src: Tensor) -> Memory:
        """Encode source ids (B, S), padded on the right with `src_pad_id`."""
        mask = padding_mask(src, self.config.src_pad_id)
        return Memory(self.encoder(src, mask), mask)

    def decode(self, tgt_in: Tensor, memory: Memory) -> Tensor:
        """Return the decoder's states (B, T, D) for right-shifted target ids (B, T).

        Target padding needs no mask: it stands on the right, where no real position can look.
        """
        return self.decoder(tgt_in, memory)  # type: ignore[no-any-return]

    def project(self, states: Tensor) -> Tensor:
        """Turn states (..., D) into logits (..., V) over the target vocabulary (3.4)."""
        return self.output(states)  # type: ignore[no-any-return]

    def start_cache(self, memory: Memory) -> DecoderCache:
        """Return an empty cache for incremental decoding, to be filled by `decode_step`."""
        return DecoderCache([LayerCache() for _ in self.decoder.layers], memory)

    def decode_step(self, ids: Tensor, cache: DecoderCache) -> Tensor:
        """Return the logits (B, V) of the token after the newest id of each row (B,)."""
        return self.project(self.decoder(ids[:, None], cache.memory, cache=cache)[:, 0])


def _encoder_layers(config: ModelConfig) -> list[EncoderLayer]:
    each = _positions_of_layers(config, config.num_encoder_layers, bidirectional=True)
    return [
        EncoderLayer(
            _attention(config, positions),
            _feed_forward(config),
            norm=partial(_norm, config),
            dropout=config.dropout,
            norm_first=config.norm == "pre",
        )
        for positions in each
    ]


def _decoder_layers(config: ModelConfig) -> list[DecoderLayer]:
    each = _positions_of_layers(config, config.num_decoder_layers, bidirectional=False)
    return [
        DecoderLayer(
            SSRU(config.d_model) if config.decoder_unit == "ssru" else _attention(config, positions),
            _attention(config, AttentionPositions()),  # distances to the source mean nothing
            _feed_forward(config),
            norm=partial(_norm, config),
            dropout=config.dropout,
            norm_first=config.norm == "pre",
        )
        for positions in each
    ]


def _input_embedding(config: ModelConfig, stack: str, tokens: nn.Embedding) -> InputEmbedding:
    positions: SinusoidalPositions | LearnedPositions | NoPositions = NoPositions()
    if config.positions in SINUSOIDS:
        positions = SinusoidalPositions(config.d_model, SINUSOIDS[config.positions])
    elif config.positions == "learned":
        positions = LearnedPositions(config.d_model, config.max_positions)
    return InputEmbedding(
        tokens,
        positions,
        dropout=config.dropout,
        word_dropout=config.word_dropout,
        scale=config.scale_embeddings,
        norm=_norm(config) if config.embedding_norm in (True, stack) else None,
    )


def _positions_of_layers(config: ModelConfig, depth: int, *, bidirectional: bool) -> list[AttentionPositions]:
    """Return the positions of each layer's self-attention: one for all of them, as in T5, or one each."""
    if config.relative_per_layer:
        return [_attention_positions(config, bidirectional=bidirectional) for _ in range(depth)]
    return [_attention_positions(config, bidirectional=bidirectional)] * depth


def _attention_positions(config: ModelConfig, *, bidirectional: bool) -> AttentionPositions:
    if config.positions == "rotary":
        return RotaryPositions()
    if config.positions == "alibi":
        return LinearBiases(config.num_heads)
    if config.positions == "relative":
        buckets, reach = config.relative_buckets, config.relative_max_distance
        return BucketedBiases(
            config.num_heads, num_buckets=buckets, max_distance=reach, bidirectional=bidirectional
        )
    return AttentionPositions()


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
    return (GatedFeedForward if config.gated else FeedForward)(
        config.d_model,
        config.d_ff,
        activation=config.activation,
        dropout=config.activation_dropout,
        bias=config.feed_forward_bias,
    )


def _norm(config: ModelConfig) -> nn.Module:
    return (nn.RMSNorm if config.norm_kind == "rms" else nn.LayerNorm)(config.d_model, config.layer_norm_eps)


def _final_norm(config: ModelConfig) -> nn.Module:
    """Return the norm after a stack: post-norm layers end in a norm of their own, pre-norm ones need one."""
    return _norm(config) if config.norm == "pre" or config.final_norm else nn.Identity()


def _initialise(module: nn.Module) -> None:
    """Draw the weights of one module: matrices from N(0, 0.02²), biases zero (docs/log.md)."""
    if isinstance(module, nn.Linear | nn.Embedding | LearnedPositions | BucketedBiases):
        nn.init.normal_(module.weight, std=0.02)
    if isinstance(module, nn.Linear) and module.bias is not None:
        nn.init.zeros_(module.bias)
