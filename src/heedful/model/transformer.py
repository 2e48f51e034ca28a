"""The Transformer (paper, Figure 1): an encoder, a decoder, and the matrix that turns states into logits."""

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, Self, Unpack

import torch
from torch import Tensor, nn
from typing_extensions import override

from heedful.errors import ConfigError, InputError
from heedful.model import search as searching
from heedful.model.attention import (
    DecoderCache,
    GrowingCache,
    LayerCache,
    Memory,
    MultiHeadAttention,
    padding_mask,
)
from heedful.model.layers import DecoderLayer, EncoderLayer, FeedForward, InputEmbedding, Residual
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
    CappedAttention,
    CappedLinear,
    GatedFeedForward,
    LinearBiases,
    MergedDecoderLayer,
    NormalisedAttention,
    NormPair,
    OffsetSinusoids,
    RotaryPositions,
    SandwichResidual,
    concatenated_sinusoids,
)
from heedful.settings.keywords import ModelSettings, StrategySettings
from heedful.settings.model import SHARED_EMBEDDINGS, SHARED_OUTPUT, SINUSOID_OFFSETS, ModelConfig
from heedful.settings.plugins import plugin_part, reference_here

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
        self.final_norm = final_norm  # the identity for post-norm without `final_norm`

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
            tgt_in: in training all ids; with a cache, the ids after the ones of earlier calls.
            memory: the encoder's output.
            cache: the cache of incremental decoding; the positions are added to it.
        """
        start = 0 if cache is None else cache.length
        x = self.embedding(tgt_in, start)
        for i, layer in enumerate(self.layers):
            x = layer(x, memory.states, memory.mask, cache=None if cache is None else cache.layers[i])
        if cache is not None:
            cache.length += tgt_in.shape[1]
        return self.final_norm(x)  # type: ignore[no-any-return]


class Transformer(nn.Module):
    """The whole model: logits for the next token at each target position, given the source.

    Weights are drawn from torch's global generator. The paper says nothing of initialisation: all matrices,
    embeddings included, come from N(0, 0.02²), as BERT's. If the sub-layers begin small, a post-norm stack
    learns about twice as fast as from Glorot's (docs/log.md).

    A model that is to copy its input. Ids 0 to 3 are padding, unknown, begin and end, as in heedful's
    tokenizers, so the symbols begin at 4. Padding (`src_pad_id`, `tgt_pad_id`) is never attended to and never
    written: a symbol with that id would be lost.

    >>> model = Transformer(14, d_model=64, num_heads=4, d_ff=128)  # 14 tokens, of source and target
    >>> src = torch.randint(4, 14, (8, 5))  # (B, S)
    >>> begin, end = torch.full((8, 1), 2), torch.full((8, 1), 3)
    >>> logits = model(src, torch.cat([begin, src], dim=1))  # (B, S), (B, T) -> (B, T, V)
    >>> loss = torch.nn.functional.cross_entropy(logits.transpose(1, 2), torch.cat([src, end], dim=1))
    >>> loss.backward()  # then a step of an optimiser, and so on
    >>> copy = model.generate(src, beam_size=4, max_length=6)  # (B, L)

    Attributes:
        config: the architecture.
        encoder: maps source ids to states.
        decoder: maps target ids and the encoder's states to states.
        output: maps states to logits.
    """

    def __init__(self, config: ModelConfig | int | None = None, **settings: Unpack[ModelSettings]) -> None:
        """Build a model with fresh weights.

        Args:
            config: the architecture, with the sizes of both vocabularies; or the size of one for both.
            settings: fields of `ModelConfig`, instead of a `config`. A part may also be a function, a module
                or a class without a file, such as `activation=nn.GELU()`.

        Raises:
            ConfigError: an unknown or impossible setting, or no size of a vocabulary.
        """
        super().__init__()
        config = _checked(config, settings)
        d_model = config.d_model
        tgt_tokens = nn.Embedding(config.tgt_vocab_size, d_model)
        has_one = config.tied in SHARED_EMBEDDINGS
        src_tokens = tgt_tokens if has_one else nn.Embedding(config.src_vocab_size, d_model)
        self.encoder = Encoder(
            _input_embedding(config, "encoder", src_tokens), _encoder_layers(config), _final_norm(config)
        )
        self.decoder = Decoder(
            _input_embedding(config, "decoder", tgt_tokens), _decoder_layers(config), _final_norm(config)
        )
        self.output = _output(config)
        if config.tied in SHARED_OUTPUT:
            self.output.weight = tgt_tokens.weight  # 3.4
        self.config = config
        self.apply(_initialise)
        if config.plugged and not self.output.weight.is_meta:
            _try_parts(self)

    @property
    def num_parameters(self) -> int:
        """The number of weights; a shared matrix counts once."""
        return sum(parameter.numel() for parameter in self.parameters())

    @classmethod
    def from_config(cls, config: ModelConfig) -> Self:
        """Build a model with fresh weights: the same as `Transformer(config)`."""
        return cls(config)

    @override
    def extra_repr(self) -> str:
        c = self.config
        return (
            f"{c.num_encoder_layers} + {c.num_decoder_layers} layers, d_model={c.d_model}, "
            f"num_heads={c.num_heads}, d_ff={c.d_ff}, src_vocab_size={c.src_vocab_size:,}, "
            f"tgt_vocab_size={c.tgt_vocab_size:,}, {self.num_parameters:,} parameters"
        )

    def forward(self, src: Tensor, tgt_in: Tensor) -> Tensor:
        """Return logits (B, T, V) for source ids (B, S) and right-shifted target ids (B, T).

        Args:
            src: int64, padded on the right with `src_pad_id`.
            tgt_in: int64, padded on the right.

        Raises:
            InputError: other shapes or types, or, on a CPU, an id that is not in the vocabulary.
        """
        _check_shapes(src, tgt_in)
        try:
            return self.decode(tgt_in, self.encode(src))
        except IndexError:
            check_vocabulary("src", src, self.config.src_vocab_size)
            check_vocabulary("tgt_in", tgt_in, self.config.tgt_vocab_size)
            raise

    def generate(
        self,
        src: Tensor,
        *,
        bos_id: int | None = None,
        eos_id: int | None = None,
        strategy: Any = None,  # noqa: ANN401 (a `Strategy`, above the model)
        **search: Unpack[StrategySettings],
    ) -> Tensor:
        """Search the most probable output of each source, greedily or with a beam.

        Without dropout and gradients, also in training mode. Begin and padding tokens are never written.

        Args:
            src: int64 ids (B, S), padded on the right with `src_pad_id`.
            bos_id: the decoder's first input; None: `decoder_start_id`, or 2 as in heedful's tokenizers.
            eos_id: ends an output; None: 3 as in heedful's tokenizers.
            strategy: the algorithm; None: a beam search of one hypothesis, which is greedy.
            search: settings of the search, such as beam_size=4 or max_length=20. By default an output has at
                most 50 tokens more than its source (6.1), its end token included.

        Returns:
            int64 ids (B, L): the outputs without the begin token, each with its end token unless its maximum
            length came first, then padding (`tgt_pad_id`). L is the length of the longest.

        Raises:
            InputError: ids that are not as above, or an option that does not exist or cannot be.
        """
        if strategy is None:
            search = {"beam_size": 1, **search}
        return searching.generate(self, src, bos_id=bos_id, eos_id=eos_id, strategy=strategy, **search)

    def encode(self, src: Tensor) -> Memory:
        """Encode source ids (B, S), padded on the right with `src_pad_id`."""
        mask = padding_mask(src, self.config.src_pad_id)
        return Memory(self.encoder(src, mask), mask)

    def decode(self, tgt_in: Tensor, memory: Memory) -> Tensor:
        """Return the logits (B, T, V) of the token after each right-shifted target id (B, T).

        Target padding needs no mask: it stands on the right, where no real position can look.
        """
        return self.project(self.decoder(tgt_in, memory))

    def project(self, states: Tensor) -> Tensor:
        """Turn states (..., D) into logits (..., V) over the target vocabulary (3.4)."""
        return self.output(states)  # type: ignore[no-any-return]

    def start_cache(self, memory: Memory) -> DecoderCache:
        """Return an empty cache for incremental decoding, to be filled by `decode_step`."""
        return DecoderCache([LayerCache() for _ in self.decoder.layers], memory)

    def decode_step(self, ids: Tensor, cache: DecoderCache) -> Tensor:
        """Return the logits (B, V) of the token after the newest id of each row (B,)."""
        return self.project(self.decoder(ids[:, None], cache.memory, cache=cache)[:, 0])


def _checked(config: ModelConfig | int | None, given: ModelSettings) -> ModelConfig:
    """Return the architecture of a new model.

    Raises:
        ConfigError: it is none, or has no vocabularies.
    """
    settings = {name: reference_here(value, f"model.{name}") for name, value in given.items()}
    if isinstance(config, int):
        config, settings = None, {"src_vocab_size": config, "tgt_vocab_size": config} | settings
    if config is not None and not isinstance(config, ModelConfig):
        raise ConfigError(f"config is a {type(config).__name__}: give a ModelConfig, such as Config().model")
    if config is not None and settings:
        raise ConfigError(
            f"give a config or its fields, not both; config.replace({next(iter(settings))}=...)"
        )
    config = ModelConfig(**settings) if config is None else config
    for name in ("src_vocab_size", "tgt_vocab_size"):
        if not getattr(config, name):
            raise ConfigError(f"{name}=0: a model needs the number of tokens, such as {name}=37_000")
    return config


def _check_shapes(src: Tensor, tgt_in: Tensor) -> None:
    check_ids("src", src)
    check_ids("tgt_in", tgt_in)
    if src.shape[0] != tgt_in.shape[0]:
        shapes = f"src is {tuple(src.shape)} and tgt_in {tuple(tgt_in.shape)}"
        raise InputError(f"{shapes}: both must have the same number of rows")


def check_ids(name: str, ids: object) -> None:
    """Refuse what is no matrix of ids.

    Raises:
        InputError: naming it.
    """
    if not isinstance(ids, Tensor) or ids.dim() != 2 or ids.dtype not in (torch.int64, torch.int32):
        shown = f"{ids.dtype} {tuple(ids.shape)}" if isinstance(ids, Tensor) else f"a {type(ids).__name__}"
        raise InputError(f"{name} is {shown}: must be a tensor of int64 ids, (rows, length)")


def check_vocabulary(name: str, ids: Tensor, size: int) -> None:
    """Refuse ids that a vocabulary of this size does not have.

    Raises:
        InputError: naming the first.
    """
    outside = ids[(ids < 0) | (ids >= size)]
    if len(outside):
        raise InputError(f"{name} has the id {outside[0]:,}: the vocabulary has ids 0 to {size - 1:,}")


def _output(config: ModelConfig) -> nn.Linear:
    sizes, bias = (config.d_model, config.tgt_vocab_size), config.output_bias
    if config.output_cap is None:
        return nn.Linear(*sizes, bias=bias)
    return CappedLinear(*sizes, bias=bias, cap=config.output_cap)


def _encoder_layers(config: ModelConfig) -> list[EncoderLayer]:
    return [
        EncoderLayer(
            _attention(config, positions),
            _feed_forward(config),
            norm=_sublayer_norm(config),
            residual=partial(_residual, config),
        )
        for positions in _positions_of_layers(config, "encoder")
    ]


def _decoder_layers(config: ModelConfig) -> list[nn.Module]:
    each = _positions_of_layers(config, "decoder")
    common: Any = {"norm": _sublayer_norm(config)}
    if config.decoder_unit == "merged":
        return [
            MergedDecoderLayer(
                _attention(config, positions),
                _feed_forward(config),
                residual=partial(_residual, config),
                **common,
            )
            for positions in each
        ]
    return [
        DecoderLayer(
            SSRU(config.d_model) if config.decoder_unit == "ssru" else _attention(config, positions),
            _attention(config, AttentionPositions()),  # distances to the source mean nothing
            _feed_forward(config),
            residual=partial(_residual, config),
            **common,
        )
        for positions in each
    ]


def _input_embedding(config: ModelConfig, stack: str, tokens: nn.Embedding) -> InputEmbedding:
    positions: nn.Module = NoPositions()
    if config.positions in SINUSOIDS:
        positions = SinusoidalPositions(config.d_model, SINUSOIDS[config.positions])
    elif config.positions == "learned":
        positions = LearnedPositions(config.d_model, config.max_positions)
    elif not issubclass(_class_of(config, "positions", AttentionPositions), AttentionPositions):
        positions = _made(config, "positions", nn.Module, config.d_model, config.max_positions)
    return InputEmbedding(
        tokens,
        positions,
        dropout=config.dropout,
        word_dropout=config.word_dropout,
        scale=config.scale_embeddings,
        norm=_norm(config) if config.embedding_norm in (True, stack) else None,
    )


def _positions_of_layers(config: ModelConfig, stack: str) -> list[AttentionPositions]:
    """Return the positions of each layer's self-attention: one for all of them, as in T5, or one each."""
    depth = getattr(config, f"num_{stack}_layers")
    if config.positions == "rotary":
        every = config.full_attention_every
        return [_rotary(config, stack, local=bool((i + 1) % every)) for i in range(depth)]
    if config.relative_per_layer:
        return [_attention_positions(config, stack) for _ in range(depth)]
    return [_attention_positions(config, stack)] * depth


def _rotary(config: ModelConfig, stack: str, *, local: bool) -> RotaryPositions:
    """Return rotary positions, of a layer that sees a window or the whole sequence."""
    if not local:
        return RotaryPositions(base=config.rotary_base, scale=config.rotary_scale)
    window = config.encoder_window
    if stack == "decoder":
        window = None if config.decoder_window is None else (config.decoder_window, 0)
    return RotaryPositions(base=config.rotary_window_base or config.rotary_base, window=window)


def _attention_positions(config: ModelConfig, stack: str) -> AttentionPositions:
    if config.positions == "alibi":
        return LinearBiases(config.num_heads)
    if config.positions == "relative":
        buckets, reach = config.relative_buckets, config.relative_max_distance
        return BucketedBiases(
            config.num_heads, num_buckets=buckets, max_distance=reach, bidirectional=stack == "encoder"
        )
    kind = _class_of(config, "positions", AttentionPositions)
    if kind is AttentionPositions or not issubclass(kind, AttentionPositions):
        return AttentionPositions()
    made: AttentionPositions = _made(
        config, "positions", kind, config.num_heads, bidirectional=stack == "encoder"
    )
    return made


def _attention(config: ModelConfig, positions: AttentionPositions) -> MultiHeadAttention:
    own: type[MultiHeadAttention] = NormalisedAttention if config.query_norm else MultiHeadAttention
    eps = {"eps": config.layer_norm_eps} if config.query_norm else {}
    made: MultiHeadAttention = _made(
        config,
        "attention",
        own,
        config.d_model,
        config.num_heads,
        d_k=config.d_k,
        d_v=config.d_v,
        num_kv_heads=config.num_kv_heads,
        positions=positions,
        dropout=config.attention_dropout,
        bias=config.attention_bias,
        **eps,
    )
    if config.attention_cap is not None:
        made.attention = CappedAttention(config.attention_dropout, config.attention_cap)
    return made


def _feed_forward(config: ModelConfig) -> FeedForward:
    own = GatedFeedForward if config.gated else FeedForward
    is_own = ":" not in config.activation
    activation = config.activation if is_own else plugin_part(config.activation, "model.activation")
    if isinstance(activation, type) or not (isinstance(activation, str) or callable(activation)):
        raise ConfigError(f"model.activation={config.activation}: must be a function of a tensor")
    made: FeedForward = _made(
        config,
        "feed_forward",
        own,
        config.d_model,
        config.d_ff,
        activation=activation,
        dropout=config.activation_dropout,
        bias=config.feed_forward_bias,
    )
    return made


def _residual(config: ModelConfig) -> Residual:
    kind = SandwichResidual if config.norm == "both" else Residual
    return kind(config.dropout, norm_first=config.norm == "pre")


def _sublayer_norm(config: ModelConfig) -> Callable[[], nn.Module]:
    norm = partial(_norm, config)
    return partial(NormPair, norm) if config.norm == "both" else norm


def _norm(config: ModelConfig) -> nn.Module:
    own = nn.RMSNorm if config.norm_kind == "rms" else nn.LayerNorm
    made: nn.Module = _made(config, "norm_kind", own, config.d_model, config.layer_norm_eps)
    return made


def _made(config: ModelConfig, name: str, own: type[nn.Module], *arguments: Any, **settings: Any) -> Any:  # noqa: ANN401
    """Make a layer, heedful's own or a plugin's; both take the same arguments."""
    kind = _class_of(config, name, own)
    try:
        return kind(*arguments, **settings)
    except TypeError as error:
        reference = f"model.{name}={getattr(config, name)}"
        raise ConfigError(f"{reference}: must take the arguments of {own.__name__}: {error}") from error


def _try_parts(model: Transformer) -> None:
    """Use each part of a plugin once, on two sequences of three vectors.

    Raises:
        ConfigError: it takes other arguments, or gives a tensor of another shape.
    """
    x = model.output.weight.new_zeros(2, 3, model.config.d_model)
    layer: Any = model.encoder.layers[0]
    mask = torch.ones(2, 1, 1, 3, dtype=torch.bool, device=x.device)

    def attention() -> object:
        made = layer.self_attention(x, x, mask)
        cached = layer.self_attention(x, x, None, causal=True, cache=GrowingCache())
        return made if getattr(made, "shape", None) != x.shape else cached

    uses: dict[str, Callable[[], object]] = {
        "model.attention": attention,
        "model.positions": lambda: attention() + model.encoder.embedding.positions(0, 3),
        "model.feed_forward": lambda: layer.feed_forward(x),
        "model.activation": lambda: plugin_part(model.config.activation, "model.activation")(x),
        "model.norm_kind": lambda: _norm(model.config).to(x)(x),
    }
    for key, reference in model.config.plugged.items():
        try:
            with torch.no_grad(), torch.random.fork_rng(devices=()):
                y = uses[key]()
        except Exception as error:
            problem = f"fails with {type(error).__name__}: {' '.join(str(error).split())}"
            raise ConfigError(f"{key}={reference}: {problem}; it must do what heedful's own does") from error
        if not isinstance(y, Tensor) or y.shape != x.shape:
            got = tuple(y.shape) if isinstance(y, Tensor) else type(y).__name__
            raise ConfigError(f"{key}={reference}: makes {got} of {tuple(x.shape)}; the shape must stay")


def _class_of(config: ModelConfig, name: str, own: type[nn.Module]) -> type[nn.Module]:
    """Return the class of a layer: heedful's own, or a plugin's.

    Raises:
        ConfigError: the plugin is not loaded, or its part is no class of torch modules.
    """
    reference = getattr(config, name)
    if reference is None or ":" not in reference:
        return own
    kind = plugin_part(reference, f"model.{name}")
    if not (isinstance(kind, type) and issubclass(kind, nn.Module)):
        raise ConfigError(f"model.{name}={reference}: must be a class of torch modules (nn.Module)")
    return kind


def _final_norm(config: ModelConfig) -> nn.Module:
    """Return the norm after a stack: post-norm layers end in a norm of their own, others need one."""
    return _norm(config) if config.norm != "post" or config.final_norm else nn.Identity()


def _initialise(module: nn.Module) -> None:
    """Draw the weights of one module: matrices from N(0, 0.02²), biases zero (docs/log.md)."""
    if isinstance(module, nn.Linear | nn.Embedding | LearnedPositions | BucketedBiases):
        nn.init.normal_(module.weight, std=0.02)
    if isinstance(module, nn.Linear) and module.bias is not None:
        nn.init.zeros_(module.bias)
