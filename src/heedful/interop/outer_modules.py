"""Find the modules around two stacks of layers, where their names are not known.

Found by name among the tensors that are left: a Linear for the logits, tables of positions, and token
embeddings, each of the source, of the target, or of both.
"""

import re

from torch import Tensor

from heedful.interop.conversion import SIDES, Conversion
from heedful.interop.position_tables import move_positions

# The first set that names source or target decides: the input of a decoder is the target.
_SIDE_WORDS = (
    {"encoder": {"src", "source", "enc", "encoder"}, "decoder": {"tgt", "trg", "target", "dec", "decoder"}},
    {"encoder": {"input", "inp", "in"}, "decoder": {"output", "out"}},
)
_OUTPUT_WORDS = {
    "generator", "fc", "linear", "proj", "projection", "head", "out", "output", "logits", "classifier",
}  # fmt: skip


def move_outer_modules(conversion: Conversion, *, fixed_positions: bool = False) -> None:
    """Move what the layers have left.

    A Linear is what has a bias, or a word like `generator`, `fc`, `out`, `proj`, `head` in its name and none
    like `emb`. Positions have `pos` or `pe` in theirs. What is left are token embeddings. Names say source or
    target with a word like `src` or `encoder`, `tgt`, `trg` or `decoder`; a lone tensor without one serves
    both.

    Args:
        conversion: after all layers and norms have been moved.
        fixed_positions: whether positions are computed, so that they may be absent; as `fixed` of
            `move_positions`.

    Raises:
        InteropError: something is missing, or cannot be told apart.
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
    of_side = _by_side(conversion, "token embedding", embeddings)
    if not of_side:
        raise conversion.error("there is no token embedding")
    tokens = {name: conversion.take(name) for name in dict.fromkeys(of_side.values())}
    for side, name in of_side.items():
        conversion.put(f"{side}.embedding.tokens.weight", tokens[name], origin=name)
    if not (tables or fixed_positions):
        raise conversion.error("there is no table of positions, with 'pos' in its name")
    move_positions(conversion, _by_side(conversion, "position table", tables), fixed=fixed_positions)


def _by_side(conversion: Conversion, what: str, tensors: dict[str, Tensor]) -> dict[str, str]:
    """Which tensor each stack has; an empty dict where there is none."""
    sides_of = {name: _sides(name) for name in tensors}
    if len(tensors) == 1 and not any(sides_of.values()):
        return dict.fromkeys(SIDES, next(iter(tensors)))
    found: dict[str, str] = {}
    for name, sides in sides_of.items():
        if len(sides) != 1 or sides[0] in found:
            raise conversion.error(
                f"it is not clear whether the {what} {name!r} is the source's or the target's; "
                "put 'src' or 'tgt' into its name"
            )
        found[sides[0]] = name
    for side in SIDES:
        if found and side not in found:
            raise conversion.error(f"the {side} has no {what}")
    return found


def _sides(name: str) -> list[str]:
    words = _words(name)
    for side_words in _SIDE_WORDS:
        if sides := [side for side in SIDES if words & side_words[side]]:
            return sides
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
