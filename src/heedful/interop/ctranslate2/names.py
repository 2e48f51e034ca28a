"""CTranslate2's names of weights: one table, which imports read forwards and exports backwards."""

from collections.abc import Mapping

from heedful.interop.conversion import STACKS
from heedful.settings.model import ModelConfig
from heedful.storage.weights_file import weight_shapes

SINUSOIDS = "opennmt-tf"  # what CTranslate2 computes, without end, where a model has no table
ACTIVATIONS: Mapping[str, str] = {
    "relu": "RELU",
    "gelu": "GELU",
    "gelu_tanh": "GELUTanh",
    "swish": "SWISH",
}  # by their names in `ctranslate2.specs.Activation`
TOKENS = {"encoder": "encoder/embeddings_0/weight", "decoder": "decoder/embeddings/weight"}
OUTPUT = "decoder/projection"
# The modules of a stack and of a layer there, and the modules here that they stack by rows.
STACK = {
    "layernorm_embedding": ["embedding.norm"],
    "layer_norm": ["final_norm"],
}
LAYER = {
    "self_attention/layer_norm": ["self_attention_norm"],
    "self_attention/linear_0": ["self_attention.query", "self_attention.key", "self_attention.value"],
    "self_attention/linear_1": ["self_attention.output"],
    "attention/layer_norm": ["cross_attention_norm"],
    "attention/linear_0": ["cross_attention.query"],
    "attention/linear_1": ["cross_attention.key", "cross_attention.value"],
    "attention/linear_2": ["cross_attention.output"],
    "ffn/layer_norm": ["feed_forward_norm"],
    "ffn/linear_0": ["feed_forward.inner"],
    "ffn/linear_1": ["feed_forward.outer"],
}
GATED = {"ffn/linear_0": ["feed_forward.gate"], "ffn/linear_0_noact": ["feed_forward.inner"]}


def weight_names(config: ModelConfig) -> dict[str, tuple[str, ...]]:
    """Return by each name there the weights of a bundle that it stacks by rows.

    A shared matrix stands under each of its names.
    """
    modules: dict[str, list[str]] = {OUTPUT: ["output"]}
    names: dict[str, tuple[str, ...]] = {}
    for stack in STACKS:
        names[TOKENS[stack]] = (f"{stack}.embedding.tokens.weight",)
        if config.positions == "learned":
            names[f"{stack}/position_encodings/encodings"] = (f"{stack}.embedding.positions.weight",)
        scopes = {f"{stack}/": (f"{stack}.", STACK)} | {
            f"{stack}/layer_{i}/": (f"{stack}.layers.{i}.", LAYER | (GATED if config.gated else {}))
            for i in range(getattr(config, f"num_{stack}_layers"))
        }
        for scope, (prefix, table) in scopes.items():
            modules |= {f"{scope}{theirs}": [f"{prefix}{each}" for each in table[theirs]] for theirs in table}
    there = {*weight_shapes(config), "output.weight"}
    for theirs, ours in modules.items():
        for kind, of_norm in (("weight", "gamma"), ("bias", "beta")):
            if f"{ours[0]}.{kind}" in there:
                name = of_norm if "norm" in theirs else kind
                names[f"{theirs}/{name}"] = tuple(f"{each}.{kind}" for each in ours)
    return names
