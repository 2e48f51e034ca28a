"""The names of weights in a CTranslate2 model, and those of a bundle: one table for import and export."""

from collections.abc import Iterator, Mapping, Sequence

from heedful.interop.conversion import STACKS
from heedful.settings.model import ModelConfig

SINUSOIDS = "opennmt-tf"  # what CTranslate2 computes, without end, where a model has no table
ACTIVATIONS: Mapping[str, str] = {
    "relu": "RELU",
    "gelu": "GELU",
    "gelu_tanh": "GELUTanh",
    "swish": "SWISH",
}  # by their names in `ctranslate2.specs.Activation`
TOKENS = {"encoder": "encoder/embeddings_0/weight", "decoder": "decoder/embeddings/weight"}
OUTPUT = "decoder/projection"


def weight_names(config: ModelConfig) -> dict[str, tuple[str, ...]]:
    """Return by each name there the weights of a bundle whose rows it stacks.

    A shared matrix stands under each of its names. Queries, keys and values of one input are one matrix: all
    three in self-attention, keys and values in cross-attention.
    """
    names: dict[str, tuple[str, ...]] = {}
    for stack in STACKS:
        names[TOKENS[stack]] = (f"{stack}.embedding.tokens.weight",)
        if config.positions == "learned":
            names[f"{stack}/position_encodings/encodings"] = (f"{stack}.embedding.positions.weight",)
        if config.embedding_norm in (True, stack):
            names |= _norm(f"{stack}/layernorm_embedding", f"{stack}.embedding.norm", config)
        for i in range(getattr(config, f"num_{stack}_layers")):
            names |= _layer(f"{stack}/layer_{i}", f"{stack}.layers.{i}", config)
        if config.norm == "pre" or config.final_norm:
            names |= _norm(f"{stack}/layer_norm", f"{stack}.final_norm", config)
    return names | _linear(OUTPUT, ["output"], bias=config.output_bias)


_PROJECTIONS: Mapping[str, Sequence[Sequence[str]]] = {
    "self_attention": (("query", "key", "value"), ("output",)),
    "cross_attention": (("query",), ("key", "value"), ("output",)),
}


def _layer(theirs: str, ours: str, config: ModelConfig) -> dict[str, tuple[str, ...]]:
    names: dict[str, tuple[str, ...]] = {}
    for attention in [*_PROJECTIONS][: 2 if ours.startswith("decoder") else 1]:
        scope = f"{theirs}/{attention.removeprefix('cross_')}"
        names |= _norm(f"{scope}/layer_norm", f"{ours}.{attention}_norm", config)
        for i, group in enumerate(_PROJECTIONS[attention]):
            parts = [f"{ours}.{attention}.{part}" for part in group]
            names |= _linear(f"{scope}/linear_{i}", parts, bias=config.attention_bias)
    names |= _norm(f"{theirs}/ffn/layer_norm", f"{ours}.feed_forward_norm", config)
    for linear, part in _feed_forward(config):
        name = f"{ours}.feed_forward.{part}"
        names |= _linear(f"{theirs}/ffn/{linear}", [name], bias=config.feed_forward_bias)
    return names


def _feed_forward(config: ModelConfig) -> Iterator[tuple[str, str]]:
    """Yield the linear layers; there, the layer with the activation is the first one."""
    yield "linear_0", "gate" if config.gated else "inner"
    if config.gated:
        yield "linear_0_noact", "inner"
    yield "linear_1", "outer"


def _linear(theirs: str, ours: list[str], *, bias: bool) -> dict[str, tuple[str, ...]]:
    kinds = ("weight", "bias") if bias else ("weight",)
    return {f"{theirs}/{kind}": tuple(f"{name}.{kind}" for name in ours) for kind in kinds}


def _norm(theirs: str, ours: str, config: ModelConfig) -> dict[str, tuple[str, ...]]:
    names: dict[str, tuple[str, ...]] = {f"{theirs}/gamma": (f"{ours}.weight",)}
    if config.norm_kind == "layer":
        names[f"{theirs}/beta"] = (f"{ours}.bias",)
    return names
