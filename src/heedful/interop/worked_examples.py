"""Models of published worked examples: blog posts, a lecture, a notebook and a repository, each by its names.

A reader moves the weights of one of them; the names on the left are theirs, those on the right this
package's.
"""

import re
from collections.abc import Callable, Mapping

from heedful.interop.conversion import (
    STACKS,
    Conversion,
    Imported,
    eps_inside_the_root,
    gain_of_unbiased_norm,
    move_positions,
    one_number_for_all,
    shared_by_heads,
    stacked,
)
from heedful.interop.torch_transformer import move_outer_modules

Names = Mapping[str, str]


def _move_attention(conversion: Conversion, theirs: str, ours: str, parts: Names) -> None:
    for name, part in parts.items():
        conversion.move_parts(f"{theirs}.{name}", f"{ours}.{part}")


def _move_unbiased_norm(
    conversion: Conversion, theirs: str, ours: str, *, names: tuple[str, str], d_model: int | None = None
) -> None:
    """Replace a norm with the unbiased deviation by an ordinary one.

    Args:
        conversion: of the tensors.
        theirs: the norm's name.
        ours: the ordinary one's.
        names: of its gain and bias.
        d_model: if both may be one number for all dimensions.
    """
    gain, bias = (conversion.take(f"{theirs}.{name}") for name in names)
    size = gain.numel() if d_model is None else d_model
    conversion.put(f"{ours}.weight", gain_of_unbiased_norm(gain, size), origin=f"{theirs}.{names[0]}")
    conversion.put(f"{ours}.bias", one_number_for_all(bias, size), origin=f"{theirs}.{names[1]}")


# --- The Annotated Transformer: pre-norm, norms with the unbiased deviation, sinusoids as a buffer ---------

_ANNOTATED_EPS = 1e-6  # added to the deviation
_ANNOTATED_PARTS = {f"linears.{i}": part for i, part in enumerate(("query", "key", "value", "output"))}
_ANNOTATED_ATTENTIONS = {
    "encoder": {"self_attn": "self_attention"},
    "decoder": {"self_attn": "self_attention", "src_attn": "cross_attention"},
}
_ANNOTATED_EMBEDDINGS = {"encoder": "src_embed", "decoder": "tgt_embed"}


def read_annotated(conversion: Conversion) -> Imported:
    """Convert the weights: rename them, and replace norms with the unbiased deviation by ordinary ones."""
    tables = {}
    norm = "a_2", "b_2"
    for stack in STACKS:
        for theirs, ours in conversion.layers(stack, f"{stack}.layers"):
            attentions = _ANNOTATED_ATTENTIONS[stack]
            for block, attention in attentions.items():
                _move_attention(conversion, f"{theirs}.{block}", f"{ours}.{attention}", _ANNOTATED_PARTS)
            conversion.move_parts(f"{theirs}.feed_forward.w_1", f"{ours}.feed_forward.inner")
            conversion.move_parts(f"{theirs}.feed_forward.w_2", f"{ours}.feed_forward.outer")
            for number, sublayer in enumerate([*attentions.values(), "feed_forward"]):
                of_sublayer = f"{theirs}.sublayer.{number}.norm"
                _move_unbiased_norm(conversion, of_sublayer, f"{ours}.{sublayer}_norm", names=norm)
        _move_unbiased_norm(conversion, f"{stack}.norm", f"{stack}.final_norm", names=norm)
        embedding = _ANNOTATED_EMBEDDINGS[stack]
        conversion.move(f"{embedding}.0.lut.weight", f"{stack}.embedding.tokens.weight")
        if f"{embedding}.1.pe" in conversion.left:
            tables[stack] = f"{embedding}.1.pe"
    move_positions(conversion, tables, fixed=True)
    conversion.move_parts("generator.proj", "output")
    return conversion.finish(norm="pre", layer_norm_eps=eps_inside_the_root(_ANNOTATED_EPS))


# --- A Developer Diary, "Coding Transformer Model from Scratch, part 1": pre-norm, norms with two scalars --

_DIARY_EPS = 1e-8  # added to the deviation
_DIARY_PARTS = {"Wq": "query", "Wk": "key", "Wv": "value", "Wo": "output"}
_DIARY_EMBEDDINGS = {"encoder": "input", "decoder": "output"}
# The blocks of a layer, in the order of their skip connections.
_DIARY_ATTENTIONS = {
    "encoder": {"attention_block": "self_attention"},
    "decoder": {"attention_block": "self_attention", "cross_attention_block": "cross_attention"},
}


def read_adeveloperdiary(conversion: Conversion) -> Imported:
    """Convert the weights: rename them, and replace norms with the unbiased deviation by ordinary ones."""
    d_model = conversion.look("input_embed_block.embedding.weight").shape[-1]

    def move_norm(theirs: str, ours: str) -> None:
        _move_unbiased_norm(conversion, theirs, ours, names=("alpha", "beta"), d_model=d_model)

    for stack in STACKS:
        for theirs, ours in conversion.layers(stack, f"{stack}_seq_block.{stack}_blocks"):
            attentions = _DIARY_ATTENTIONS[stack]
            for block, attention in attentions.items():
                _move_attention(conversion, f"{theirs}.{block}", f"{ours}.{attention}", _DIARY_PARTS)
            conversion.move_parts(f"{theirs}.ff_block.linear1", f"{ours}.feed_forward.inner")
            conversion.move_parts(f"{theirs}.ff_block.linear2", f"{ours}.feed_forward.outer")
            for number, sublayer in enumerate([*attentions.values(), "feed_forward"]):
                move_norm(f"{theirs}.skip_connections.{number}.layer_norm_block", f"{ours}.{sublayer}_norm")
        move_norm(f"{stack}_seq_block.norm", f"{stack}.final_norm")
        embedding = f"{_DIARY_EMBEDDINGS[stack]}_embed_block.embedding.weight"
        conversion.move(embedding, f"{stack}.embedding.tokens.weight")
    tables = {stack: f"{name}_pos_block.positional_encoding" for stack, name in _DIARY_EMBEDDINGS.items()}
    there = {stack: table for stack, table in tables.items() if table in conversion.left}
    move_positions(conversion, there, fixed=True)
    conversion.move_parts("linear_softmax_block.linear", "output")
    return conversion.finish(norm="pre", layer_norm_eps=eps_inside_the_root(_DIARY_EPS))


# --- jadore801120/attention-is-all-you-need-pytorch: the embedded input has a norm -------------------------

_JADORE_EPS = 1e-6
_JADORE_PARTS = {"w_qs": "query", "w_ks": "key", "w_vs": "value", "fc": "output"}
_JADORE_ATTENTIONS = {
    "encoder": {"slf_attn": "self_attention"},
    "decoder": {"slf_attn": "self_attention", "enc_attn": "cross_attention"},
}
_JADORE_EMBEDDINGS = {"encoder": "src_word_emb.weight", "decoder": "trg_word_emb.weight"}


def read_jadore(conversion: Conversion) -> Imported:
    """Convert models with unscaled logits: `emb`, or neither.

    Raises:
        InteropError: `model.scale_embeddings` is not set.
    """
    if not isinstance(conversion.settings.get("scale_embeddings"), bool):
        raise conversion.error(
            "the weights do not say what is scaled; give --set model.scale_embeddings=true for the "
            "embeddings ('emb'), =false for nothing, or --layout jadore-prj for the logits"
        )
    _move_jadore(conversion)
    return conversion.finish(layer_norm_eps=_JADORE_EPS)


def read_jadore_prj(conversion: Conversion) -> Imported:
    """Convert models whose logits are divided by sqrt(d_model), `prj`.

    The decoder's last norm absorbs that factor, so the output matrix stays tied to the embedding.
    """
    factor = _move_jadore(conversion) ** -0.5
    last = max(int(name.split(".")[2]) for name in conversion.moved if name.startswith("decoder.layers."))
    for name in conversion.moved:
        if name.startswith(f"decoder.layers.{last}.feed_forward_norm."):
            conversion.scale(name, factor)
    return conversion.finish(layer_norm_eps=_JADORE_EPS, scale_embeddings=False)


def _move_jadore(conversion: Conversion) -> int:
    """Move all weights; return d_model."""
    tables = {}
    for stack in STACKS:
        for theirs, ours in conversion.layers(stack, f"{stack}.layer_stack"):
            for block, attention in _JADORE_ATTENTIONS[stack].items():
                _move_attention(conversion, f"{theirs}.{block}", f"{ours}.{attention}", _JADORE_PARTS)
                conversion.move_parts(f"{theirs}.{block}.layer_norm", f"{ours}.{attention}_norm")
            conversion.move_parts(f"{theirs}.pos_ffn.w_1", f"{ours}.feed_forward.inner")
            conversion.move_parts(f"{theirs}.pos_ffn.w_2", f"{ours}.feed_forward.outer")
            conversion.move_parts(f"{theirs}.pos_ffn.layer_norm", f"{ours}.feed_forward_norm")
        conversion.move_parts(f"{stack}.layer_norm", f"{stack}.embedding.norm")
        if f"{stack}.position_enc.pos_table" in conversion.left:
            tables[stack] = f"{stack}.position_enc.pos_table"
    move_positions(conversion, tables, fixed=True)
    d_model = conversion.look(f"encoder.{_JADORE_EMBEDDINGS['encoder']}").shape[-1]
    for stack, name in _JADORE_EMBEDDINGS.items():
        conversion.move(f"{stack}.{name}", f"{stack}.embedding.tokens.weight")
    conversion.move_parts("trg_word_prj", "output")
    return d_model


# --- IIT Delhi's lecture "Introduction to LLMs", 17: `SelfAttention`, `TransformerBlock`, `DecoderBlock` ---

_LECTURE_PARTS = {"queries": "query", "keys": "key", "values": "value", "fc_out": "output"}

MoveAttention = Callable[[str, str], None]


def read_nptel_lecture(conversion: Conversion) -> Imported:
    """Rename the weights."""
    _move_lecture(conversion, lambda theirs, ours: _move_attention(conversion, theirs, ours, _LECTURE_PARTS))
    return conversion.finish(scale_embeddings=False)


def read_kaggle_notebook(conversion: Conversion) -> Imported:
    """Convert the Kaggle notebook "Attention is all you need: implementation", like the lecture.

    Attention differs: its heads share one small matrix, which is repeated for all of them. Its scores are
    divided by sqrt(d_model) instead of sqrt(d_k), so the queries are scaled.
    """
    d_model = conversion.look("encoder.word_embedding.weight").shape[-1]
    d_k = conversion.look("encoder.layers.0.attention.queries.weight").shape[0]
    if d_model % d_k:
        raise conversion.error(f"heads of size {d_k} do not divide the size {d_model} of the embeddings")
    num_heads = d_model // d_k
    # Softmax(q k / sqrt(d_model)) is softmax(q' k / sqrt(d_k)) with q' = q sqrt(d_k / d_model).
    factors = {"queries": num_heads**-0.5, "keys": 1.0, "values": 1.0}

    def move_attention(theirs: str, ours: str) -> None:
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
            conversion.put(f"{ours}.{_LECTURE_PARTS[name]}.weight", spread, origin=f"{theirs}.{name}.weight")
        conversion.move_parts(f"{theirs}.fc_out", f"{ours}.output")

    _move_lecture(conversion, move_attention)
    return conversion.finish(scale_embeddings=False, num_heads=num_heads)


def _move_lecture(conversion: Conversion, move_attention: MoveAttention) -> None:
    """Move all weights, those of attention by `move_attention` (theirs, ours)."""

    def move_block(theirs: str, ours: str, attention: str) -> None:
        move_attention(f"{theirs}.attention", f"{ours}.{attention}")
        conversion.move_parts(f"{theirs}.norm1", f"{ours}.{attention}_norm")
        conversion.move_parts(f"{theirs}.feed_forward.0", f"{ours}.feed_forward.inner")
        conversion.move_parts(f"{theirs}.feed_forward.2", f"{ours}.feed_forward.outer")
        conversion.move_parts(f"{theirs}.norm2", f"{ours}.feed_forward_norm")

    for theirs, ours in conversion.layers("encoder", "encoder.layers"):
        move_block(theirs, ours, "self_attention")
    for theirs, ours in conversion.layers("decoder", "decoder.layers"):
        move_attention(f"{theirs}.attention", f"{ours}.self_attention")
        conversion.move_parts(f"{theirs}.norm", f"{ours}.self_attention_norm")
        move_block(f"{theirs}.transformer_block", ours, "cross_attention")
    for stack in STACKS:
        conversion.move(f"{stack}.word_embedding.weight", f"{stack}.embedding.tokens.weight")
    move_positions(conversion, {stack: f"{stack}.position_embedding.weight" for stack in STACKS})
    conversion.move_parts("decoder.fc_out", "output")


# --- The "from scratch in PyTorch" thread: a separate small attention module for each head -----------------
# Inside a layer the names are the thread's; the stacks may have any name below `encoder.` and `decoder.`, and
# `move_outer_modules` finds the other modules.

_THREAD_LAYER = r"^((?:.*\.)?{stack}(?:\.[^.]+)*?)\.\d+\.(?:masked_attn|attn|ffn)(?:_norm)?\."
_THREAD_ATTENTIONS = {
    "encoder": {"attn": "self_attention"},
    "decoder": {"masked_attn": "self_attention", "attn": "cross_attention"},
}
_THREAD_OUTER = {"encoder": "2", "decoder": "3"}  # after a dropout in the decoder


def read_abhishek_thread(conversion: Conversion) -> Imported:
    """Convert the weights: concatenate the heads, and rename everything else."""
    num_heads = 0
    for stack in STACKS:
        for theirs, ours in conversion.layers(stack, _find_stack(conversion, stack)):
            for name, attention in _THREAD_ATTENTIONS[stack].items():
                num_heads = _move_heads(conversion, f"{theirs}.{name}", f"{ours}.{attention}")
                conversion.move_parts(f"{theirs}.{name}_norm", f"{ours}.{attention}_norm")
            conversion.move_parts(f"{theirs}.ffn.0", f"{ours}.feed_forward.inner")
            conversion.move_parts(f"{theirs}.ffn.{_THREAD_OUTER[stack]}", f"{ours}.feed_forward.outer")
            conversion.move_parts(f"{theirs}.ffn_norm", f"{ours}.feed_forward_norm")
    move_outer_modules(conversion)
    return conversion.finish(scale_embeddings=False, num_heads=num_heads)


def _find_stack(conversion: Conversion, stack: str) -> str:
    pattern = re.compile(_THREAD_LAYER.format(stack=stack))
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
