"""The weights of a model as its file has them: their names and shapes, which are a public format.

They are known without building a model, so that a file can be checked and read where torch is missing. A
shared matrix has one name, the first of those below that it could have.
"""

from collections.abc import Iterator

from heedful.config import ModelConfig

Shape = tuple[int, ...]


def weight_shapes(config: ModelConfig) -> dict[str, Shape]:
    """Return the shape of each weight by its name, in the order of the model's parameters."""
    shapes = dict(_embedding("encoder", config, config.src_vocab_size))
    shapes |= _stack("encoder", config, config.num_encoder_layers, ["self_attention"])
    shapes |= _embedding("decoder", config, config.tgt_vocab_size, shared=config.tied == "all")
    shapes |= _stack("decoder", config, config.num_decoder_layers, ["self_attention", "cross_attention"])
    if config.tied == "none":
        shapes["output.weight"] = (config.tgt_vocab_size, config.d_model)
    if config.output_bias:
        shapes["output.bias"] = (config.tgt_vocab_size,)
    return shapes


def embedding_names(config: ModelConfig) -> tuple[str, str, str]:
    """Return the names of the source embedding, the target embedding and the output matrix (3.4)."""
    src, tgt = (f"{stack}.embedding.tokens.weight" for stack in ("encoder", "decoder"))
    tgt = src if config.tied == "all" else tgt
    return src, tgt, "output.weight" if config.tied == "none" else tgt


def _embedding(
    stack: str, config: ModelConfig, vocab_size: int, *, shared: bool = False
) -> Iterator[tuple[str, Shape]]:
    if not shared:
        yield f"{stack}.embedding.tokens.weight", (vocab_size, config.d_model)
    if config.positions == "learned":
        yield f"{stack}.embedding.positions.weight", (config.max_positions, config.d_model)
    if config.embedding_norm:
        yield from _norm(f"{stack}.embedding.norm", config)


def _stack(stack: str, config: ModelConfig, depth: int, attentions: list[str]) -> Iterator[tuple[str, Shape]]:
    for i in range(depth):
        layer = f"{stack}.layers.{i}"
        for name in attentions:
            has_biases = config.positions == "relative" and name == "self_attention" and i == 0
            yield from _attention(f"{layer}.{name}", config, has_biases=has_biases)
            yield from _norm(f"{layer}.{name}_norm", config)
        yield from _feed_forward(f"{layer}.feed_forward", config)
        yield from _norm(f"{layer}.feed_forward_norm", config)
    if config.norm == "pre" or config.final_norm:
        yield from _norm(f"{stack}.final_norm", config)


def _attention(name: str, config: ModelConfig, *, has_biases: bool) -> Iterator[tuple[str, Shape]]:
    """Yield the projections of 3.2.2, and the biases of relative positions, which all layers share."""
    num_kv_heads = config.num_kv_heads or config.num_heads
    keys, values = num_kv_heads * config.head_key_size, num_kv_heads * config.head_value_size
    d_model, bias = config.d_model, config.attention_bias
    yield from _linear(f"{name}.query", d_model, config.num_heads * config.head_key_size, bias=bias)
    yield from _linear(f"{name}.key", d_model, keys, bias=bias)
    yield from _linear(f"{name}.value", d_model, values, bias=bias)
    yield from _linear(f"{name}.output", config.num_heads * config.head_value_size, d_model, bias=bias)
    if has_biases:
        yield f"{name}.positions.weight", (config.relative_buckets, config.num_heads)


def _feed_forward(name: str, config: ModelConfig) -> Iterator[tuple[str, Shape]]:
    bias = config.feed_forward_bias
    yield from _linear(f"{name}.inner", config.d_model, config.d_ff, bias=bias)
    yield from _linear(f"{name}.outer", config.d_ff, config.d_model, bias=bias)
    if config.gated:
        yield from _linear(f"{name}.gate", config.d_model, config.d_ff, bias=bias)


def _linear(name: str, num_in: int, num_out: int, *, bias: bool) -> Iterator[tuple[str, Shape]]:
    yield f"{name}.weight", (num_out, num_in)
    if bias:
        yield f"{name}.bias", (num_out,)


def _norm(name: str, config: ModelConfig) -> Iterator[tuple[str, Shape]]:
    yield f"{name}.weight", (config.d_model,)
    if config.norm_kind == "layer":
        yield f"{name}.bias", (config.d_model,)
