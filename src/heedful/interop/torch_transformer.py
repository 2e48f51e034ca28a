"""Models with `torch.nn.Transformer`, embeddings, positions, and a Linear for the logits.

Names below `encoder.` and `decoder.` are torch's, under any prefix (usually `transformer.`). The others may
be anything that `move_outer_modules` understands, for example those of torch's translation tutorial:
`src_tok_emb.embedding.weight`, `tgt_tok_emb.embedding.weight`, `positional_encoding.pos_embedding` (a buffer
of sinusoids) and `generator` (a Linear).
"""

import re

from torch import Tensor

from heedful.interop.conversion import STACKS, Conversion, Imported, move_positions

# The first set that names source or target decides: the input of a decoder is the target.
_STACK_WORDS = (
    {"encoder": {"src", "source", "enc", "encoder"}, "decoder": {"tgt", "trg", "target", "dec", "decoder"}},
    {"encoder": {"input", "inp", "in"}, "decoder": {"output", "out"}},
)
_OUTPUT_WORDS = {
    "generator", "fc", "linear", "proj", "projection", "head", "out", "output", "logits", "classifier",
}  # fmt: skip


def move_outer_modules(conversion: Conversion, *, fixed_positions: bool = False) -> None:
    """Move the tensors outside of the layers.

    A Linear has a bias, or a word like `generator`, `fc`, `out`, `proj`, `head` in its name and none like
    `emb`. Positions have `pos` or `pe` in their names. The others are token embeddings. A word like `src` or
    `encoder`, `tgt`, `trg` or `decoder` means source or target; a single tensor without one is used for both.

    Args:
        conversion: after all layers and norms were moved.
        fixed_positions: whether positions are computed, so that they may be absent; as `fixed` of
            `move_positions`.

    Raises:
        InteropError: something is missing or ambiguous.
    """
    left = conversion.left
    tables = {name: tensor for name, tensor in left.items() if _is_table(name)}
    matrices = {name: tensor for name, tensor in left.items() if name not in tables and tensor.ndim == 2}
    outputs = [name for name in matrices if _is_output(name, left)]
    if len(outputs) != 1:
        raise conversion.error(
            f"one Linear for the logits is expected, but there {_listed(outputs)}; call it 'generator'"
        )
    conversion.move_parts(outputs[0].removesuffix(".weight"), "output")
    embeddings = {name: tensor for name, tensor in matrices.items() if name not in outputs}
    by_stack = _by_stack(conversion, "token embedding", embeddings)
    if not by_stack:
        raise conversion.error("there is no token embedding")
    tokens = {name: conversion.take(name) for name in dict.fromkeys(by_stack.values())}
    for stack, name in by_stack.items():
        conversion.put(f"{stack}.embedding.tokens.weight", tokens[name], origin=name)
    if not (tables or fixed_positions):
        raise conversion.error("there is no table of positions, with 'pos' in its name")
    move_positions(conversion, _by_stack(conversion, "position table", tables), fixed=fixed_positions)


def _by_stack(conversion: Conversion, what: str, tensors: dict[str, Tensor]) -> dict[str, str]:
    """Return the name of each stack's tensor; an empty dict if there are none."""
    stacks_of = {name: _stacks(name) for name in tensors}
    if len(tensors) == 1 and not any(stacks_of.values()):
        return dict.fromkeys(STACKS, next(iter(tensors)))
    names: dict[str, str] = {}
    for name, stacks in stacks_of.items():
        if len(stacks) != 1 or stacks[0] in names:
            raise conversion.error(
                f"it is not clear whether the {what} {name!r} is the source's or the target's; "
                "put 'src' or 'tgt' into its name"
            )
        names[stacks[0]] = name
    for stack in STACKS:
        if names and stack not in names:
            raise conversion.error(f"the {stack} has no {what}")
    return names


def _stacks(name: str) -> list[str]:
    words = _words(name)
    for words_of in _STACK_WORDS:
        if stacks := [stack for stack in STACKS if words & words_of[stack]]:
            return stacks
    return []


def _is_table(name: str) -> bool:
    words = _words(name)
    return "pe" in words or any(word.startswith("pos") for word in words)


def _is_output(name: str, tensors: dict[str, Tensor]) -> bool:
    module, _, kind = name.rpartition(".")
    if kind != "weight":
        return False
    words = _words(module)
    named = bool(words & _OUTPUT_WORDS) and not any(word.startswith(("emb", "tok")) for word in words)
    return f"{module}.bias" in tensors or named


def _words(name: str) -> set[str]:
    return set(re.findall(r"[a-z]+", re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower()))


def _listed(names: list[str]) -> str:
    return f"are {', '.join(names)}" if names else "is none"


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
        for theirs, ours in conversion.layers(stack, f"{their_stack}.layers"):
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
