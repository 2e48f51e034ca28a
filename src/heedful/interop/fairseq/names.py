"""The names that fairseq gave the parts of a Transformer; transformers' Marian, M2M100 and BART kept them.

encoder.layers.0.self_attn.{q,k,v,out}_proj, encoder.layers.0.self_attn_layer_norm, fc1, fc2,
final_layer_norm (of the feed-forward layer), in the decoder also encoder_attn, encoder_attn_layer_norm;
around the layers embed_tokens, embed_positions, layernorm_embedding, layer_norm (after the stack)
"""

from collections.abc import Iterator

import torch

from heedful.interop.conversion import SIDES, Conversion

_PARTS = {"q_proj": "query", "k_proj": "key", "v_proj": "value", "out_proj": "output"}
_ATTENTIONS = {
    "encoder": {"self_attn": "self_attention"},
    "decoder": {"self_attn": "self_attention", "encoder_attn": "cross_attention"},
}


def layer_modules(side: str, i: int) -> Iterator[tuple[str, str]]:
    """Give the names of the parts of one layer, theirs and ours; each has a weight and mostly a bias."""
    layer = f"{side}.layers.{i}"
    for block, attention in _ATTENTIONS[side].items():
        for name, part in _PARTS.items():
            yield f"{layer}.{block}.{name}", f"{layer}.{attention}.{part}"
        yield f"{layer}.{block}_layer_norm", f"{layer}.{attention}_norm"
    yield f"{layer}.fc1", f"{layer}.feed_forward.inner"
    yield f"{layer}.fc2", f"{layer}.feed_forward.outer"
    yield f"{layer}.final_layer_norm", f"{layer}.feed_forward_norm"


def move_layers(conversion: Conversion, *, prefix: str = "") -> None:
    """Move the layers of both stacks, the norms after them and the norms of the embedded input."""
    for side in SIDES:
        stack = f"{prefix}{side}"
        for i in range(conversion.num_layers(f"{stack}.layers")):
            for theirs, ours in layer_modules(side, i):
                conversion.move_parts(f"{prefix}{theirs}", ours)
        for theirs, ours in (("layer_norm", "final_norm"), ("layernorm_embedding", "embedding.norm")):
            if f"{stack}.{theirs}.weight" in conversion.left:
                conversion.move_parts(f"{stack}.{theirs}", f"{side}.{ours}")


def move_tokens(conversion: Conversion, *, prefix: str = "", shared: str | None = None, output: str) -> None:
    """Move both embeddings and the output matrix, which is the decoder's embedding where it is absent.

    Args:
        conversion: where they are taken from.
        prefix: before "encoder." and "decoder.".
        shared: the matrix that an absent embedding is; where it is absent itself, any of the others. None:
            both embeddings must be there.
        output: the matrix that gives the logits.
    """
    of_side = {side: f"{prefix}{side}.embed_tokens.weight" for side in SIDES}
    there = [name for name in (shared, *of_side.values(), output) if name in conversion.left]
    common = conversion.look(there[0]) if shared and there else None
    found = None
    for side, name in of_side.items():
        found = conversion.take(name) if common is None or name in conversion.left else common
        conversion.put(f"{side}.embedding.tokens.weight", found, origin=name)
    if output in conversion.left or found is None:
        found = conversion.take(output)
    conversion.put("output.weight", found, origin=output)
    if shared in conversion.left:
        conversion.take(shared)


def move_output_bias(conversion: Conversion, name: str) -> None:
    """Move a bias (1, V) of the logits; one of zeros is none."""
    if name in conversion.left:
        bias = conversion.take(name)
        if torch.any(bias != 0):
            conversion.put("output.bias", bias.reshape(-1), origin=name)


def move_learned_positions(conversion: Conversion, *, prefix: str = "", unused: int) -> None:
    """Move both tables of learned positions without their first rows, which no position ever reads.

    Where they end at different lengths, both end at the shorter.
    """
    names = {side: f"{prefix}{side}.embed_positions.weight" for side in SIDES}
    end = min(len(conversion.look(name)) for name in names.values())
    for side, name in names.items():
        table = conversion.take(name)[unused:end]
        conversion.put(f"{side}.embedding.positions.weight", table, origin=name)
