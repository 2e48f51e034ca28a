"""The Kaggle notebook "Attention is all you need: implementation": like the lecture, except for attention.

Its heads share one small matrix, and its scores are divided by sqrt(d_model) instead of sqrt(d_k).
"""

from heedful.interop.conversion import Conversion, Imported, shared_by_heads
from heedful.interop.worked_examples.nptel_lecture import PARTS, move_blocks


def read(conversion: Conversion) -> Imported:
    """Convert the weights: repeat the shared matrix for all heads, and scale the queries."""
    d_model = conversion.look("encoder.word_embedding.weight").shape[-1]
    d_k = conversion.look("encoder.layers.0.attention.queries.weight").shape[0]
    if d_model % d_k:
        raise conversion.error(f"heads of size {d_k} do not divide the size {d_model} of the embeddings")
    num_heads = d_model // d_k
    # Softmax(q k / sqrt(d_model)) is softmax(q' k / sqrt(d_k)) with q' = q sqrt(d_k / d_model).
    factors = {"queries": num_heads**-0.5, "keys": 1.0, "values": 1.0}

    def move_attention(conversion: Conversion, theirs: str, ours: str) -> None:
        for name, factor in factors.items():
            weight = conversion.take(f"{theirs}.{name}.weight")
            if weight.shape != (d_k, d_k):
                raise conversion.error(
                    f"the weight '{theirs}.{name}.weight' has shape {tuple(weight.shape)}, "
                    f"but one for all heads would have {(d_k, d_k)}"
                )
            whole = conversion.look(f"{theirs}.fc_out.weight")
            if whole.shape != (d_model, d_model):
                raise conversion.error(
                    f"the weight '{theirs}.fc_out.weight' has shape {tuple(whole.shape)}, "
                    f"but the embeddings need {(d_model, d_model)}"
                )
            spread = shared_by_heads(weight, num_heads) * factor
            conversion.put(f"{ours}.{PARTS[name]}.weight", spread, origin=f"{theirs}.{name}.weight")
        conversion.move_parts(f"{theirs}.fc_out", f"{ours}.output")

    move_blocks(conversion, move_attention)
    return conversion.finish(scale_embeddings=False, num_heads=num_heads)
