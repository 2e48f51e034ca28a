"""IIT Delhi's lecture "Introduction to LLMs", 17: `SelfAttention`, `TransformerBlock`, `DecoderBlock`."""

from collections.abc import Callable

from heedful.interop.conversion import STACKS, Conversion, Imported, move_positions

PARTS = {"queries": "query", "keys": "key", "values": "value", "fc_out": "output"}

MoveAttention = Callable[[Conversion, str, str], None]


def read(conversion: Conversion) -> Imported:
    """Rename the weights."""
    move_blocks(conversion, _move_attention)
    return conversion.finish(scale_embeddings=False)


def move_blocks(conversion: Conversion, move_attention: MoveAttention) -> None:
    """Move all weights, those of attention by `move_attention` (theirs, ours)."""
    for i in range(conversion.num_layers("encoder.layers")):
        layer = f"encoder.layers.{i}"
        _move_block(conversion, layer, layer, "self_attention", move_attention)
    for i in range(conversion.num_layers("decoder.layers")):
        layer = f"decoder.layers.{i}"
        move_attention(conversion, f"{layer}.attention", f"{layer}.self_attention")
        conversion.move_parts(f"{layer}.norm", f"{layer}.self_attention_norm")
        _move_block(conversion, f"{layer}.transformer_block", layer, "cross_attention", move_attention)
    for stack in STACKS:
        conversion.move(f"{stack}.word_embedding.weight", f"{stack}.embedding.tokens.weight")
    move_positions(conversion, {stack: f"{stack}.position_embedding.weight" for stack in STACKS})
    conversion.move_parts("decoder.fc_out", "output")


def _move_block(
    conversion: Conversion, theirs: str, ours: str, attention: str, move_attention: MoveAttention
) -> None:
    move_attention(conversion, f"{theirs}.attention", f"{ours}.{attention}")
    conversion.move_parts(f"{theirs}.norm1", f"{ours}.{attention}_norm")
    conversion.move_parts(f"{theirs}.feed_forward.0", f"{ours}.feed_forward.inner")
    conversion.move_parts(f"{theirs}.feed_forward.2", f"{ours}.feed_forward.outer")
    conversion.move_parts(f"{theirs}.norm2", f"{ours}.feed_forward_norm")


def _move_attention(conversion: Conversion, theirs: str, ours: str) -> None:
    for name, part in PARTS.items():
        conversion.move_parts(f"{theirs}.{name}", f"{ours}.{part}")
