"""The "from scratch in PyTorch" thread: a separate small attention module for each head.

Inside a layer the names are the thread's; the stacks may have any name below `encoder.` and `decoder.`, and
`outer_modules.py` finds the other modules.
"""

import re

from heedful.interop.conversion import STACKS, Conversion, Imported, stacked
from heedful.interop.torch_transformer import move_outer_modules

_LAYER = r"^((?:.*\.)?{stack}(?:\.[^.]+)*?)\.\d+\.(?:masked_attn|attn|ffn)(?:_norm)?\."
_ATTENTIONS = {
    "encoder": {"attn": "self_attention"},
    "decoder": {"masked_attn": "self_attention", "attn": "cross_attention"},
}
_OUTER = {"encoder": "2", "decoder": "3"}  # after a dropout in the decoder


def read(conversion: Conversion) -> Imported:
    """Convert the weights: concatenate the heads, and rename everything else."""
    num_heads = 0
    for stack in STACKS:
        their_stack = _find_stack(conversion, stack)
        for i in range(conversion.num_layers(their_stack)):
            theirs, ours = f"{their_stack}.{i}", f"{stack}.layers.{i}"
            for name, attention in _ATTENTIONS[stack].items():
                num_heads = _move_heads(conversion, f"{theirs}.{name}", f"{ours}.{attention}")
                conversion.move_parts(f"{theirs}.{name}_norm", f"{ours}.{attention}_norm")
            conversion.move_parts(f"{theirs}.ffn.0", f"{ours}.feed_forward.inner")
            conversion.move_parts(f"{theirs}.ffn.{_OUTER[stack]}", f"{ours}.feed_forward.outer")
            conversion.move_parts(f"{theirs}.ffn_norm", f"{ours}.feed_forward_norm")
    move_outer_modules(conversion)
    return conversion.finish(scale_embeddings=False, num_heads=num_heads)


def _find_stack(conversion: Conversion, stack: str) -> str:
    pattern = re.compile(_LAYER.format(stack=stack))
    stacks = list(dict.fromkeys(match[1] for name in conversion.left if (match := pattern.match(name))))
    if len(stacks) != 1:
        actual = f"there are {len(stacks)}: {', '.join(stacks)}" if stacks else "there is none"
        raise conversion.error(f"one list of layers is expected below '{stack}.', but {actual}")
    return stacks[0]


def _move_heads(conversion: Conversion, theirs: str, ours: str) -> int:
    """Concatenate the matrices of the heads; return the number of heads."""
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
