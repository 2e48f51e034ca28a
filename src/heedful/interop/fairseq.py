"""Checkpoints of fairseq's transformer, with the training arguments beside the weights.

transformers' models by the same authors share the names of their parts (`rows`). Sentences have an end token,
which is also the decoder's start token; positions count from 2, after padding's.
"""

import argparse
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from heedful.interop.conversion import Conversion, Positions, Settings, Values
from heedful.interop.keys import Keys, allowed, columns, named
from heedful.interop.tables import Table
from heedful.interop.vocabulary import TypedSettings
from heedful.settings.parsing import is_whole, shown

LAYOUT = "fairseq"
PAD_ID, EOS_ID = 1, 2
_LAYERS = """
    PREFIX{stack}.layers.{i}.                  {stack}.layers.{i}.
        self_attn.{q,k,v,out}_proj             self_attention.{query,key,value,output}
        encoder_attn.{q,k,v,out}_proj          cross_attention.{query,key,value,output}
        {self,encoder}_attn_layer_norm         {self,cross}_attention_norm
        fc{1,2}                                feed_forward.{inner,outer}
        final_layer_norm                       feed_forward_norm
    PREFIX{stack}.layer_norm                   {stack}.final_norm
    PREFIX{stack}.layernorm_embedding          {stack}.embedding.norm
"""
POSITIONS = """
    model.{stack}.embed_positions.weight       {stack}.embedding.positions.weight
"""
BIAS = """
    final_logits_bias                          output.bias                              nonzero
"""
_APART = """
    PREFIX{stack}.embed_tokens.weight          {stack}.embedding.tokens.weight
    OUTPUT|PREFIXdecoder.embed_tokens.weight   output.weight
"""
# Any matrix may stand for another that is missing, if they are shared.
_SHARED = """
    PREFIX{stack}.embed_tokens.weight|ANY      {stack}.embedding.tokens.weight
    OUTPUT|PREFIXdecoder.embed_tokens.weight|ANY  output.weight
    PREFIXshared.weight                        -
"""
_ANY = "PREFIXshared.weight|PREFIXencoder.embed_tokens.weight|PREFIXdecoder.embed_tokens.weight|OUTPUT"
# Names of 2018: numbered norms, and three projections in one matrix.
_OLDER = """
    {stack}.layers.{i}.                        {stack}.layers.{i}.
        self_attn.in_proj_{weight,bias}        self_attention.[query,key,value].{weight,bias}
        encoder_attn.in_proj_{weight,bias}     cross_attention.[query,key,value].{weight,bias}
    encoder.layers.{i}.layer_norms.{0,1}       encoder.layers.{i}.{self_attention,feed_forward}_norm
    decoder.layers.{i}.                        decoder.layers.{i}.
        layer_norms.{0,1,2}                    {self_attention,cross_attention,feed_forward}_norm
    {stack}.{version,embed_positions._float_tensor,embed_positions.weights}  -
"""


def rows(prefix: str = "model.", *, shared: bool = True, output: str = "lm_head.weight") -> str:
    """Return the rows of layers, embeddings and output of a model with fairseq's names.

    Args:
        prefix: before "encoder." and "decoder.".
        shared: whether a matrix of embeddings may be missing, because it is another one.
        output: the name of the output matrix, which may be missing if it is the decoder's embedding.
    """
    return _LAYERS.replace("PREFIX", prefix) + tokens(prefix, shared=shared, output=output)


def tokens(prefix: str = "", *, shared: bool = True, output: str = "lm_head.weight") -> str:
    """Return the rows of embeddings and output; see `rows` for the arguments."""
    text = (_SHARED if shared else _APART).replace("ANY", _ANY)
    return text.replace("PREFIX", prefix).replace("OUTPUT", output)


_ACTIVATIONS = {
    "relu": "relu",
    "gelu": "gelu",
    "gelu_accurate": "gelu_tanh",
    "gelu_fast": "gelu_tanh",
    "swish": "swish",
    "silu": "swish",
}
KEYS = Keys(
    read=columns(
        """
        encoder_attention_heads  num_heads
        dropout                  dropout
        attention_dropout        attention_dropout
        activation_dropout       activation_dropout
        """
    ),
    choices={
        "activation_fn": named("activation", _ACTIVATIONS),
        "no_scale_embedding": {True: {"scale_embeddings": False}, False: {"scale_embeddings": True}},
    },
    equal=("attention_heads", "normalize_before", "learned_pos"),
    fixed=allowed(
        """
        false  adaptive_input cross_self_attention use_alibi scale_attn scale_fc scale_heads scale_resids
        false  no_cross_attention no_decoder_final_norm no_token_positional_embeddings
        null   adaptive_softmax_cutoff
        0      base_layers moe_freq
        """
    ),
    defaults={"activation_fn": "relu", "no_scale_embedding": False},
)


def _arguments(beside: Settings) -> Values:
    """Return the model's arguments, by their names on the command line.

    In "cfg", the arguments of a stack may be nested: `{"encoder": {"attention_heads": 8}}`.
    """
    arguments: Values = {}
    for key, value in saved_arguments(beside, "model").items():
        if isinstance(value, Mapping):
            arguments |= {f"{key}_{name}": inner for name, inner in value.items()}
        else:
            arguments[str(key)] = value
    # Values of other types are only shown in messages.
    return {
        key: value if isinstance(value, bool | float | str) or is_whole(value) else shown(value)
        for key, value in arguments.items()
        if key.isidentifier() and value is not None
    }


def saved_arguments(beside: Settings, section: str) -> Mapping[Any, Any]:
    """Return the arguments of a checkpoint: all of older ones, or a section of "cfg"; empty without any."""
    saved, sections = beside.get("args"), beside.get("cfg")
    if saved is None and isinstance(sections, Mapping):
        saved = sections.get(section)
    if isinstance(saved, argparse.Namespace):
        return vars(saved)
    return saved if isinstance(saved, Mapping) else {}


def _with_arguments(table: Table, conversion: Conversion) -> Table:
    """The arguments of the training give settings; a final norm in the encoder shows pre-norm."""
    arguments = _arguments(conversion.beside)
    facts = KEYS.settings(TypedSettings(arguments, conversion.origin))
    norm = "pre" if "encoder.layer_norm.weight" in conversion.left else "post"
    conversion.require(
        arguments.get("encoder_normalize_before", norm == "pre") == (norm == "pre"),
        f"encoder_normalize_before contradicts the weights, which are {norm}-norm",
    )
    return replace(table, facts={**table.facts, "norm": norm, **facts})


TABLE = Table(
    rows("", shared=False, output="decoder.output_projection.weight|decoder.embed_out")
    + POSITIONS.replace("model.", "")
    + _OLDER,
    positions=Positions(learned=True, required=False, unused=PAD_ID + 1),
    facts={"positions": "fairseq", "decoder_start_id": EOS_ID, "src_pad_id": PAD_ID, "tgt_pad_id": PAD_ID},
    adapt=_with_arguments,
)
