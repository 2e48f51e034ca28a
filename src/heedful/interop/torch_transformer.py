"""Models with `torch.nn.Transformer`, embeddings, positions, and a Linear for the logits.

Names below `encoder.` and `decoder.` are torch's, under any prefix (usually `transformer.`). The others may
be anything that `outer_modules.py` understands, for example those of torch's translation tutorial:
`src_tok_emb.embedding.weight`, `tgt_tok_emb.embedding.weight`, `positional_encoding.pos_embedding` (a buffer
of sinusoids) and `generator` (a Linear).
"""

import re

from heedful.interop.conversion import STACKS, Conversion, Imported
from heedful.interop.outer_modules import move_outer_modules

_PARTS = ("query", "key", "value")  # in the order of in_proj
_ATTENTIONS = {
    "encoder": {"self_attn": "self_attention"},
    "decoder": {"self_attn": "self_attention", "multihead_attn": "cross_attention"},
}


def read(conversion: Conversion) -> Imported:
    """Convert the weights: split the three input projections, and keep the norms after the stacks.

    `norm_first` cannot be inferred: it is post-norm, torch's default, unless `model.norm=pre` is set.
    """
    prefix = _find_prefix(conversion)
    for stack in STACKS:
        their_stack = f"{prefix}{stack}"
        for i in range(conversion.num_layers(f"{their_stack}.layers")):
            theirs, ours = f"{their_stack}.layers.{i}", f"{stack}.layers.{i}"
            for block, attention in _ATTENTIONS[stack].items():
                _move_attention(conversion, f"{theirs}.{block}", f"{ours}.{attention}")
            conversion.move_parts(f"{theirs}.linear1", f"{ours}.feed_forward.inner")
            conversion.move_parts(f"{theirs}.linear2", f"{ours}.feed_forward.outer")
            for number, sublayer in enumerate([*_ATTENTIONS[stack].values(), "feed_forward"], start=1):
                conversion.move_parts(f"{theirs}.norm{number}", f"{ours}.{sublayer}_norm")
        if f"{their_stack}.norm.weight" in conversion.left:
            conversion.move_parts(f"{their_stack}.norm", f"{stack}.final_norm")
    move_outer_modules(conversion, fixed_positions=True)
    return conversion.finish()


def _find_prefix(conversion: Conversion) -> str:
    pattern = re.compile(r"^((?:.*\.)?)encoder\.layers\.\d+\.self_attn\.in_proj_weight$")
    for name in conversion.left:
        if match := pattern.match(name):
            return match[1]
    raise conversion.error("the weight 'transformer.encoder.layers.0.self_attn.in_proj_weight' is missing")


def _move_attention(conversion: Conversion, theirs: str, ours: str) -> None:
    for kind in ("weight", "bias"):
        name = f"{theirs}.in_proj_{kind}"
        if kind == "bias" and name not in conversion.left:
            continue
        for part, tensor in zip(_PARTS, conversion.take_parts(name, len(_PARTS)), strict=True):
            conversion.put(f"{ours}.{part}.{kind}", tensor, origin=name)
    conversion.move_parts(f"{theirs}.out_proj", f"{ours}.output")
