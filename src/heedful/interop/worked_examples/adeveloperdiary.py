"""A Developer Diary, "Coding Transformer Model from Scratch, part 1": pre-norm, norms with two scalars."""

from heedful.interop.conversion import (
    STACKS,
    Conversion,
    Imported,
    eps_inside_the_root,
    gain_of_unbiased_norm,
    move_positions,
    one_number_for_all,
)

EPS = 1e-8  # added to the deviation
_PARTS = {"Wq": "query", "Wk": "key", "Wv": "value", "Wo": "output"}
_EMBEDDINGS = {"encoder": "input", "decoder": "output"}
# The blocks of a layer, in the order of their skip connections.
_ATTENTIONS = {
    "encoder": {"attention_block": "self_attention"},
    "decoder": {"attention_block": "self_attention", "cross_attention_block": "cross_attention"},
}


def read(conversion: Conversion) -> Imported:
    """Convert the weights: rename them, and replace norms with the unbiased deviation by ordinary ones."""
    d_model = conversion.look("input_embed_block.embedding.weight").shape[-1]
    for stack in STACKS:
        their_stack = f"{stack}_seq_block.{stack}_blocks"
        for i in range(conversion.num_layers(their_stack)):
            theirs, ours = f"{their_stack}.{i}", f"{stack}.layers.{i}"
            sublayers = list(_ATTENTIONS[stack].values())
            for block, attention in _ATTENTIONS[stack].items():
                for name, part in _PARTS.items():
                    conversion.move_parts(f"{theirs}.{block}.{name}", f"{ours}.{attention}.{part}")
            conversion.move_parts(f"{theirs}.ff_block.linear1", f"{ours}.feed_forward.inner")
            conversion.move_parts(f"{theirs}.ff_block.linear2", f"{ours}.feed_forward.outer")
            for number, sublayer in enumerate([*sublayers, "feed_forward"]):
                norm = f"{theirs}.skip_connections.{number}.layer_norm_block"
                _move_norm(conversion, norm, f"{ours}.{sublayer}_norm", d_model)
        _move_norm(conversion, f"{stack}_seq_block.norm", f"{stack}.final_norm", d_model)
        embedding = f"{_EMBEDDINGS[stack]}_embed_block.embedding.weight"
        conversion.move(embedding, f"{stack}.embedding.tokens.weight")
    tables = {stack: f"{name}_pos_block.positional_encoding" for stack, name in _EMBEDDINGS.items()}
    there = {stack: table for stack, table in tables.items() if table in conversion.left}
    move_positions(conversion, there, fixed=True)
    conversion.move_parts("linear_softmax_block.linear", "output")
    return conversion.finish(norm="pre", layer_norm_eps=eps_inside_the_root(EPS))


def _move_norm(conversion: Conversion, theirs: str, ours: str, d_model: int) -> None:
    alpha, beta = conversion.take(f"{theirs}.alpha"), conversion.take(f"{theirs}.beta")
    conversion.put(f"{ours}.weight", gain_of_unbiased_norm(alpha, d_model), origin=f"{theirs}.alpha")
    conversion.put(f"{ours}.bias", one_number_for_all(beta, d_model), origin=f"{theirs}.beta")
