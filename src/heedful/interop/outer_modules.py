"""Find embeddings, positions and output layer by words in their names.

The remaining tensors are a Linear for the logits, position tables, and token embeddings, each of the source,
of the target, or of both.
"""

import re

from torch import Tensor

from heedful.interop.conversion import STACKS, Conversion
from heedful.interop.position_tables import move_positions

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
