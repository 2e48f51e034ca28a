"""The architecture of a CTranslate2 model, and its weights by the names of a bundle, in blocks of rows."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from heedful.interop.conversion import STACKS, DeferredTensor
from heedful.interop.ctranslate2.binary import ModelFile
from heedful.interop.ctranslate2.names import ACTIVATIONS, OUTPUT, SINUSOIDS, TOKENS, weight_names
from heedful.interop.vocabulary import NEVER
from heedful.model.transformer import SINUSOIDS as FORMULAS
from heedful.settings.model import ModelConfig
from heedful.settings.parsing import shown
from heedful.settings.run import Config
from heedful.storage.weights_file import weight_shapes

# The kinds of models, and the number of heads where the file does not say it.
_SPECS = {"TransformerSpec": 8, "TransformerBase": 8, "TransformerBig": 16}
_NUMBERS = ("relu", "gelu_tanh", "swish", "gelu", "GELUSigmoid", "Tanh", "Sigmoid")  # of activations, there
_TOLERANCE = 2e-6  # of sinusoids that were computed elsewhere
# Last parts of names: variables that must have one of these values or be absent; those without effect on
# outputs; those that are read.
FIXED: Mapping[str, tuple[float, ...]] = {
    "alibi": (0,),
    "embeddings_merge": (0,),
    "final_logit_softcapping": (0,),
    "layer_norm_use_residual": (0,),
    "multi_query": (0,),
    "multi_query_attention": (0,),
    "scale_outputs": (0, 1),
    "sliding_window": (0,),
}
KNOWN = frozenset(
    (
        "activation", "alibi_use_positive_positions", "alignment_heads", "alignment_layer", "bos_token",
        "encodings", "eos_token", "head_dim", "multiply_by_sqrt_depth", "num_heads", "num_heads_kv",
        "pre_norm", "queries_scale", "scale_alibi", "scale_embeddings", "start_from_zero_embedding",
        "unk_token", "user_decoder_start_tokens", "with_source_bos", "with_source_eos", "with_target_bos",
    )
)  # fmt: skip
# Keys that the user may set otherwise; all others are facts.
_FREE = ("positions", "layer_norm_eps", "decoder_start_id", "src_pad_id", "tgt_pad_id")


def _source_tokens(model: ModelFile) -> str:
    """Return the name of the source embedding, which has no number in older files."""
    older = TOKENS["encoder"].replace("_0", "")
    return older if older in model and TOKENS["encoder"] not in model else TOKENS["encoder"]


@dataclass(frozen=True)
class _StoredRows:
    """Reads rows of a weight in float32 from a variable, with added rows behind them.

    Attributes:
        model: the file.
        name: the name of the variable.
        first: the row of the variable that is the weight's first.
        shape: the weight's.
        num_added: the number of added rows, which are part of the shape.
        fill: the value of added rows.
        factor: of the other rows.
    """

    model: ModelFile
    name: str
    first: int
    shape: tuple[int, ...]
    num_added: int = 0
    fill: float = 0.0
    factor: float = 1.0

    def __call__(self, stored: Tensor) -> Tensor:
        """Return all rows."""
        return self.rows(stored, 0, self.shape[0])

    def rows(self, _: Tensor, start: int, stop: int) -> Tensor:
        """Return rows from `start` to before `stop`, which are read from the file each time."""
        end = self.shape[0] - self.num_added
        values = self.model.rows(self.name, slice(self.first + min(start, end), self.first + min(stop, end)))
        self.model.release()
        if self.factor != 1.0:
            values *= np.float32(self.factor)
        if stop > end:
            fill = np.full((stop - max(start, end), *self.shape[1:]), self.fill, np.float32)
            values = np.concatenate([values, fill])
        return torch.from_numpy(values)


def read_facts(model: ModelFile, *, one_vocabulary: bool, epsilon: float | None) -> dict[str, Any]:
    """Return the settings of a model.

    Args:
        model: the file.
        one_vocabulary: whether source and target share it.
        epsilon: of norms; None: CTranslate2's.

    Raises:
        InteropError: a variable is not supported.
    """
    is_known = model.spec in _SPECS
    model.require(is_known, f"a model of the kind {shown(model.spec)}; there are {', '.join(_SPECS)}")
    first = "encoder/layer_0"
    biases = [name for name in model if name.endswith("/bias")]
    is_layer = f"{first}/ffn/layer_norm/beta" in model
    src, tgt = _source_tokens(model), TOKENS["decoder"]
    src_size, d_model = _sizes(model, src)
    norms = [f"{stack}/layernorm_embedding/gamma" in model for stack in STACKS]
    is_pre_norm = bool(_same(model, "pre_norm", 1))
    activation = int(_same(model, "activation", 0))
    name = _NUMBERS[activation] if 0 <= activation < len(_NUMBERS) else str(activation)
    known = ", ".join(ACTIVATIONS)
    model.require(name in ACTIVATIONS, f"the activation {name} is not supported; there are {known}")
    num_heads = int(_same(model, "num_heads", _SPECS[model.spec]))
    return {
        "d_model": d_model,
        "num_heads": num_heads,
        "d_ff": _sizes(model, f"{first}/ffn/linear_0/weight")[0],
        "src_vocab_size": src_size,
        "tgt_vocab_size": _sizes(model, tgt)[0],
        **{f"num_{stack}_layers": _num_layers(model, stack) for stack in STACKS},
        "activation": name,
        "gated": f"{first}/ffn/linear_0_noact/weight" in model,
        "norm": "pre" if is_pre_norm else "post",
        "norm_kind": "layer" if is_layer else "rms",
        "tied": _ties(model, src, tgt, one_vocabulary=one_vocabulary),
        "attention_bias": any("attention/linear" in name for name in biases),
        "feed_forward_bias": any("/ffn/" in name for name in biases),
        "output_bias": f"{OUTPUT}/bias" in biases,
        "scale_embeddings": _scales_embeddings(model, d_model),
        "embedding_norm": norms[0] and (norms[1] or "encoder"),
        "final_norm": not is_pre_norm and "encoder/layer_norm/gamma" in model,
        "layer_norm_eps": epsilon or (1e-5 if is_layer else 1e-6),
        **_positions(model, d_model),
        **_heads(model, num_heads, d_model),
    }


def read_weights(
    model: ModelFile, facts: Mapping[str, Any], settings: Mapping[str, Any], added: Mapping[str, int]
) -> tuple[ModelConfig, dict[str, Tensor]]:
    """Return the configuration of a model, and its weights, each read when it is used.

    Args:
        model: the file; each of its variables is either used or refused.
        facts: from `read_facts`, and the ids of special tokens.
        settings: the user's.
        added: the numbers of tokens that the vocabularies "src" and "tgt" lack: rows of zeros, which are
            never written; in a joint vocabulary both are the same.

    Raises:
        InteropError: a setting contradicts the file, a weight is missing or has another shape, or a
            variable is not supported.
        ConfigError: the settings are invalid.
    """
    for key, value in settings.items():
        is_free = key not in facts or key in _FREE or value == facts[key]
        model.require(is_free, f"model.{key}={shown(value)} contradicts the file: it is {facts.get(key)}")
    sizes = {
        f"{language}_vocab_size": facts[f"{language}_vocab_size"] + added[language] for language in added
    }
    bias = {"output_bias": True} if added["tgt"] else {}
    section: Any = {"dropout": 0.0, **facts, **settings, **sizes, **bias}
    config = Config(model=section).model
    stored = _stored_rows(model, config, added)
    weights: dict[str, Tensor] = {}
    for name, shape in weight_shapes(config).items():
        if name in stored:
            weights[name] = DeferredTensor(torch.empty(0), stored[name], shape)
        else:
            weights[name] = torch.zeros(shape)  # a bias that is missing
            if name == "output.bias":
                weights[name][shape[0] - added["tgt"] :] = NEVER
    used = {each.name for each in stored.values()} | {f"{OUTPUT}/weight", TOKENS["decoder"]}
    for name in model:
        last = name.rpartition("/")[2]
        if name in used or name.removesuffix("_scale") in used or last in KNOWN:
            continue
        value = model.scalar(name, 0) if last in FIXED else None
        problem = f"{name!r}" if value is None else f"{name}={value:g}"
        is_fixed = value in FIXED.get(last, ())
        model.require(is_fixed, f"{problem} is not supported, and would change the outputs")
    return config, weights


def _stored_rows(model: ModelFile, config: ModelConfig, added: Mapping[str, int]) -> dict[str, _StoredRows]:
    """Return where the weights of a bundle are, by their names; biases may be missing."""
    shapes = weight_shapes(config)
    rows = dict.fromkeys(("decoder.embedding.tokens.weight", "output.weight", "output.bias"), added["tgt"])
    rows["encoder.embedding.tokens.weight"] = added["src"]
    stored = {}
    for theirs, names in weight_names(config).items():
        theirs = _source_tokens(model) if theirs == TOKENS["encoder"] else theirs
        ours = [name for name in names if name in shapes]
        if not ours or (theirs not in model and theirs.endswith("/bias")):
            continue
        sizes = [shapes[name][0] - rows.get(name, 0) for name in ours]
        expected = (sum(sizes), *shapes[ours[0]][1:])
        shape = model.shape(theirs)
        model.require(shape == expected, f"{theirs!r} has shape {shape}, but the others need {expected}")
        for i, name in enumerate(ours):
            stored[name] = _StoredRows(
                model,
                theirs,
                first=sum(sizes[:i]),
                shape=tuple(shapes[name]),
                num_added=rows.get(name, 0),
                fill=NEVER if name == "output.bias" else 0.0,
                factor=_query_factor(model, theirs, config) if ".query." in name else 1.0,
            )
    return stored


def _query_factor(model: ModelFile, theirs: str, config: ModelConfig) -> float:
    """Return the factor of queries where scores are not scaled as in section 3.2.1."""
    name = f"{theirs.rsplit('/', 2)[0]}/queries_scale"
    factor = model.scalar(name, config.head_key_size**-0.5) * config.head_key_size**0.5
    model.require(1e-6 < factor < 1e6, f"{name}={factor:g} times the paper's is not supported")
    return factor if abs(factor - 1) > 1e-6 else 1.0


def _same(model: ModelFile, key: str, default: float) -> float:
    """Return a number that must be the same in both stacks; older files have one for both."""
    one, other = (model.scalar(f"{stack}/{key}", model.scalar(key, default)) for stack in STACKS)
    problem = f"encoder/{key}={one:g} and decoder/{key}={other:g} differ; they must be equal"
    model.require(one == other, problem)
    return one


def _sizes(model: ModelFile, name: str) -> tuple[int, ...]:
    shape = model.shape(name)
    model.require(len(shape) == 2 and all(shape), f"{name!r} has shape {shape}, no matrix's")
    return shape


def _ties(model: ModelFile, src: str, tgt: str, *, one_vocabulary: bool) -> str:
    """Return which matrices are tied, because they are equal."""
    if not model.equal(tgt, f"{OUTPUT}/weight"):
        return "none"
    return "all" if one_vocabulary and model.equal(src, tgt) else "target"


def _num_layers(model: ModelFile, stack: str) -> int:
    i = 0
    while f"{stack}/layer_{i}/ffn/linear_0/weight" in model:
        i += 1
    return i


def _scales_embeddings(model: ModelFile, d_model: int) -> bool:
    """Return whether embeddings are multiplied by the root of d_model; a flag, or the factor."""
    root = d_model**0.5
    scales = []
    for stack in STACKS:
        names = f"{stack}/scale_embeddings", f"{stack}/embeddings/multiply_by_sqrt_depth"
        name = next((each for each in names if each in model), names[0])
        value = model.scalar(name, root)
        scales.append((root if value else 1.0) if model.is_flag(name) else value)
    known = [value for value in (1.0, root) if all(abs(each / value - 1) < 1e-6 for each in scales)]
    model.require(bool(known), f"scale_embeddings={scales} is neither 1 nor the root of {d_model}")
    return known[0] != 1.0


def _positions(model: ModelFile, d_model: int) -> dict[str, Any]:
    """Return which sinusoids the tables are; all others are learned."""
    names = [f"{stack}/position_encodings/encodings" for stack in STACKS]
    if not any(name in model for name in names):
        return {"positions": SINUSOIDS}
    shapes = [_sizes(model, name) for name in names]
    problem = f"{' and '.join(names)} differ in size; they must be equal"
    model.require(shapes[0] == shapes[1], problem)
    stored = [torch.from_numpy(model.rows(name, slice(None))) for name in names]
    length, width = shapes[0]
    for kind, formula in FORMULAS.items() if width == d_model and d_model % 2 == 0 else ():
        if all(bool(((each - formula(length, d_model)).abs() <= _TOLERANCE).all()) for each in stored):
            return {"positions": kind}
    return {"positions": "learned", "max_positions": length}


def _heads(model: ModelFile, num_heads: int, d_model: int) -> dict[str, int]:
    """Return the sizes of heads that differ from the paper's, the same in all attentions."""
    sizes = {}
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
