"""fairseq's names of the parts of a Transformer, also used by transformers' Marian, M2M100 and BART.

encoder.layers.0.self_attn.{q,k,v,out}_proj, encoder.layers.0.self_attn_layer_norm, fc1, fc2,
final_layer_norm (of the feed-forward layer), in the decoder also encoder_attn, encoder_attn_layer_norm;
around the layers embed_tokens, embed_positions, layernorm_embedding, layer_norm (after the their_stack)
"""

from collections.abc import Iterator

import torch

from heedful.interop.conversion import STACKS, Conversion

_PARTS = {"q_proj": "query", "k_proj": "key", "v_proj": "value", "out_proj": "output"}
_ATTENTIONS = {
    "encoder": {"self_attn": "self_attention"},
    "decoder": {"self_attn": "self_attention", "encoder_attn": "cross_attention"},
}


def layer_modules(stack: str, i: int) -> Iterator[tuple[str, str]]:
    """Yield the names of the parts of one layer, theirs and ours; each has a weight and usually a bias."""
    layer = f"{stack}.layers.{i}"
    for block, attention in _ATTENTIONS[stack].items():
        for name, part in _PARTS.items():
            yield f"{layer}.{block}.{name}", f"{layer}.{attention}.{part}"
        yield f"{layer}.{block}_layer_norm", f"{layer}.{attention}_norm"
    yield f"{layer}.fc1", f"{layer}.feed_forward.inner"
    yield f"{layer}.fc2", f"{layer}.feed_forward.outer"
    yield f"{layer}.final_layer_norm", f"{layer}.feed_forward_norm"


def move_layers(conversion: Conversion, *, prefix: str = "") -> None:
    """Move the layers of both stacks, the norms after them and the norms of the embedded input."""
    for stack in STACKS:
        their_stack = f"{prefix}{stack}"
        for i in range(conversion.num_layers(f"{their_stack}.layers")):
            for theirs, ours in layer_modules(stack, i):
                conversion.move_parts(f"{prefix}{theirs}", ours)
        for theirs, ours in (("layer_norm", "final_norm"), ("layernorm_embedding", "embedding.norm")):
            if f"{their_stack}.{theirs}.weight" in conversion.left:
                conversion.move_parts(f"{their_stack}.{theirs}", f"{stack}.{ours}")


def move_tokens(conversion: Conversion, *, prefix: str = "", shared: str | None = None, output: str) -> None:
    """Move both embeddings and the output matrix, by default the decoder's embedding.

    Args:
        conversion: of the tensors.
        prefix: before "encoder." and "decoder.".
        shared: the name of a matrix that replaces missing embeddings; if it is missing too, any of the others
            does. None: both embeddings must exist.
        output: the name of the output matrix.
    """
    by_stack = {stack: f"{prefix}{stack}.embed_tokens.weight" for stack in STACKS}
    there = [name for name in (shared, *by_stack.values(), output) if name in conversion.left]
    common = conversion.look(there[0]) if shared and there else None
    matrix = None
    for stack, name in by_stack.items():
        matrix = conversion.take(name) if common is None or name in conversion.left else common
        conversion.put(f"{stack}.embedding.tokens.weight", matrix, origin=name)
    if output in conversion.left or matrix is None:
        matrix = conversion.take(output)
    conversion.put("output.weight", matrix, origin=output)
    if shared in conversion.left:
        conversion.take(shared)


def move_output_bias(conversion: Conversion, name: str) -> None:
    """Move a bias (1, V) of the logits, unless it is zero."""
    if name in conversion.left:
        bias = conversion.take(name)
        if torch.any(bias != 0):
            conversion.put("output.bias", bias.reshape(-1), origin=name)


def move_learned_positions(conversion: Conversion, *, prefix: str = "", unused: int) -> None:
    """Move both tables of learned positions without their unused first rows, truncated to the shorter."""
    names = {stack: f"{prefix}{stack}.embed_positions.weight" for stack in STACKS}
    end = min(len(conversion.look(name)) for name in names.values())
    for stack, name in names.items():
        table = conversion.take(name)[unused:end]
        conversion.put(f"{stack}.embedding.positions.weight", table, origin=name)
