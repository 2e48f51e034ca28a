"""jadore801120/attention-is-all-you-need-pytorch, as a blog shows it: the embedded input has a norm."""

from heedful.interop.conversion import SIDES, Conversion, Imported
from heedful.interop.position_tables import move_positions

EPS = 1e-6
_PARTS = {"w_qs": "query", "w_ks": "key", "w_vs": "value", "fc": "output"}
_ATTENTIONS = {
    "encoder": {"slf_attn": "self_attention"},
    "decoder": {"slf_attn": "self_attention", "enc_attn": "cross_attention"},
}
_EMBEDDINGS = {"encoder": "src_word_emb.weight", "decoder": "trg_word_emb.weight"}


def read(conversion: Conversion) -> Imported:
    """The models whose logits are not scaled: `emb`, or neither.

    Raises:
        InteropError: which of the two it is was not said.
    """
    if not isinstance(conversion.settings.get("scale_embeddings"), bool):
        raise conversion.error(
            "the weights do not say what is scaled; give --set model.scale_embeddings=true where the "
            "embeddings are ('emb'), =false where nothing is, or --layout jadore-prj where the logits are"
        )
    _move(conversion)
    return conversion.finish(layer_norm_eps=EPS)


def read_prj(conversion: Conversion) -> Imported:
    """The models whose logits are divided by sqrt(d_model), `prj`.

    The decoder's last norm takes that factor, so that the output matrix may stay tied to the embedding.
    """
    factor = _move(conversion) ** -0.5
    last = max(int(name.split(".")[2]) for name in conversion.moved if name.startswith("decoder.layers."))
    for name in conversion.moved:
        if name.startswith(f"decoder.layers.{last}.feed_forward_norm."):
            conversion.scale(name, factor)
    return conversion.finish(layer_norm_eps=EPS, scale_embeddings=False)


def _move(conversion: Conversion) -> int:
    """Move everything, and return d_model."""
    tables = {}
    for side in SIDES:
        stack = f"{side}.layer_stack"
        for i in range(conversion.num_layers(stack)):
            theirs, ours = f"{stack}.{i}", f"{side}.layers.{i}"
            for block, attention in _ATTENTIONS[side].items():
                for name, part in _PARTS.items():
                    conversion.move_parts(f"{theirs}.{block}.{name}", f"{ours}.{attention}.{part}")
                conversion.move_parts(f"{theirs}.{block}.layer_norm", f"{ours}.{attention}_norm")
            conversion.move_parts(f"{theirs}.pos_ffn.w_1", f"{ours}.feed_forward.inner")
            conversion.move_parts(f"{theirs}.pos_ffn.w_2", f"{ours}.feed_forward.outer")
            conversion.move_parts(f"{theirs}.pos_ffn.layer_norm", f"{ours}.feed_forward_norm")
        conversion.move_parts(f"{side}.layer_norm", f"{side}.embedding.norm")
        if f"{side}.position_enc.pos_table" in conversion.left:
            tables[side] = f"{side}.position_enc.pos_table"
    move_positions(conversion, tables, fixed=True)
    d_model = conversion.look(f"encoder.{_EMBEDDINGS['encoder']}").shape[-1]
    for side, name in _EMBEDDINGS.items():
        conversion.move(f"{side}.{name}", f"{side}.embedding.tokens.weight")
    conversion.move_parts("trg_word_prj", "output")
    return d_model
