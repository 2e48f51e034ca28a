"""Checkpoints of fairseq's transformer, with the training arguments beside the weights.

`read` converts the weights; transformers' models by the same authors share the names of their parts
(`move_layers`, `move_tokens`).

Sentences have an end token, which is also the decoder's start token; positions count from 2, after padding's.
"""

import argparse
import re
from collections.abc import Iterator, Mapping
from typing import Any

import torch

from heedful.interop.conversion import STACKS, Conversion, Imported
from heedful.settings.parsing import is_whole, short, shown

LAYOUT = "fairseq"
PAD_ID, EOS_ID = 1, 2
_UNUSED_ROWS = PAD_ID + 1  # of learned positions
_NO_WEIGHTS = re.compile(r"(^|\.)(version|_float_tensor|embed_positions\.weights)$")
# Layer norms of 2018 are numbered.
_NUMBERED_NORMS = {
    "encoder": ("self_attn_layer_norm", "final_layer_norm"),
    "decoder": ("self_attn_layer_norm", "encoder_attn_layer_norm", "final_layer_norm"),
}
_ACTIVATIONS = {
    "relu": "relu",
    "gelu": "gelu",
    "gelu_accurate": "gelu_tanh",
    "gelu_fast": "gelu_tanh",
    "swish": "swish",
    "silu": "swish",
}
# Arguments that must have this value or be absent.
_FIXED: Mapping[str, Any] = {
    "adaptive_input": False,
    "adaptive_softmax_cutoff": None,
    "cross_self_attention": False,
    "no_cross_attention": False,
    "no_decoder_final_norm": False,
    "no_token_positional_embeddings": False,
    "base_layers": 0,
    "moe_freq": 0,
    "scale_attn": False,
    "scale_fc": False,
    "scale_heads": False,
    "scale_resids": False,
    "use_alibi": False,
}
_BOTH_STACKS = ("attention_heads", "normalize_before", "learned_pos")


def read(conversion: Conversion) -> Imported:
    """Convert the weights, with settings from the arguments or the user.

    Raises:
        InteropError: an argument is not supported, or a weight is wrong.
    """
    arguments = _arguments(conversion.beside)
    facts = _facts(conversion, arguments)
    for name in conversion.left:
        if _NO_WEIGHTS.search(name):
            conversion.take(name)
    _rename_older(conversion)
    norm = "pre" if "encoder.layer_norm.weight" in conversion.left else "post"
    if arguments.get("encoder_normalize_before", norm == "pre") != (norm == "pre"):
        raise conversion.error(f"encoder_normalize_before contradicts the weights, which are {norm}-norm")
    move_layers(conversion)
    if any(f"{stack}.embed_positions.weight" in conversion.left for stack in STACKS):
        move_learned_positions(conversion, unused=_UNUSED_ROWS)
    outputs = ("decoder.output_projection.weight", "decoder.embed_out")
    output = next((name for name in outputs if name in conversion.left), outputs[0])
    move_tokens(conversion, output=output)
    return conversion.finish(**{"norm": norm, "positions": "fairseq"} | facts)


def _facts(conversion: Conversion, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return the model's settings from its arguments; unsupported ones are refused."""
    for key, only in _FIXED.items():
        value = arguments.get(key)
        if value is not None and value != only:
            raise conversion.error(f"the argument {key}={short(str(value))} is not supported")
    for key in _BOTH_STACKS:
        one, other = arguments.get(f"encoder_{key}"), arguments.get(f"decoder_{key}")
        if one != other and None not in (one, other):
            raise conversion.error(
                f"encoder_{key}={short(str(one))} and decoder_{key}={short(str(other))} differ; "
                "they must be equal"
            )
    facts: dict[str, Any] = {"decoder_start_id": EOS_ID, "src_pad_id": PAD_ID, "tgt_pad_id": PAD_ID}
    if "encoder_attention_heads" in arguments:
        facts["num_heads"] = num_heads = arguments["encoder_attention_heads"]
        if not is_whole(num_heads, least=1, most=2**16):
            raise conversion.error(f"encoder_attention_heads={shown(num_heads)} is not a number of heads")
    facts["scale_embeddings"] = not arguments.get("no_scale_embedding", False)
    activation = arguments.get("activation_fn", "relu")
    if activation not in _ACTIVATIONS:
        raise conversion.error(
            f"activation_fn={shown(activation)} is unknown; there are {', '.join(_ACTIVATIONS)}"
        )
    facts["activation"] = _ACTIVATIONS[activation]
    for theirs in ("dropout", "attention_dropout", "activation_dropout"):
        if isinstance(value := arguments.get(theirs), float):
            facts[theirs] = value
    return facts


def _arguments(beside: Mapping[str, Any]) -> dict[str, Any]:
    """Return the model's arguments, by their names on the command line.

    Older checkpoints have them in "args"; newer ones under "model" in "cfg", where those of a stack may be
    nested: `{"encoder": {"attention_heads": 8}}`.
    """
    saved = beside.get("args")
    if saved is None and isinstance(beside.get("cfg"), Mapping):
        saved = beside["cfg"].get("model")
    saved = vars(saved) if isinstance(saved, argparse.Namespace) else saved
    arguments: dict[str, Any] = {}
    for key, value in saved.items() if isinstance(saved, Mapping) else ():
        inner = value if isinstance(value, Mapping) else {}
        arguments |= {f"{key}_{name}": each for name, each in inner.items() if _is_name(name)} or (
            {key: value} if _is_name(key) else {}
        )
    # Values of other types are only shown in messages.
    return {
        key: value if isinstance(value, bool | float | str) or is_whole(value) else shown(value)
        for key, value in arguments.items()
        if value is not None
    }


def _is_name(key: object) -> bool:
    return isinstance(key, str) and key.isidentifier()


def _rename_older(conversion: Conversion) -> None:
    """Rename tensors of 2018 checkpoints: numbered norms, and three projections in one matrix."""
    for name in conversion.left:
        if match := re.fullmatch(r"(encoder|decoder)(\.layers\.\d+)\.layer_norms\.([0-9])\.(\w+)", name):
            stack, layer, number, kind = match.groups()
            norm = dict(enumerate(_NUMBERED_NORMS[stack])).get(int(number))
            if norm is None:
                raise conversion.error(f"the weight {name!r} is unknown")
            conversion.put_back(f"{stack}{layer}.{norm}.{kind}", conversion.take(name))
        elif match := re.fullmatch(r"(.+_attn)\.in_proj_(weight|bias)", name):
            attention, kind = match.groups()
            for part, tensor in zip("qkv", conversion.take_parts(name, 3), strict=True):
                conversion.put_back(f"{attention}.{part}_proj.{kind}", tensor)


_PARTS = {"q_proj": "query", "k_proj": "key", "v_proj": "value", "out_proj": "output"}
_ATTENTIONS = {
    "encoder": {"self_attn": "self_attention"},
    "decoder": {"self_attn": "self_attention", "encoder_attn": "cross_attention"},
}


def layer_modules(stack: str, i: int) -> Iterator[tuple[str, str]]:
    """Yield the names of the parts of one layer, theirs and ours; each has a weight and usually a bias."""
    layer = f"{stack}.layers.{i}"
    for block, attention in _ATTENTIONS[stack].items():
        for name, part in _PARTS.items():
            yield f"{layer}.{block}.{name}", f"{layer}.{attention}.{part}"
        yield f"{layer}.{block}_layer_norm", f"{layer}.{attention}_norm"
    yield f"{layer}.fc1", f"{layer}.feed_forward.inner"
    yield f"{layer}.fc2", f"{layer}.feed_forward.outer"
    yield f"{layer}.final_layer_norm", f"{layer}.feed_forward_norm"


def move_layers(conversion: Conversion, *, prefix: str = "") -> None:
    """Move the layers of both stacks, the norms after them and the norms of the embedded input."""
    for stack in STACKS:
        their_stack = f"{prefix}{stack}"
        for i in range(conversion.num_layers(f"{their_stack}.layers")):
            for theirs, ours in layer_modules(stack, i):
                conversion.move_parts(f"{prefix}{theirs}", ours)
        for theirs, ours in (("layer_norm", "final_norm"), ("layernorm_embedding", "embedding.norm")):
            if f"{their_stack}.{theirs}.weight" in conversion.left:
                conversion.move_parts(f"{their_stack}.{theirs}", f"{stack}.{ours}")


def move_tokens(conversion: Conversion, *, prefix: str = "", shared: str | None = None, output: str) -> None:
    """Move both embeddings and the output matrix, by default the decoder's embedding.

    Args:
        conversion: of the tensors.
        prefix: before "encoder." and "decoder.".
        shared: the name of a matrix that replaces missing embeddings; if it is missing too, any of the others
            does. None: both embeddings must exist.
        output: the name of the output matrix.
    """
    by_stack = {stack: f"{prefix}{stack}.embed_tokens.weight" for stack in STACKS}
    there = [name for name in (shared, *by_stack.values(), output) if name in conversion.left]
    common = conversion.look(there[0]) if shared and there else None
    matrix = None
    for stack, name in by_stack.items():
        matrix = conversion.take(name) if common is None or name in conversion.left else common
        conversion.put(f"{stack}.embedding.tokens.weight", matrix, origin=name)
    if output in conversion.left or matrix is None:
        matrix = conversion.take(output)
    conversion.put("output.weight", matrix, origin=output)
    if shared in conversion.left:
        conversion.take(shared)


def move_output_bias(conversion: Conversion, name: str) -> None:
    """Move a bias (1, V) of the logits, unless it is zero."""
    if name in conversion.left:
        bias = conversion.take(name)
        if torch.any(bias != 0):
            conversion.put("output.bias", bias.reshape(-1), origin=name)


def move_learned_positions(conversion: Conversion, *, prefix: str = "", unused: int) -> None:
    """Move both tables of learned positions without their unused first rows, truncated to the shorter."""
    names = {stack: f"{prefix}{stack}.embed_positions.weight" for stack in STACKS}
    end = min(len(conversion.look(name)) for name in names.values())
    for stack, name in names.items():
        table = conversion.take(name)[unused:end]
        conversion.put(f"{stack}.embedding.positions.weight", table, origin=name)
