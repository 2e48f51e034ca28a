"""The Annotated Transformer: pre-norm, norms with the unbiased deviation, sinusoids as a buffer."""

from heedful.interop.conversion import (
    STACKS,
    Conversion,
    Imported,
    eps_inside_the_root,
    gain_of_unbiased_norm,
    move_positions,
)

EPS = 1e-6  # added to the deviation
_PARTS = ("query", "key", "value", "output")  # in the order of `linears`
_ATTENTIONS = {
    "encoder": {"self_attn": "self_attention"},
    "decoder": {"self_attn": "self_attention", "src_attn": "cross_attention"},
}
_EMBEDDINGS = {"encoder": "src_embed", "decoder": "tgt_embed"}


def read(conversion: Conversion) -> Imported:
    """Convert the weights: rename them, and replace norms with the unbiased deviation by ordinary ones."""
    tables = {}
    for stack in STACKS:
        for i in range(conversion.num_layers(f"{stack}.layers")):
            layer = f"{stack}.layers.{i}"
            for block, attention in _ATTENTIONS[stack].items():
                for number, part in enumerate(_PARTS):
                    conversion.move_parts(f"{layer}.{block}.linears.{number}", f"{layer}.{attention}.{part}")
            conversion.move_parts(f"{layer}.feed_forward.w_1", f"{layer}.feed_forward.inner")
            conversion.move_parts(f"{layer}.feed_forward.w_2", f"{layer}.feed_forward.outer")
            for number, sublayer in enumerate([*_ATTENTIONS[stack].values(), "feed_forward"]):
                _move_norm(conversion, f"{layer}.sublayer.{number}.norm", f"{layer}.{sublayer}_norm")
        _move_norm(conversion, f"{stack}.norm", f"{stack}.final_norm")
        embedding = _EMBEDDINGS[stack]
        conversion.move(f"{embedding}.0.lut.weight", f"{stack}.embedding.tokens.weight")
        if f"{embedding}.1.pe" in conversion.left:
            tables[stack] = f"{embedding}.1.pe"
    move_positions(conversion, tables, fixed=True)
    conversion.move_parts("generator.proj", "output")
    return conversion.finish(norm="pre", layer_norm_eps=eps_inside_the_root(EPS))


def _move_norm(conversion: Conversion, theirs: str, ours: str) -> None:
    gain = conversion.take(f"{theirs}.a_2")
    conversion.put(f"{ours}.weight", gain_of_unbiased_norm(gain, gain.numel()), origin=f"{theirs}.a_2")
    conversion.move(f"{theirs}.b_2", f"{ours}.bias")
