"""jadore801120/attention-is-all-you-need-pytorch: the embedded input has a norm."""

from heedful.interop.conversion import STACKS, Conversion, Imported, move_positions

EPS = 1e-6
_PARTS = {"w_qs": "query", "w_ks": "key", "w_vs": "value", "fc": "output"}
_ATTENTIONS = {
    "encoder": {"slf_attn": "self_attention"},
    "decoder": {"slf_attn": "self_attention", "enc_attn": "cross_attention"},
}
_EMBEDDINGS = {"encoder": "src_word_emb.weight", "decoder": "trg_word_emb.weight"}


def read(conversion: Conversion) -> Imported:
    """Convert models with unscaled logits: `emb`, or neither.

    Raises:
        InteropError: `model.scale_embeddings` is not set.
    """
    if not isinstance(conversion.settings.get("scale_embeddings"), bool):
        raise conversion.error(
            "the weights do not say what is scaled; give --set model.scale_embeddings=true for the "
            "embeddings ('emb'), =false for nothing, or --layout jadore-prj for the logits"
        )
    _move(conversion)
    return conversion.finish(layer_norm_eps=EPS)


def read_prj(conversion: Conversion) -> Imported:
    """Convert models whose logits are divided by sqrt(d_model), `prj`.

    The decoder's last norm absorbs that factor, so the output matrix stays tied to the embedding.
    """
    factor = _move(conversion) ** -0.5
    last = max(int(name.split(".")[2]) for name in conversion.moved if name.startswith("decoder.layers."))
    for name in conversion.moved:
        if name.startswith(f"decoder.layers.{last}.feed_forward_norm."):
            conversion.scale(name, factor)
    return conversion.finish(layer_norm_eps=EPS, scale_embeddings=False)


def _move(conversion: Conversion) -> int:
    """Move all weights; return d_model."""
    tables = {}
    for stack in STACKS:
        their_stack = f"{stack}.layer_stack"
        for i in range(conversion.num_layers(their_stack)):
            theirs, ours = f"{their_stack}.{i}", f"{stack}.layers.{i}"
            for block, attention in _ATTENTIONS[stack].items():
                for name, part in _PARTS.items():
                    conversion.move_parts(f"{theirs}.{block}.{name}", f"{ours}.{attention}.{part}")
                conversion.move_parts(f"{theirs}.{block}.layer_norm", f"{ours}.{attention}_norm")
            conversion.move_parts(f"{theirs}.pos_ffn.w_1", f"{ours}.feed_forward.inner")
            conversion.move_parts(f"{theirs}.pos_ffn.w_2", f"{ours}.feed_forward.outer")
            conversion.move_parts(f"{theirs}.pos_ffn.layer_norm", f"{ours}.feed_forward_norm")
        conversion.move_parts(f"{stack}.layer_norm", f"{stack}.embedding.norm")
        if f"{stack}.position_enc.pos_table" in conversion.left:
            tables[stack] = f"{stack}.position_enc.pos_table"
    move_positions(conversion, tables, fixed=True)
    d_model = conversion.look(f"encoder.{_EMBEDDINGS['encoder']}").shape[-1]
    for stack, name in _EMBEDDINGS.items():
        conversion.move(f"{stack}.{name}", f"{stack}.embedding.tokens.weight")
    conversion.move_parts("trg_word_prj", "output")
    return d_model
