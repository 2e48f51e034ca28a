"""T5Gemma, and the text part of T5Gemma 2, as saved by transformers.

They are Gemma 2 and Gemma 3 with an encoder. A norm multiplies by one plus its weight. Scores are divided by
the root of `query_pre_attn_scalar`, so queries, or the gain of their norm, are scaled here. Layers that see a
window stand between layers that see the whole text. T5Gemma 2 has one attention over source and target; its
parts for images are left out.
"""

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from heedful.interop.conversion import STACKS, Conversion, scaled
from heedful.interop.huggingface.generation import read_special_id
from heedful.interop.huggingface.pretrained import CONFIG_FILE, PIPELINE_FILE, PretrainedDirectory
from heedful.interop.huggingface.reading import (
    ACTIVATIONS,
    FIXED,
    WITHOUT_EFFECT,
    Family,
    no_languages,
    tokenizer_of_pipeline,
)
from heedful.interop.keys import Keys, named
from heedful.interop.tables import AS_IS, Table, Transform
from heedful.interop.vocabulary import TypedSettings, read_settings
from heedful.settings.parsing import shown
from heedful.text import Tokenizer

_ROWS = """
    model.{stack}.layers.{i}.               {stack}.layers.{i}.
        {self,cross}_attn.q_proj            {self,cross}_attention.query    {query,query}
        self_attn.{k,v,o}_proj              self_attention.{key,value,output}
        cross_attn.{k,v,o}_proj             cross_attention.{key,value,output}
        self_attn.{q,k}_norm                self_attention.{query,key}_norm  {query_norm,plus_one}
        {pre,post}_self_attn_layernorm      self_attention_norm.{before,after}  {plus_one,plus_one}
        {pre,post}_cross_attn_layernorm     cross_attention_norm.{before,after}  {plus_one,plus_one}
        {pre,post}_feedforward_layernorm    feed_forward_norm.{before,after}  {plus_one,plus_one}
        mlp.{gate,up,down}_proj             feed_forward.{gate,inner,outer}
    model.{stack}.norm                      {stack}.final_norm  plus_one
    model.{stack}.embed_tokens|ANY          {stack}.embedding.tokens
    ANY                                     output
    """.replace("ANY", "lm_head.out_proj|model.decoder.embed_tokens|model.encoder.embed_tokens")
_IMAGES = ("model.encoder.vision_tower.", "model.encoder.multi_modal_projector.")
_IMAGE_END = ".eoi_embedding"
_PLUS_ONE = Transform(lambda weight: weight + 1)
_FACTS = {
    "attention_bias": False, "feed_forward_bias": False, "norm": "both", "norm_kind": "rms", "gated": True,
    "positions": "rotary", "scale_embeddings": True,
}  # fmt: skip


def _adapt(table: Table, conversion: Conversion) -> Table:
    """Return the table with the factors of queries; tensors for images are dropped."""
    for name in [name for name in conversion.left if name.startswith(_IMAGES) or name.endswith(_IMAGE_END)]:
        del conversion.left[name]
    settings = TypedSettings(conversion.beside, conversion.origin / CONFIG_FILE)
    scalar = settings.number("query_pre_attn_scalar", least=1e-6)
    scalar = 256 if scalar is None else scalar
    factor = math.sqrt(conversion.required("d_k") / scalar)
    transforms = {
        "plus_one": _PLUS_ONE,
        "query": AS_IS if factor == 1 else Transform(lambda query: scaled(query, factor)),
        "query_norm": Transform(lambda gain: (gain + 1) * factor),
    }
    return replace(table, transforms=transforms)


def _flat(directory: PretrainedDirectory) -> dict[str, Any]:
    """Return the settings of both stacks in one object; they must be equal, but for the number of layers."""
    config = dict(directory.config)
    stacks = [config.pop(stack, None) for stack in STACKS]
    encoder = stacks[0]
    if isinstance(encoder, Mapping) and isinstance(encoder.get("text_config"), Mapping):
        stacks[0] = encoder["text_config"]
    flat: dict[str, Any] = {}
    for stack, values in zip(STACKS, stacks, strict=True):
        if not isinstance(values, Mapping):
            directory.refuse(f"{stack}={shown(values)} are not settings; copy the whole directory")
        for key, value in values.items():
            name = f"{stack}_layers" if key == "num_hidden_layers" else key
            if key == "layer_types" and value is not None:
                value = _full_attention_every(directory, value, values.get("num_hidden_layers"))
            if key in ("is_decoder", "model_type", "use_cache", "cross_attention_hidden_size"):
                continue
            if flat.setdefault(name, value) != value:
                problem = f"{key} is {shown(flat[name])} in the encoder and {shown(value)} in the decoder"
                directory.refuse(f"{problem}; they must be equal")
    rotary, windows = _rotary(directory, flat), _windows(directory, flat)
    return flat | config | rotary | windows


def _rotary(directory: PretrainedDirectory, flat: dict[str, Any]) -> dict[str, Any]:
    """Return the angles of positions: one for all layers, or one for each kind of layer."""
    whole = given = flat.pop("rope_parameters", None) or {}
    local: Any = {}
    if isinstance(given, Mapping) and "full_attention" in given:
        whole, local = given["full_attention"] or {}, given.get("sliding_attention") or {}
    for values, supported in ((whole, ("default", "linear")), (local, ("default",))):
        if not isinstance(values, Mapping):
            directory.refuse(f"rope_parameters={shown(given)} are not settings")
        kind = values.get("rope_type", values.get("type", "default"))
        if kind not in supported:
            directory.refuse(f"rope_type={shown(kind)} is not supported; {' and '.join(supported)} are")
    is_linear = "linear" in (whole.get("rope_type"), whole.get("type"))
    is_version_2 = directory.config["model_type"] == "t5gemma2"
    return {
        "rotary_base": whole.get(
            "rope_theta", flat.pop("rope_theta", 1_000_000.0 if is_version_2 else 10_000.0)
        ),
        "rotary_scale": whole.get("factor", 1.0) if is_linear else 1.0,
        "rotary_window_base": local.get("rope_theta", 10_000.0) if is_version_2 else None,
    }


def _windows(directory: PretrainedDirectory, flat: dict[str, Any]) -> dict[str, Any]:
    """Return which layers see a window, and how much it holds."""
    is_version_2 = directory.config["model_type"] == "t5gemma2"
    every, window = (
        flat.pop("layer_types", None) or (6 if is_version_2 else 2),
        flat.pop("sliding_window", 4096),
    )
    if not isinstance(window, int) or window < 1:
        directory.refuse(f"sliding_window={shown(window)} is not a number of tokens")
    if every == 1:
        return {"full_attention_every": 1}
    sides = ((window + 1) // 2 - 1, window // 2) if is_version_2 else (window, window)
    return {"full_attention_every": every, "encoder_window": sides, "decoder_window": window - 1}


def _full_attention_every(directory: PretrainedDirectory, kinds: object, depth: object) -> int:
    """Return n if every n-th layer, and no other, sees all."""
    if isinstance(kinds, list) and len(kinds) == depth:
        for n in range(1, len(kinds) + 2):
            wanted = ["sliding_attention" if (i + 1) % n else "full_attention" for i in range(len(kinds))]
            if kinds == wanted:
                return n
    directory.refuse(
        f"layer_types={shown(kinds)}: must have full_attention for every n-th of {shown(depth)} layers, and "
        "sliding_attention for the others"
    )


def _begin_token(
    directory: PretrainedDirectory, tokenizer: Tokenizer, search: dict[str, Any]
) -> dict[str, Any]:
    """Return the token that tokenizer.json has before each text, and the decoder's first input."""
    no_languages(directory, tokenizer, search)
    processor = read_settings(directory.path / PIPELINE_FILE).get("post_processor") or {}
    single = processor.get("single") if isinstance(processor, Mapping) else None
    frame = [next(iter(each.values())).get("id") for each in single or [{"Sequence": {"id": "A"}}]]
    begin = tokenizer.tokens([tokenizer.bos_id])[0]
    if frame not in (["A"], [begin, "A"]):
        directory.refuse(
            f"post_processor has {shown(frame)}: only {begin} may be put before a text", file=PIPELINE_FILE
        )
    return {"start_id": _start_id(directory)} | ({"src_tag": begin} if len(frame) > 1 else {})


def _start_id(directory: PretrainedDirectory) -> int:
    start = directory.typed(directory.generation_file).whole_number("decoder_start_token_id")
    return read_special_id(directory, "bos_token_id") if start is None else start


def _tokenizer(directory: PretrainedDirectory) -> Tokenizer:
    directory.tokenizer_class("GemmaTokenizer", "T5GemmaTokenizer")
    return tokenizer_of_pipeline(directory)


_MODEL = ("rotary_base", "rotary_scale", "rotary_window_base", "encoder_window", "decoder_window")
T5GEMMA = Family(
    layout="t5gemma",
    model_type="t5gemma",
    config=_flat,
    weights=Table(_ROWS, facts=_FACTS, adapt=_adapt),
    tokenizer=_tokenizer,
    languages=_begin_token,
    source_eos=False,
    keys=Keys(
        read={
            "hidden_size": "d_model",
            "intermediate_size": "d_ff",
            "head_dim": ("d_k", "d_v"),
            "num_attention_heads": "num_heads",
            "num_key_value_heads": "num_kv_heads",
            "encoder_layers": "num_encoder_layers",
            "decoder_layers": "num_decoder_layers",
            "rms_norm_eps": "layer_norm_eps",
            "attn_logit_softcapping": "attention_cap",
            "final_logit_softcapping": "output_cap",
            "dropout_rate": ("dropout", "activation_dropout"),
            "attention_dropout": "attention_dropout",
            "full_attention_every": "full_attention_every",
            **{key: key for key in _MODEL},
        },
        choices={"hidden_activation": named("activation", ACTIVATIONS)},
        fixed={key: value for key, value in FIXED.items() if key != "cross_attention_hidden_size"}
        | {"attention_bias": False},
        ignored=(
            *WITHOUT_EFFECT,
            "initializer_range",
            "max_position_embeddings",
            "query_pre_attn_scalar",
            "classifier_dropout_rate",
            "eoi_token_index",
            "image_token_index",
            "vision_config",
        ),
        defaults={"hidden_activation": "gelu_pytorch_tanh", "rms_norm_eps": 1e-6, "head_dim": 256},
    ),
)
T5GEMMA2 = replace(
    T5GEMMA,
    model_type="t5gemma2",
    weights=replace(T5GEMMA.weights, facts={**_FACTS, "query_norm": True, "decoder_unit": "merged"}),
)
