"""Embeddings, positions and output of a model, found by words in the names that its author chose.

torch's translation tutorial, for example, has `src_tok_emb.embedding.weight`, `tgt_tok_emb.embedding.weight`,
`positional_encoding.pos_embedding` (a buffer of sinusoids) and `generator` (a Linear).
"""

import re
from collections.abc import Collection, Sequence

from heedful.interop.conversion import STACKS, Conversion, Positions, move_positions

# The first set that names source or target decides: the input of a decoder is the target.
_STACK_WORDS = (
    {"encoder": {"src", "source", "enc", "encoder"}, "decoder": {"tgt", "trg", "target", "dec", "decoder"}},
    {"encoder": {"input", "inp", "in"}, "decoder": {"output", "out"}},
)
_OUTPUT_WORDS = {
    "generator", "fc", "linear", "proj", "projection", "head", "out", "output", "logits", "classifier",
}  # fmt: skip


def move_outer_modules(conversion: Conversion, positions: Positions) -> None:
    """Convert embeddings, positions and output: the tensors outside of the layers.

    A Linear has a bias, or a word like `generator`, `fc`, `out`, `proj`, `head` in its name and none like
    `emb`. Positions have `pos` or `pe` in their names. The others are token embeddings. A word like `src` or
    `encoder`, `tgt`, `trg` or `decoder` means source or target; a single tensor without one is used for both.

    Args:
        conversion: after all layers and norms were moved.
        positions: how tables are read.

    Raises:
        InteropError: something is missing or ambiguous.
    """
    left = dict(conversion.left)
    tables = [name for name in left if any(word == "pe" or word.startswith("pos") for word in _words(name))]
    matrices = [name for name, tensor in left.items() if name not in tables and tensor.ndim == 2]
    outputs = [name for name in matrices if _is_output(name, left)]
    there = f"are {', '.join(outputs)}" if outputs else "is none"
    problem = f"one Linear for the logits is expected, but there {there}; call it 'generator'"
    conversion.require(len(outputs) == 1, problem)
    for kind in ("weight", "bias"):
        name = f"{outputs[0].removesuffix('.weight')}.{kind}"
        if name in left:
            conversion.put(f"output.{kind}", conversion.take(name), origin=name)
    by_stack = _by_stack(conversion, "token embedding", [name for name in matrices if name not in outputs])
    conversion.require(bool(by_stack), "there is no token embedding")
    tokens = {name: conversion.take(name) for name in dict.fromkeys(by_stack.values())}
    for stack, name in by_stack.items():
        conversion.put(f"{stack}.embedding.tokens.weight", tokens[name], origin=name)
    has_positions = bool(tables) or positions.fixed
    conversion.require(has_positions, "there is no table of positions, with 'pos' in its name")
    by_stack = _by_stack(conversion, "position table", tables)
    move_positions(conversion, by_stack, positions)


def _by_stack(conversion: Conversion, what: str, tensors: Sequence[str]) -> dict[str, str]:
    """Return the name of each stack's tensor; an empty dict if there are none."""
    stacks_of = {name: _stacks(name) for name in tensors}
    if len(tensors) == 1 and not any(stacks_of.values()):
        return dict.fromkeys(STACKS, tensors[0])
    names: dict[str, str] = {}
    for name, stacks in stacks_of.items():
        problem = f"the {what} {name!r} may be the source's or the target's; put 'src' or 'tgt' into its name"
        conversion.require(len(stacks) == 1 and stacks[0] not in names, problem)
        names[stacks[0]] = name
    for stack in STACKS:
        conversion.require(not names or stack in names, f"the {stack} has no {what}")
    return names


def _stacks(name: str) -> list[str]:
    for words_of in _STACK_WORDS:
        if stacks := [stack for stack in STACKS if _words(name) & words_of[stack]]:
            return stacks
    return []


def _is_output(name: str, tensors: Collection[str]) -> bool:
    module, _, kind = name.rpartition(".")
    words = _words(module)
    named = words & _OUTPUT_WORDS and not any(word.startswith(("emb", "tok")) for word in words)
    return kind == "weight" and bool(named or f"{module}.bias" in tensors)


def _words(name: str) -> set[str]:
    return set(re.findall(r"[a-z]+", re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower()))
