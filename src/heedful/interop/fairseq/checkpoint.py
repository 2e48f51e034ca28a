"""Checkpoints of fairseq's transformer: what its trainer wrote, with the arguments beside the weights.

Facts are those of fairseq's own code, as its documentation and checkpoints show them. Sentences are read and
written with an end token, which the decoder also starts with; positions count from 2, after padding's.
"""

import argparse
import re
from collections.abc import Mapping
from typing import Any

from heedful.interop.conversion import SIDES, Conversion, Imported
from heedful.interop.fairseq.names import move_layers, move_learned_positions, move_tokens
from heedful.parsing import is_whole, short, shown

LAYOUT = "fairseq"
_PAD_ID, _EOS_ID = 1, 2
_UNUSED_ROWS = _PAD_ID + 1  # of learned positions
_NO_WEIGHTS = re.compile(r"(^|\.)(version|_float_tensor|embed_positions\.weights)$")
# Layer norms of 2018 have numbers.
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
# Arguments that may only say this, or nothing.
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
_BOTH_SIDES = ("attention_heads", "normalize_before", "learned_pos")


def read(conversion: Conversion) -> Imported:
    """Read what the arguments say, or the user where there are none, and move everything.

    Raises:
        InteropError: an argument asks for what cannot be here, or a weight does not fit.
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
    if any(f"{side}.embed_positions.weight" in conversion.left for side in SIDES):
        move_learned_positions(conversion, unused=_UNUSED_ROWS)
    outputs = ("decoder.output_projection.weight", "decoder.embed_out")
    output = next((name for name in outputs if name in conversion.left), outputs[0])
    move_tokens(conversion, output=output)
    return conversion.finish(**{"norm": norm, "positions": "fairseq"} | facts)


def _facts(conversion: Conversion, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of the model that its arguments give, those with a meaning here checked one by one."""
    for key, only in _FIXED.items():
        value = arguments.get(key)
        if value is not None and value != only:
            raise conversion.error(f"the argument {key}={short(str(value))} cannot be followed here")
    for key in _BOTH_SIDES:
        one, other = arguments.get(f"encoder_{key}"), arguments.get(f"decoder_{key}")
        if one != other and None not in (one, other):
            raise conversion.error(
                f"encoder_{key}={short(str(one))} and decoder_{key}={short(str(other))} differ; "
                "both stacks are alike here"
            )
    facts: dict[str, Any] = {"decoder_start_id": _EOS_ID, "src_pad_id": _PAD_ID, "tgt_pad_id": _PAD_ID}
    if "encoder_attention_heads" in arguments:
        facts["num_heads"] = num_heads = arguments["encoder_attention_heads"]
        if not is_whole(num_heads, least=1, most=2**16):
            raise conversion.error(f"encoder_attention_heads={shown(num_heads)} is no number of heads")
    facts["scale_embeddings"] = not arguments.get("no_scale_embedding", False)
    activation = arguments.get("activation_fn", "relu")
    if activation not in _ACTIVATIONS:
        raise conversion.error(
            f"activation_fn={shown(activation)} is not known here; there are {', '.join(_ACTIVATIONS)}"
        )
    facts["activation"] = _ACTIVATIONS[activation]
    for theirs in ("dropout", "attention_dropout", "activation_dropout"):
        if isinstance(value := arguments.get(theirs), float):
            facts[theirs] = value
    return facts


def _arguments(beside: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of the model, by the names that they had on the command line.

    Older checkpoints have them in "args"; newer ones under "model" in "cfg", where those of a stack may stand
    together: `{"encoder": {"attention_heads": 8}}`.
    """
    found = beside.get("args")
    if found is None and isinstance(beside.get("cfg"), Mapping):
        found = beside["cfg"].get("model")
    found = vars(found) if isinstance(found, argparse.Namespace) else found
    arguments: dict[str, Any] = {}
    for key, value in found.items() if isinstance(found, Mapping) else ():
        inner = value if isinstance(value, Mapping) else {}
        arguments |= {f"{key}_{name}": each for name, each in inner.items() if _is_name(name)} or (
            {key: value} if _is_name(key) else {}
        )
    # Whatever else a file may hold is compared with nothing, and shown as short as it must be.
    return {
        key: value if isinstance(value, bool | float | str) or is_whole(value) else shown(value)
        for key, value in arguments.items()
        if value is not None
    }


def _is_name(key: object) -> bool:
    return isinstance(key, str) and key.isidentifier()


def _rename_older(conversion: Conversion) -> None:
    """Give tensors of 2018 the names of later ones: norms by number, three projections in one."""
    for name in conversion.left:
        if found := re.fullmatch(r"(encoder|decoder)(\.layers\.\d+)\.layer_norms\.([0-9])\.(\w+)", name):
            side, layer, number, kind = found.groups()
            norm = dict(enumerate(_NUMBERED_NORMS[side])).get(int(number))
            if norm is None:
                raise conversion.error(f"the weight {name!r} is unknown")
            conversion.give_back(f"{side}{layer}.{norm}.{kind}", conversion.take(name))
        elif found := re.fullmatch(r"(.+_attn)\.in_proj_(weight|bias)", name):
            attention, kind = found.groups()
            for part, tensor in zip("qkv", conversion.take_parts(name, 3), strict=True):
                conversion.give_back(f"{attention}.{part}_proj.{kind}", tensor)
