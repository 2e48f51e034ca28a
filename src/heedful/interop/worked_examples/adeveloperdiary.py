"""A Developer Diary, "Coding Transformer Model from Scratch, part 1": pre-norm, norms of two numbers."""

from heedful.interop.algebra import eps_inside_the_root, gain_of_unbiased_norm, one_number_for_all
from heedful.interop.conversion import SIDES, Conversion, Imported
from heedful.interop.position_tables import move_positions

EPS = 1e-8  # added to the deviation
_PARTS = {"Wq": "query", "Wk": "key", "Wv": "value", "Wo": "output"}
_EMBEDDINGS = {"encoder": "input", "decoder": "output"}
# The blocks of a layer, in the order of their skip connections.
_ATTENTIONS = {
    "encoder": {"attention_block": "self_attention"},
    "decoder": {"attention_block": "self_attention", "cross_attention_block": "cross_attention"},
}


def read(conversion: Conversion) -> Imported:
    """Names, and ordinary norms for unbiased ones."""
    d_model = conversion.look("input_embed_block.embedding.weight").shape[-1]
    for side in SIDES:
        stack = f"{side}_seq_block.{side}_blocks"
        for i in range(conversion.num_layers(stack)):
            theirs, ours = f"{stack}.{i}", f"{side}.layers.{i}"
            sublayers = list(_ATTENTIONS[side].values())
            for block, attention in _ATTENTIONS[side].items():
                for name, part in _PARTS.items():
                    conversion.move_parts(f"{theirs}.{block}.{name}", f"{ours}.{attention}.{part}")
            conversion.move_parts(f"{theirs}.ff_block.linear1", f"{ours}.feed_forward.inner")
            conversion.move_parts(f"{theirs}.ff_block.linear2", f"{ours}.feed_forward.outer")
            for number, sublayer in enumerate([*sublayers, "feed_forward"]):
                norm = f"{theirs}.skip_connections.{number}.layer_norm_block"
                _move_norm(conversion, norm, f"{ours}.{sublayer}_norm", d_model)
        _move_norm(conversion, f"{side}_seq_block.norm", f"{side}.final_norm", d_model)
        embedding = f"{_EMBEDDINGS[side]}_embed_block.embedding.weight"
        conversion.move(embedding, f"{side}.embedding.tokens.weight")
    tables = {side: f"{name}_pos_block.positional_encoding" for side, name in _EMBEDDINGS.items()}
    there = {side: table for side, table in tables.items() if table in conversion.left}
    move_positions(conversion, there, fixed=True)
    conversion.move_parts("linear_softmax_block.linear", "output")
    return conversion.finish(norm="pre", layer_norm_eps=eps_inside_the_root(EPS))


def _move_norm(conversion: Conversion, theirs: str, ours: str, d_model: int) -> None:
    alpha, beta = conversion.take(f"{theirs}.alpha"), conversion.take(f"{theirs}.beta")
    conversion.put(f"{ours}.weight", gain_of_unbiased_norm(alpha, d_model), origin=f"{theirs}.alpha")
    conversion.put(f"{ours}.bias", one_number_for_all(beta, d_model), origin=f"{theirs}.beta")
