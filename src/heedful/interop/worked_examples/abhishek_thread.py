"""The "from scratch in PyTorch" thread: a separate small attention module for each head.

Inside a layer the names are the thread's; the stacks may have any name below `encoder.` and `decoder.`, and
what surrounds them is found by `outer_modules.py`.
"""

import re

from heedful.interop.algebra import stacked
from heedful.interop.conversion import SIDES, Conversion, Imported
from heedful.interop.outer_modules import move_outer_modules

_LAYER = r"^((?:.*\.)?{side}(?:\.[^.]+)*?)\.\d+\.(?:masked_attn|attn|ffn)(?:_norm)?\."
_ATTENTIONS = {
    "encoder": {"attn": "self_attention"},
    "decoder": {"masked_attn": "self_attention", "attn": "cross_attention"},
}
_OUTER = {"encoder": "2", "decoder": "3"}  # a dropout stands before it in the decoder


def read(conversion: Conversion) -> Imported:
    """Stack the heads; everything else is a matter of names."""
    num_heads = 0
    for side in SIDES:
        stack = _find_stack(conversion, side)
        for i in range(conversion.num_layers(stack)):
            theirs, ours = f"{stack}.{i}", f"{side}.layers.{i}"
            for name, attention in _ATTENTIONS[side].items():
                num_heads = _move_heads(conversion, f"{theirs}.{name}", f"{ours}.{attention}")
                conversion.move_parts(f"{theirs}.{name}_norm", f"{ours}.{attention}_norm")
            conversion.move_parts(f"{theirs}.ffn.0", f"{ours}.feed_forward.inner")
            conversion.move_parts(f"{theirs}.ffn.{_OUTER[side]}", f"{ours}.feed_forward.outer")
            conversion.move_parts(f"{theirs}.ffn_norm", f"{ours}.feed_forward_norm")
    move_outer_modules(conversion)
    return conversion.finish(scale_embeddings=False, num_heads=num_heads)


def _find_stack(conversion: Conversion, side: str) -> str:
    pattern = re.compile(_LAYER.format(side=side))
    stacks = list(dict.fromkeys(found[1] for name in conversion.left if (found := pattern.match(name))))
    if len(stacks) != 1:
        found_instead = f"there are {len(stacks)}: {', '.join(stacks)}" if stacks else "there is none"
        raise conversion.error(f"one list of layers is expected below '{side}.', but {found_instead}")
    return stacks[0]


def _move_heads(conversion: Conversion, theirs: str, ours: str) -> int:
    """Make one matrix of the heads' matrices, and return how many heads there are."""
    num_heads = conversion.num_layers(f"{theirs}.attentions")
    for part in ("query", "key", "value"):
        names = [f"{theirs}.attentions.{head}.{part}" for head in range(num_heads)]
        for kind in ("weight", "bias"):
            if kind == "bias" and f"{names[0]}.bias" not in conversion.left:
                continue
            tensors = [conversion.take(f"{name}.{kind}") for name in names]
            if any(tensor.shape != tensors[0].shape for tensor in tensors):
                raise conversion.error(f"the heads of '{theirs}' have {part}s of different shapes")
            conversion.put(f"{ours}.{part}.{kind}", stacked(tensors), origin=f"{names[0]}.{kind}")
    conversion.move_parts(f"{theirs}.output", f"{ours}.output")
    return num_heads
