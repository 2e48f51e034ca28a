"""CTranslate2's variables as weights: one table, which imports read forwards and exports backwards.

Variables are read from the file when they are used, a few rows at a time.
"""

import fnmatch
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from heedful.interop.conversion import (
    STACKS,
    Conversion,
    DeferredTensor,
    Positions,
    Settings,
    Tensors,
    Values,
    is_formula,
    scaled,
)
from heedful.interop.ctranslate2.binary import ModelFile
from heedful.interop.keys import allowed, split
from heedful.interop.tables import Table
from heedful.model.transformer import SINUSOIDS as FORMULAS
from heedful.settings.parsing import shown

SINUSOIDS = "opennmt-tf"  # what CTranslate2 computes, without end, if a model has no table
ACTIVATIONS: Mapping[str, str] = {
    "relu": "RELU",
    "gelu": "GELU",
    "gelu_tanh": "GELUTanh",
    "swish": "SWISH",
}  # by their names in `ctranslate2.specs.Activation`
_NUMBERS = ("relu", "gelu_tanh", "swish", "gelu", "GELUSigmoid", "Tanh", "Sigmoid")  # of activations, there
# With a gate. Without one, there is no linear_0_noact, and linear_0 is the inner matrix.
GATED = Table(
    """
    {stack}/layer_{i}/                        {stack}.layers.{i}.
        self_attention/linear_0               self_attention.[query,key,value]
        self_attention/linear_1               self_attention.output
        attention/linear_0                    cross_attention.query
        attention/linear_1                    cross_attention.[key,value]
        attention/linear_2                    cross_attention.output
        ffn/linear_{0,0_noact,1}              feed_forward.{gate,inner,outer}
        {self_attention,attention}/layer_norm/{gamma,beta}  {self,cross}_attention_norm.{weight,bias}
        ffn/layer_norm/{gamma,beta}           feed_forward_norm.{weight,bias}
    {stack}/layer_norm/{gamma,beta}           {stack}.final_norm.{weight,bias}
    {stack}/layernorm_embedding/{gamma,beta}  {stack}.embedding.norm.{weight,bias}
    {stack}/position_encodings/encodings      {stack}.embedding.positions.weight
    encoder/embeddings_0/weight|encoder/embeddings/weight  encoder.embedding.tokens.weight
    decoder/embeddings/weight                 decoder.embedding.tokens.weight
    decoder/projection                        output
    """,
    positions=Positions(learned=True, required=False),
)
PLAIN = replace(
    GATED,
    rows=GATED.rows.replace("{0,0_noact,1}", "{0,1}").replace("{gate,inner,outer}", "{inner,outer}"),
)
_FIRST_LAYER = "encoder/layer_0/ffn"
# The kinds of models, and the number of heads if the file does not say it.
_SPECS = {"TransformerSpec": 8, "TransformerBase": 8, "TransformerBig": 16}
# Last parts of names: variables that must have one of these values or be absent, and variables that are read
# or have no effect on outputs.
FIXED = allowed(
    """
    0    alibi embeddings_merge final_logit_softcapping layer_norm_use_residual
    0    multi_query multi_query_attention sliding_window
    0|1  scale_outputs
    """
)
KNOWN = split(
    """
    activation alibi_use_positive_positions alignment_heads alignment_layer bos_token eos_token head_dim
    multiply_by_sqrt_depth num_heads num_heads_kv pre_norm queries_scale scale_alibi scale_embeddings
    start_from_zero_embedding unk_token user_decoder_start_tokens with_source_bos with_source_eos
    with_target_bos
    """
)
# Facts that the user may set otherwise.
_FREE = {"alignment_heads", "alignment_layer", "positions", "layer_norm_eps"}


@dataclass(frozen=True, eq=False)
class _Variable:
    """Reads a variable of the file in float32, instead of decoding a stored tensor.

    It equals another variable with the same bytes.
    """

    model: ModelFile
    name: str

    def __call__(self, _stored: Tensor) -> Tensor:
        return self.rows(_stored, 0, self.model.shape(self.name)[0])

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Variable) and self.model.equal(self.name, other.name)

    __hash__ = None  # type: ignore[assignment]

    def rows(self, _stored: Tensor, start: int, stop: int) -> Tensor:
        """Return rows from `start` to before `stop`, which are read from the file each time."""
        values = torch.from_numpy(self.model.rows(self.name, slice(start, stop)))
        self.model.release()
        return values


def convert(model: ModelFile, settings: Settings, *, epsilon: float | None) -> tuple[Conversion, Values]:
    """Move all weights of a model; return them and the settings for `Conversion.finish`.

    Args:
        model: the file.
        settings: the settings that the user and the vocabularies give.
        epsilon: the epsilon of norms; None: CTranslate2's.

    Raises:
        InteropError: a variable is not supported, or contradicts a setting.
    """
    tensors: Tensors = {}
    for name in model:
        last = name.rpartition("/")[2]
        is_scale = name.endswith("_scale") and name.removesuffix("_scale") in model
        if last in FIXED:
            value = model.scalar(name, 0)
            model.require(
                value in FIXED[last], f"{name}={value:g} is not supported, and would change the outputs"
            )
        elif last not in KNOWN and not is_scale:
            tensors[name] = DeferredTensor(torch.empty(0), _Variable(model, name), model.shape(name))
    facts = _facts(model, epsilon, settings)
    for key in (settings.keys() & facts.keys()) - _FREE:
        model.require(
            settings[key] == facts[key],
            f"model.{key}={shown(settings[key])} contradicts the file: it is {facts[key]}",
        )
    if facts["positions"] != "learned":
        for name in fnmatch.filter(tensors, "*/encodings"):
            del tensors[name]
    heads: Values = {key: facts[key] for key in facts.keys() & {"num_heads", "num_kv_heads"}}
    conversion = Conversion(tensors, layout="ctranslate2", origin=model.path, settings={**settings, **heads})
    (GATED if facts["gated"] else PLAIN).move(conversion)
    for ours in fnmatch.filter(conversion.moved, "*query.weight"):
        factor = _query_factor(model, conversion.names[ours], facts)
        if abs(factor - 1) > 1e-6:
            conversion.moved[ours] = scaled(conversion.moved[ours], factor)
    return conversion, facts


def _facts(model: ModelFile, epsilon: float | None, settings: Settings) -> Values:
    """Return the settings of `ModelConfig` that the shapes of weights do not show."""
    model.require(
        model.spec in _SPECS, f"a model of the kind {shown(model.spec)}; there are {', '.join(_SPECS)}"
    )
    d_model = _sizes(model, "decoder/embeddings/weight")[1]
    is_layer = f"{_FIRST_LAYER}/layer_norm/beta" in model
    activation = int(_same(model, "activation", 0))
    name = dict(enumerate(_NUMBERS)).get(activation, str(activation))
    known = ", ".join(ACTIVATIONS)
    model.require(name in ACTIVATIONS, f"the activation {name} is not supported; there are {known}")
    num_heads = int(_same(model, "num_heads", _SPECS[model.spec]))
    model.require(num_heads > 0, f"num_heads={num_heads} is not a number of heads")
    return {
        "num_heads": num_heads,
        "activation": name,
        "gated": f"{_FIRST_LAYER}/linear_0_noact/weight" in model,
        "norm": "pre" if _same(model, "pre_norm", 1) else "post",
        "norm_kind": "layer" if is_layer else "rms",
        "scale_embeddings": _scales_embeddings(model, d_model),
        "layer_norm_eps": epsilon or (1e-5 if is_layer else 1e-6),
        "positions": settings.get("positions") or _positions(model, d_model),
        **_heads(model, num_heads, d_model),
        **_alignment(model, num_heads),
    }


def _alignment(model: ModelFile, num_heads: int) -> Values:
    """Return the heads that were trained to align words; {}: none are known.

    Converters write a negative layer, from the end, by default and not because it was trained.
    """
    layer = int(model.scalar("decoder/alignment_layer", -1))
    if layer < 0:
        return {}
    heads = int(model.scalar("decoder/alignment_heads", 1)) or num_heads  # 0: all
    return {"alignment_layer": layer + 1, "alignment_heads": heads}


def _query_factor(model: ModelFile, theirs: str, facts: Settings) -> float:
    """Return the factor of queries if scores are not scaled as in section 3.2.1."""
    name = f"{theirs.rsplit('/', 2)[0]}/queries_scale"
    d_k: int = facts.get("d_k") or facts["d_model"] // facts["num_heads"]
    factor = model.scalar(name, d_k**-0.5) * math.sqrt(d_k)
    model.require(1e-6 < factor < 1e6, f"{name}={factor:g} times the paper's is not supported")
    return factor


def _same(model: ModelFile, key: str, default: float) -> float:
    """Return a number that must be the same in both stacks; older files have one for both."""
    one, other = (model.scalar(f"{stack}/{key}", model.scalar(key, default)) for stack in STACKS)
    model.require(
        one == other, f"encoder/{key}={one:g} and decoder/{key}={other:g} differ; they must be equal"
    )
    return one


def _sizes(model: ModelFile, name: str) -> tuple[int, ...]:
    shape = model.shape(name)
    model.require(len(shape) == 2 and all(shape), f"{name!r} has shape {shape}, no matrix's")
    return shape


def _scales_embeddings(model: ModelFile, d_model: int) -> bool:
    """Return whether embeddings are multiplied by the root of d_model; a flag, or the factor."""
    root = d_model**0.5
    scales = []
    for stack in STACKS:
        names = f"{stack}/scale_embeddings", f"{stack}/embeddings/multiply_by_sqrt_depth"
        name = next(filter(model.__contains__, names), names[0])
        value = model.scalar(name, root)
        scales.append((root if value else 1.0) if model.is_flag(name) else value)
    known = [value for value in (1.0, root) if all(abs(each / value - 1) < 1e-6 for each in scales)]
    model.require(bool(known), f"scale_embeddings={scales} is neither 1 nor the root of {d_model}")
    return known[0] != 1.0


def _positions(model: ModelFile, d_model: int) -> str:
    """Return which sinusoids the tables are; all others are learned."""
    names = [f"{stack}/position_encodings/encodings" for stack in STACKS]
    if not any(map(model.__contains__, names)):
        return SINUSOIDS
    src, tgt = (_sizes(model, name) for name in names)
    model.require(src == tgt, f"{' and '.join(names)} differ in size; they must be equal")
    stored = [torch.from_numpy(model.rows(name, slice(None))) for name in names]
    for kind, formula in FORMULAS.items() if src[1] == d_model else ():
        if all(is_formula(table, Positions(formula=formula)) for table in stored):
            return kind
    return "learned"


def _heads(model: ModelFile, num_heads: int, d_model: int) -> dict[str, int]:
    """Return the sizes of heads that differ from the paper's, the same in all attentions."""
    sizes = {"d_model": d_model}
    for key, ours, usual in (
        ("num_heads_kv", "num_kv_heads", num_heads),
        ("head_dim", "d_k", d_model / num_heads),
    ):
        names = [name for name in model if name.endswith(f"/{key}")]
        values = {model.scalar(name, 0) for name in names}
        model.require(len(values) <= 1, f"{', '.join(names[:2])} and others differ; they must be equal")
        if values and values != {usual}:
            sizes[ours] = int(values.pop())
    return sizes | ({"d_v": sizes["d_k"]} if "d_k" in sizes else {})
