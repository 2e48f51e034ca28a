"""T5Gemma, and the text part of T5Gemma 2, as saved by transformers: read a directory, and export one.

They are Gemma 2 and Gemma 3 with an encoder. A norm multiplies by one plus its weight. Scores are divided by
the root of `query_pre_attn_scalar`, so queries, or the gain of their norm, are scaled here; exports have
d_k. Layers that see a window stand between layers that see the whole text. T5Gemma 2 has one attention over
source and target. Its parts for images are left out; exports have the smallest ones that transformers loads.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import torch

from heedful.errors import InteropError
from heedful.interop.conversion import STACKS, Conversion, Settings, Tensors, Values, scaled
from heedful.interop.exporting import refuse_changed, refuse_lost, special_names, write_pretrained
from heedful.interop.huggingface.generation import inexact_settings, read_special_id, write_search
from heedful.interop.huggingface.pretrained import (
    CONFIG_FILE,
    GENERATION_FILE,
    PIPELINE_FILE,
    TOKENIZER_FILE,
    ImportOptions,
    PretrainedDirectory,
)
from heedful.interop.huggingface.reading import (
    ACTIVATIONS,
    FIXED,
    WITHOUT_EFFECT,
    Family,
    no_languages,
)
from heedful.interop.keys import Keys, allowed, columns, named, split
from heedful.interop.tables import AS_IS, Table, Transform
from heedful.interop.vocabulary import TypedSettings, read_settings
from heedful.model.transformer import Transformer
from heedful.settings.model import SHARED_OUTPUT, ModelConfig
from heedful.settings.parsing import is_whole, parse_json, shown
from heedful.storage.bundle import Bundle
from heedful.text import HuggingFaceTokenizer, Tokenizer
from heedful.text.huggingface_tokenizer import PIPELINE
from heedful.text.special_tokens import SpecialTokens

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
    model.encoder.vision_tower.*            -
    model.encoder.multi_modal_projector.*   -
    *.eoi_embedding                         -
    """.replace("ANY", "lm_head.out_proj|model.decoder.embed_tokens|model.encoder.embed_tokens")
_PLUS_ONE = Transform(lambda weight: weight + 1, lambda weight: weight - 1)
_TRANSFORMS = {"plus_one": _PLUS_ONE, "query": AS_IS, "query_norm": _PLUS_ONE}  # if the scalar is d_k
_FACTS = {
    "attention_bias": False, "feed_forward_bias": False, "output_bias": False, "norm": "both",
    "norm_kind": "rms", "gated": True, "positions": "rotary", "scale_embeddings": True,
}  # fmt: skip


def _with_scalar(table: Table, conversion: Conversion) -> Table:
    """Return the table with the factors of queries."""
    settings = TypedSettings(conversion.beside, conversion.origin / CONFIG_FILE)
    scalar = settings.number("query_pre_attn_scalar", least=1e-6)
    factor = math.sqrt(conversion.required("d_k") / (256 if scalar is None else scalar))
    if factor == 1:
        return table
    transforms = {
        "plus_one": _PLUS_ONE,
        "query": Transform(lambda query: scaled(query, factor)),
        "query_norm": Transform(lambda gain: (gain + 1) * factor),
    }
    return replace(table, transforms=transforms)


_MAX_LAYERS = 1000
_OF_ONE_STACK = (
    "num_hidden_layers", "layer_types", "is_decoder", "model_type", "use_cache",
    "cross_attention_hidden_size",
)  # fmt: skip


def _flat(directory: PretrainedDirectory) -> Values:
    """Return the settings of both stacks in one object; they must be equal, but for the number of layers."""
    config = dict(directory.config)
    usual = _USUAL[str(config["model_type"])]
    stacks: dict[str, Any] = {stack: config.pop(stack, None) for stack in STACKS}
    encoder = stacks["encoder"]
    if isinstance(encoder, Mapping) and isinstance(encoder.get("text_config"), Mapping):
        stacks["encoder"] = encoder["text_config"]
    parts = {}
    for stack, values in stacks.items():
        if not isinstance(values, Mapping):
            directory.refuse(f"{stack}={shown(values)} are not settings; copy the whole directory")
        parts[stack] = {key: value for key, value in values.items() if key not in _OF_ONE_STACK}
        if "num_hidden_layers" in values:
            parts[stack][f"{stack}_layers"] = values["num_hidden_layers"]
    flat = directory.typed().merged(parts)
    every = usual.full_attention_every
    if any(values.get("layer_types") is not None for values in stacks.values()):
        every = _full_attention_every(directory, list(stacks.values()))
    rotary, windows = _rotary(directory, flat, usual), _windows(directory, flat, every, usual)
    if rotary["rotary_scale"] != 1 and not usual.has_two_bases and every > 1:
        directory.refuse('rope_type="linear" is not supported for layers that see a window')
    return flat | config | rotary | windows


class _Usual(NamedTuple):
    """What a version has if its files do not say it."""

    full_attention_every: int
    rotary_base: float
    has_two_bases: bool = False  # angles of their own in layers that see a window


_USUAL = {"t5gemma": _Usual(2, 10_000.0), "t5gemma2": _Usual(6, 1_000_000.0, has_two_bases=True)}


def _rotary(directory: PretrainedDirectory, flat: Values, usual: _Usual) -> Values:
    """Return the angles of positions: one for all layers, or one for each kind of layer."""
    given = flat.pop("rope_parameters", None) or {}
    by_kind = given if isinstance(given, Mapping) and "full_attention" in given else {"full_attention": given}
    parts = []
    for kind, supported in (("full_attention", ("default", "linear")), ("sliding_attention", ("default",))):
        values: Any = by_kind.get(kind) or {}
        if not isinstance(values, Mapping):
            directory.refuse(f"rope_parameters={shown(given)} are not settings")
        rope_type = values.get("rope_type", values.get("type", "default"))
        if rope_type not in supported:
            directory.refuse(f"rope_type={shown(rope_type)} is not supported; {' and '.join(supported)} are")
        scale = values.get("factor", 1.0) if rope_type == "linear" else 1.0
        parts.append((values.get("rope_theta"), scale))
    (base, scale), (local_base, _) = parts
    older_base = flat.pop("rope_theta", usual.rotary_base)
    return {
        "rotary_base": older_base if base is None else base,
        "rotary_scale": scale,
        "rotary_window_base": (local_base or 10_000.0) if usual.has_two_bases else None,
    }


def _windows(directory: PretrainedDirectory, flat: Values, every: int, usual: _Usual) -> Values:
    """Return which layers see a window, and how much it holds."""
    window = flat.pop("sliding_window", 4096)
    if not is_whole(window, least=1):
        directory.refuse(f"sliding_window={shown(window)} is not a number of tokens")
    if every == 1:
        return {"full_attention_every": 1}
    sides = ((window + 1) // 2 - 1, window // 2) if usual.has_two_bases else (window, window)
    return {"full_attention_every": every, "encoder_window": sides, "decoder_window": window - 1}


def _full_attention_every(directory: PretrainedDirectory, stacks: Sequence[Settings]) -> int:
    """Return n if every n-th layer of both stacks, and no other, sees all."""
    kinds = [stack.get("layer_types") for stack in stacks]
    depths: list[Any] = [stack.get("num_hidden_layers") for stack in stacks]
    if all(is_whole(depth, most=_MAX_LAYERS) for depth in depths):
        for n in range(1, max(depths) + 2):
            if kinds == [_layer_types(n, depth) for depth in depths]:
                return n
    directory.refuse(
        f"layer_types={shown(kinds)}: must have full_attention for every n-th of {shown(depths)} layers, and "
        "sliding_attention for the others"
    )


def _layer_types(every: int, depth: int) -> list[str]:
    return ["sliding_attention" if (i + 1) % every else "full_attention" for i in range(depth)]


def _begin_token(directory: PretrainedDirectory, tokenizer: Tokenizer, search: Values) -> Values:
    """Return the token that tokenizer.json has before each text, and the decoder's first input."""
    no_languages(directory, tokenizer, search)
    frame = _frame(read_settings(directory.path / PIPELINE_FILE))
    begin = tokenizer.tokens([tokenizer.bos_id])[0]
    if frame not in (["A"], [begin, "A"]):
        directory.refuse(
            f"post_processor has {shown(frame)}: only {begin} may be put before a text", file=PIPELINE_FILE
        )
    start_id = directory.typed(directory.generation_file).whole_number("decoder_start_token_id")
    languages = {"start_id": read_special_id(directory, "bos_token_id") if start_id is None else start_id}
    return languages if frame == ["A"] else languages | {"src_tag": begin}


def _frame(pipeline: Settings) -> list[Any]:
    """Return a text, "A", with the special tokens that tokenizer.json puts around it."""
    processor = pipeline.get("post_processor") or {}
    single = processor.get("single") if isinstance(processor, Mapping) else None
    return [next(iter(each.values())).get("id") for each in single or [{"Sequence": {"id": "A"}}]]


T5GEMMA = Family(
    layout="t5gemma",
    model_type="t5gemma",
    config=_flat,
    weights=Table(_ROWS, transforms=_TRANSFORMS, facts=_FACTS, adapt=_with_scalar),
    classes=("GemmaTokenizer", "T5GemmaTokenizer"),
    languages=_begin_token,
    source_eos=False,
    keys=Keys(
        read=columns(
            """
            hidden_size              d_model
            intermediate_size        d_ff
            head_dim                 d_k d_v
            num_attention_heads      num_heads
            num_key_value_heads      num_kv_heads
            encoder_layers           num_encoder_layers
            decoder_layers           num_decoder_layers
            rms_norm_eps             layer_norm_eps
            attn_logit_softcapping   attention_cap
            final_logit_softcapping  output_cap
            dropout_rate             dropout activation_dropout
            attention_dropout        attention_dropout
            full_attention_every     full_attention_every
            rotary_base              rotary_base
            rotary_scale             rotary_scale
            rotary_window_base       rotary_window_base
            encoder_window           encoder_window
            decoder_window           decoder_window
            """
        ),
        choices={"hidden_activation": named("activation", ACTIVATIONS)},
        fixed=FIXED | allowed("false attention_bias"),
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
    keys=replace(  # transformers has the cap of scores among the settings, and does not apply it
        T5GEMMA.keys,
        read={key: names for key, names in T5GEMMA.keys.read.items() if names != ("attention_cap",)},
        fixed=FIXED | allowed("false attention_bias\nnull attn_logit_softcapping"),
    ),
)
# Keys that are not in the settings of a stack, or not under these names.
_OF_FLAT = split(
    """
    dropout_rate attention_dropout full_attention_every encoder_layers decoder_layers encoder_window
    decoder_window rotary_base rotary_scale rotary_window_base
    """
)
_CLASSES = {"t5gemma": "T5GemmaForConditionalGeneration", "t5gemma2": "T5Gemma2ForConditionalGeneration"}
_POSITIONS = {"t5gemma": 8192, "t5gemma2": 131_072}  # of the published models; no position has a weight
# The smallest parts for images that transformers can load.
_VISION = {
    "model_type": "siglip_vision_model", "hidden_size": 1, "intermediate_size": 1, "num_hidden_layers": 0,
    "num_attention_heads": 1, "image_size": 1, "patch_size": 1, "vision_use_head": False,
}  # fmt: skip


def export_t5gemma(bundle: Bundle, output: Path) -> None:
    """Write config.json, generation_config.json, model.safetensors, the tokenizer files and a README.

    A model with merged attention becomes a T5Gemma 2. The logits are the same. Search settings that
    `generate` lacks are approximated, and the README says so.

    Args:
        bundle: the model; it is not changed.
        output: the directory to create, atomically.

    Raises:
        RunError: the output exists.
        InteropError: T5Gemma does not have a setting of the model, or its tokenizer.
    """
    refuse_changed(bundle.model, "t5gemma")
    family = T5GEMMA2 if bundle.model.config.decoder_unit == "merged" else T5GEMMA
    special_tokens = SpecialTokens.of(bundle.config, bundle.tokenizers)
    config = _architecture(bundle.model.config, family)
    _refuse_other_text(bundle, special_tokens)
    tgt, kind = bundle.tokenizers.tgt, _CLASSES[family.model_type]
    longest = bundle.config.decode.max_source_tokens or _POSITIONS[family.model_type]
    ids = {f"{name}_token_id": getattr(tgt, f"{name}_id") for name in ("pad", "bos", "eos")}
    search = write_search(bundle.config, special_tokens, tgt, max_positions=longest)
    settings = {
        CONFIG_FILE: config | ids | {"architectures": [kind], "max_position_embeddings": longest},
        GENERATION_FILE: search,
        TOKENIZER_FILE: special_names(tgt) | {"tokenizer_class": "PreTrainedTokenizerFast"},
    }
    write_pretrained(
        output,
        bundle.model,
        tensors=_tensors(bundle.model, family),
        settings=settings,
        files={PIPELINE_FILE: tgt.to_files()[PIPELINE]},
        notes=("The logits equal the exported bundle's.", *inexact_settings(bundle.config.decode)),
        title="T5Gemma 2" if family is T5GEMMA2 else "T5Gemma",
        kind=kind,
        tokenizer="AutoTokenizer",
        options=', attn_implementation="eager"',
        example="",
    )


def _architecture(model: ModelConfig, family: Family) -> Values:
    """Return the settings of config.json, with an object for each stack: the reverse of `_flat`.

    Raises:
        InteropError: the model has a setting that the family lacks.
    """
    if model.d_model % model.num_heads:
        raise InteropError(f"--to t5gemma: model.num_heads={model.num_heads} must divide model.d_model there")
    deepest = max(model.num_encoder_layers, model.num_decoder_layers)
    model = model.replace(full_attention_every=min(model.full_attention_every, deepest + 1))
    if family is T5GEMMA2:
        model = model.replace(rotary_window_base=model.rotary_window_base or model.rotary_base)
    elif model.rotary_scale != 1 and model.full_attention_every > 1:
        raise InteropError(
            f"--to t5gemma: model.rotary_scale={model.rotary_scale:g} is for windowed layers too there"
        )
    exported = family.keys.export(model)
    flat = {key: value for key, value in exported.items() if key not in _OF_FLAT}
    shared = {key: exported[key] for key in ("dropout_rate", "attention_dropout")}
    depths = {"encoder": model.num_encoder_layers, "decoder": model.num_decoder_layers}
    rope: Values = {"rope_type": "default", "rope_theta": model.rotary_base}
    if model.rotary_scale != 1:
        rope |= {"rope_type": "linear", "factor": model.rotary_scale}
    is_version_2 = family is T5GEMMA2
    if is_version_2:
        local = {"rope_type": "default", "rope_theta": model.rotary_window_base}
        rope = {"full_attention": rope, "sliding_attention": local}
    stacks: Values = {
        stack: flat | {
            "num_hidden_layers": depth,
            "layer_types": _layer_types(model.full_attention_every, depth),
            "query_pre_attn_scalar": model.head_key_size,
            "rope_parameters": rope,
            "sliding_window": 4096 if model.decoder_window is None else model.decoder_window + 1,
            "vocab_size": model.tgt_vocab_size,
        }
        for stack, depth in depths.items()
    }  # fmt: skip
    config = shared | stacks | {
        "is_encoder_decoder": True,
        "model_type": family.model_type,
        "tie_word_embeddings": model.tied in SHARED_OUTPUT,
        "vocab_size": model.tgt_vocab_size,
    }  # fmt: skip
    if is_version_2:
        # The tokens of images get an id that no token of a text has.
        images = dict.fromkeys(
            ("boi_token_index", "eoi_token_index", "image_token_index"), model.tgt_vocab_size
        )
        text = {"text_config": stacks["encoder"], "vision_config": _VISION, "mm_tokens_per_image": 1}
        config |= {"encoder": text | images, "eoi_token_index": model.tgt_vocab_size}
    directory = PretrainedDirectory(Path(), config, {}, CONFIG_FILE, {}, ImportOptions(settings={}))
    back = family.keys.settings(TypedSettings(_flat(directory), "the export"))
    if is_version_2:
        back["tied"] = "all"
    refuse_lost(model, {**family.weights.facts, **back}, "t5gemma")
    return config


def _refuse_other_text(bundle: Bundle, special_tokens: SpecialTokens) -> None:
    """Refuse tokenizers other than one tokenizer.json that adds the special tokens of a source itself."""
    src, tgt, model = bundle.tokenizers.src, bundle.tokenizers.tgt, bundle.model.config
    if src is not tgt or not isinstance(tgt, HuggingFaceTokenizer):
        raise InteropError("--to t5gemma: the model has no tokenizer.json for source and target; use its ids")
    pipeline = parse_json(tgt.to_files()[PIPELINE])
    frame = _frame(pipeline if isinstance(pipeline, Mapping) else {})
    wanted = [*tgt.tokens(special_tokens.src_prefix), "A", *tgt.tokens(special_tokens.src_suffix)]
    if frame != wanted or special_tokens.tgt_prefix or model.src_vocab_size != model.tgt_vocab_size:
        raise InteropError(
            f"--to t5gemma: a source is {shown(wanted)}, in tokenizer.json {shown(frame)}, and an output "
            f"begins with {shown(tgt.tokens(special_tokens.tgt_prefix))}, which has no setting there"
        )


def _tensors(model: Transformer, family: Family) -> Tensors:
    """Return the tensors by transformers' names; a shared matrix is there once."""
    config = model.config
    weights = {
        name: each.detach().float().contiguous()
        for name, each in model.named_parameters(remove_duplicate=False)
    }
    depths = {stack: getattr(config, f"num_{stack}_layers") for stack in STACKS}
    tensors = family.weights.export(weights, depths)
    if config.tied in SHARED_OUTPUT:
        del tensors["lm_head.out_proj.weight"]
    decoder = "model.decoder.embed_tokens.weight"
    if family is T5GEMMA2:
        del tensors[decoder]
        return tensors | _image_tensors(config.d_model)
    return tensors | {decoder: tensors[decoder].clone()}  # two matrices there, even if they are one here


def _image_tensors(d_model: int) -> Tensors:
    """Return zeros for the tensors of `_VISION`."""
    shapes: dict[str, tuple[int, ...]] = {
        "embed_tokens.eoi_embedding": (d_model,),
        "multi_modal_projector.mm_input_projection_weight": (1, d_model),
        "multi_modal_projector.mm_soft_emb_norm.weight": (1,),
        "vision_tower.embeddings.patch_embedding.weight": (1, 3, 1, 1),
        "vision_tower.embeddings.patch_embedding.bias": (1,),
        "vision_tower.embeddings.position_embedding.weight": (1, 1),
        "vision_tower.post_layernorm.weight": (1,),
        "vision_tower.post_layernorm.bias": (1,),
    }
    return {f"model.encoder.{name}": torch.zeros(shape) for name, shape in shapes.items()}
