"""Embeddings, positions and output of a model, found by words in the names that its author chose.

torch's translation tutorial, for example, has `src_tok_emb.embedding.weight`, `tgt_tok_emb.embedding.weight`,
`positional_encoding.pos_embedding` (a buffer of sinusoids) and `generator` (a Linear).
"""

import re
from collections.abc import Collection, Sequence

from heedful.interop.conversion import STACKS, Conversion, Positions, move_positions

# The first set that names source or target decides: the input of a decoder is the target.
_STACK_WORDS = (
    {
        "encoder": re.compile(r"\b(src|source|enc|encoder)\b"),
        "decoder": re.compile(r"\b(tgt|trg|target|dec|decoder)\b"),
    },
    {"encoder": re.compile(r"\b(input|inp|in)\b"), "decoder": re.compile(r"\b(output|out)\b")},
)
_OUTPUT_WORD = re.compile(r"\b(generator|fc|linear|proj|projection|head|out|output|logits|classifier)\b")
_EMBEDDING_WORD, _POSITION_WORD = re.compile(r"\b(emb|tok)"), re.compile(r"\b(pe\b|pos)")


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
    tables = [name for name in left if _POSITION_WORD.search(_words(name))]
    matrices = [name for name, tensor in left.items() if name not in tables and tensor.ndim == 2]
    outputs = [name for name in matrices if _is_output(name, left)]
    conversion.require(
        len(outputs) == 1,
        f"one Linear for the logits is expected, but there are {outputs}; call it 'generator'",
    )
    for kind in ("weight", "bias"):
        name = f"{outputs[0].removesuffix('.weight')}.{kind}"
        if name in left:
            conversion.put(f"output.{kind}", conversion.take(name), origin=name)
    matrices.remove(outputs[0])
    by_stack = _by_stack(conversion, "token embedding", matrices)
    conversion.require(bool(by_stack), "there is no token embedding")
    for stack, name in by_stack.items():
        conversion.put(f"{stack}.embedding.tokens.weight", conversion.look(name), origin=name)
    for name in set(by_stack.values()):
        del conversion.left[name]
    has_positions = bool(tables) or positions.fixed
    conversion.require(has_positions, "there is no table of positions, with 'pos' in its name")
    by_stack = _by_stack(conversion, "position table", tables)
    move_positions(conversion, by_stack, positions)


def _by_stack(conversion: Conversion, what: str, tensors: Sequence[str]) -> dict[str, str]:
    """Return the name of each stack's tensor; an empty dict if there are none."""
    if len(tensors) == 1 and not _stacks(tensors[0]):
        return dict.fromkeys(STACKS, tensors[0])
    names: dict[str, str] = {}
    for name in tensors:
        stacks = _stacks(name)
        conversion.require(
            len(stacks) == 1 and stacks[0] not in names,
            f"the {what} {name!r} may be the source's or the target's; put 'src' or 'tgt' into its name",
        )
        names[stacks[0]] = name
    for stack in STACKS:
        conversion.require(not names or stack in names, f"the {stack} has no {what}")
    return names


def _stacks(name: str) -> list[str]:
    words = _words(name)
    for patterns in _STACK_WORDS:
        if stacks := [stack for stack, pattern in patterns.items() if pattern.search(words)]:
            return stacks
    return []


def _is_output(name: str, tensors: Collection[str]) -> bool:
    module, _, kind = name.rpartition(".")
    words = _words(module)
    is_named = _OUTPUT_WORD.search(words) and not _EMBEDDING_WORD.search(words)
    return kind == "weight" and bool(is_named or f"{module}.bias" in tensors)


def _words(name: str) -> str:
    """Return the words of a name in lower case, with spaces between them."""
    return " ".join(re.findall(r"[a-z]+", re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower()))
