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

# Its numbers of activations, as far as they are here.
_ACTIVATIONS = {0: "relu", 1: "gelu_tanh", 2: "swish", 3: "gelu"}
_OTHER_ACTIVATIONS = {4: "GELUSigmoid", 5: "Tanh", 6: "Sigmoid"}
_NUM_HEADS = {"TransformerBase": 8, "TransformerBig": 16}  # of files that do not say it
_SPECS = ("TransformerSpec", *_NUM_HEADS)
_TOLERANCE = 2e-6  # of sinusoids that were computed elsewhere
_ALL = slice(None)
# Last parts of names: variables that must have this value or be absent, and those without effect on outputs.
_FIXED = {
    "alibi": 0.0,
    "embeddings_merge": 0.0,
    "final_logit_softcapping": 0.0,
    "layer_norm_use_residual": 0.0,
    "multi_query": 0.0,
    "multi_query_attention": 0.0,
    "scale_outputs": 0.0,
    "sliding_window": 0.0,
}
_WITHOUT_EFFECT = ("alibi_use_positive_positions", "alignment_heads", "alignment_layer", "scale_alibi")
_READ_ELSEWHERE = {
    "decoder/start_from_zero_embedding", "with_source_bos", "with_source_eos", "with_target_bos",
    "user_decoder_start_tokens", "unk_token", "bos_token", "eos_token",
}  # fmt: skip
# Keys that the user may set otherwise; all others are facts.
_FREE = ("positions", "layer_norm_eps", "decoder_start_id", "src_pad_id", "tgt_pad_id")


@dataclass(frozen=True)
class AddedRows:
    """Tokens that the vocabularies lack, each a row of zeros that is never written.

    Attributes:
        src: their number in the source.
        tgt: their number in the target; in a joint vocabulary the same.
    """

    src: int
    tgt: int


def source_tokens(model: ModelFile) -> str:
    """Return the name of the source embedding, which has no number in older files."""
    older = TOKENS["encoder"].replace("_0", "")
    return older if older in model and TOKENS["encoder"] not in model else TOKENS["encoder"]


@dataclass(frozen=True)
class _StoredRows:
    """Reads rows of a weight in float32: those of a variable, then added ones.

    Attributes:
        model: the file.
        name: of the variable.
        first: its row that is the weight's first.
        shape: of the weight.
        num_added: so many of its rows follow those of the variable.
        fill: the value of added rows.
        factor: of the other rows.
    """

    model: ModelFile
    name: str
    first: int
    shape: tuple[int, ...]
    num_added: int
    fill: float
    factor: float

    def __call__(self, stored: Tensor) -> Tensor:
        """Return all rows."""
        return self.rows(stored, 0, self.shape[0])

    def rows(self, _: Tensor, start: int, stop: int) -> Tensor:
        """Return rows from `start` to before `stop`, which are read from the file each time."""
        end = self.shape[0] - self.num_added
        rows = slice(self.first + min(start, end), self.first + min(stop, end))
        values = self.model.rows(self.name, rows)
        self.model.release()
        if self.factor != 1.0:
            values *= np.float32(self.factor)
        if stop > end:
            fill = np.full((stop - max(start, end), *self.shape[1:]), self.fill, np.float32)
            values = np.concatenate([values, fill])
        return torch.from_numpy(values)


def _stored_weights(
    model: ModelFile, config: ModelConfig, added: AddedRows, scales: Mapping[str, float]
) -> tuple[dict[str, Tensor], set[str]]:
    """Return the weights by the names of a bundle, each read when it is used, and the variables they are in.

    Args:
        model: the file.
        config: of the model with the added rows.
        added: numbers of rows.
        scales: factors of weights, by their names; others have none.

    Raises:
        InteropError: a weight is missing or has another shape.
    """
    shapes = weight_shapes(config)
    fills = {"output.bias": NEVER}
    num_added = {"encoder.embedding.tokens.weight": added.src}
    num_added |= dict.fromkeys(("decoder.embedding.tokens.weight", "output.weight", "output.bias"), added.tgt)
    stored: dict[str, _StoredRows] = {}
    for theirs, names in weight_names(config).items():
        theirs = source_tokens(model) if theirs == TOKENS["encoder"] else theirs
        ours = [name for name in names if name in shapes]
        if not ours or (theirs not in model and theirs.endswith("/bias")):
            continue  # biases that are missing are zeros
        sizes = [shapes[name][0] - num_added.get(name, 0) for name in ours]
        expected = (sum(sizes), *shapes[ours[0]][1:])
        if model.shape(theirs) != expected:
            raise model.error(f"{theirs!r} has shape {model.shape(theirs)}, but the others need {expected}")
        for i, name in enumerate(ours):
            stored[name] = _StoredRows(
                model, theirs, sum(sizes[:i]), tuple(shapes[name]), num_added.get(name, 0),
                fills.get(name, 0.0), scales.get(name, 1.0),
            )  # fmt: skip
    weights: dict[str, Tensor] = {}
    for name, shape in shapes.items():
        if name in stored:
            weights[name] = DeferredTensor(torch.empty(0), stored[name], shape)
            continue
        weights[name] = torch.zeros(shape)
        if name in fills:
            weights[name][shape[0] - num_added[name] :] = fills[name]
    return weights, {each.name for each in stored.values()}


class Architecture:
    """Reads the settings of a model from its model.bin; every variable is either read or refused."""

    def __init__(self, model: ModelFile) -> None:
        self._model = model
        self._read = set(_READ_ELSEWHERE)

    def facts(self, *, one_vocabulary: bool, epsilon: float | None) -> dict[str, Any]:
        """Return the settings of the model.

        Args:
            one_vocabulary: of source and target.
            epsilon: of norms; None: CTranslate2's.

        Raises:
            InteropError: a variable is not supported.
        """
        if self._model.spec not in _SPECS:
            raise self._model.error(
                f"a model of the kind {shown(self._model.spec)}; there are {', '.join(_SPECS)}"
            )
        first = "encoder/layer_0"
        biases = [name for name in self._model if name.endswith("/bias")]
        has_beta = f"{first}/ffn/layer_norm/beta" in self._model
        src, tgt = source_tokens(self._model), TOKENS["decoder"]
        d_model = self._sizes(src, 2)[1]
        norms = [f"{stack}/layernorm_embedding/gamma" in self._model for stack in STACKS]
        num_heads = self._same("num_heads", _NUM_HEADS.get(self._model.spec, 8))
        facts: dict[str, Any] = {
            "d_model": d_model,
            "num_heads": num_heads,
            "d_ff": self._sizes(f"{first}/ffn/linear_0/weight", 2)[0],
            "src_vocab_size": self._sizes(src, 2)[0],
            "tgt_vocab_size": self._sizes(tgt, 2)[0],
            "num_encoder_layers": self._num_layers("encoder"),
            "num_decoder_layers": self._num_layers("decoder"),
            "activation": self._activation(),
            "gated": f"{first}/ffn/linear_0_noact/weight" in self._model,
            "norm": "pre" if self._same("pre_norm", 1) else "post",
            "norm_kind": "layer" if has_beta else "rms",
            "tied": self._ties(src, tgt, one_vocabulary=one_vocabulary),
            "attention_bias": any("attention/linear" in name for name in biases),
            "feed_forward_bias": any("/ffn/" in name for name in biases),
            "output_bias": f"{OUTPUT}/bias" in biases,
            "scale_embeddings": self._scales_embeddings(d_model),
            "embedding_norm": norms[0] and (norms[1] or "encoder"),
            "final_norm": "encoder/layer_norm/gamma" in self._model,
            "layer_norm_eps": epsilon or (1e-5 if has_beta else 1e-6),
        }
        if facts["norm"] == "pre":
            facts["final_norm"] = False  # pre-norm stacks have one anyway
        return facts | self._positions(d_model) | self._heads(num_heads, d_model)

    def weights(
        self, facts: Mapping[str, Any], settings: Mapping[str, Any], added: AddedRows
    ) -> tuple[ModelConfig, dict[str, Tensor]]:
        """Return the configuration of a model, and its weights.

        Args:
            facts: from `facts`, and the ids of special tokens.
            settings: the user's.
            added: rows of tokens that the vocabularies lack.

        Raises:
            InteropError: a setting contradicts the file, a weight is missing or has another shape, or a
                variable is not supported.
            ConfigError: the settings are invalid.
        """
        for key, value in settings.items():
            if key in facts and key not in _FREE and value != facts[key]:
                raise self._model.error(
                    f"model.{key}={shown(value)} contradicts the file: it is {facts[key]}"
                )
        sizes = {f"{language}_vocab_size": facts[f"{language}_vocab_size"] for language in ("src", "tgt")}
        sizes["src_vocab_size"] += added.src
        sizes["tgt_vocab_size"] += added.tgt
        bias = {"output_bias": True} if added.tgt else {}
        model: Any = {"dropout": 0.0, **facts, **settings, **sizes, **bias}
        config = Config(model=model).model
        weights, used = _stored_weights(self._model, config, added, self._query_scales(config))
        self._refuse_the_rest(used)
        return config, weights

    def _query_scales(self, config: ModelConfig) -> dict[str, float]:
        """Return the factors of queries by the names of weights, where scores are not scaled as in 3.2.1."""
        factors = {}
        for theirs, ours in weight_names(config).items():
            if not ours[0].endswith(("attention.query.weight", "attention.query.bias")):
                continue
            name = f"{theirs.rsplit('/', 2)[0]}/queries_scale"
            factor = self._number(name, config.head_key_size**-0.5) * config.head_key_size**0.5
            if not 1e-6 < factor < 1e6:
                raise self._model.error(f"{name}={factor:g} times the paper's is not supported")
            if abs(factor - 1) > 1e-6:
                factors[ours[0]] = factor
        return factors

    def _refuse_the_rest(self, used: set[str]) -> None:
        """Refuse variables that nothing has read."""
        tied = {f"{OUTPUT}/weight", TOKENS["decoder"]}
        scales = {f"{name}_scale" for name in used | tied}
        for name in self._model:
            last = name.rpartition("/")[2]
            if name in self._read | used | scales | tied or last in _WITHOUT_EFFECT:
                continue
            if last not in _FIXED:
                raise self._model.error(f"{name!r} is not supported, and would change the outputs")
            value = self._model.scalar(name, 0.0)
            if value != _FIXED[last] and not (last == "scale_outputs" and value == 1):
                raise self._model.error(f"{name}={value:g} is not supported, and would change the outputs")

    def _number(self, name: str, default: float) -> float:
        self._read.add(name)
        return self._model.scalar(name, default)

    def _same(self, key: str, default: int) -> int:
        """Return a number that must be the same in both stacks; older files have one for both."""
        values = [self._number(f"{stack}/{key}", self._number(key, default)) for stack in STACKS]
        if values[0] != values[1]:
            raise self._model.error(
                f"encoder/{key}={values[0]:g} and decoder/{key}={values[1]:g} differ; they must be equal"
            )
        return int(values[0])

    def _sizes(self, name: str, rank: int) -> tuple[int, ...]:
        shape = self._model.shape(name)
        if len(shape) != rank or not all(shape):
            raise self._model.error(f"{name!r} has shape {shape}, no matrix's")
        return shape

    def _ties(self, src: str, tgt: str, *, one_vocabulary: bool) -> str:
        """Return which matrices are tied: those that are equal."""
        if not self._model.equal(tgt, f"{OUTPUT}/weight"):
            return "none"
        return "all" if one_vocabulary and self._model.equal(src, tgt) else "target"

    def _num_layers(self, stack: str) -> int:
        i = 0
        while f"{stack}/layer_{i}/ffn/linear_0/weight" in self._model:
            i += 1
        return i

    def _activation(self) -> str:
        number = self._same("activation", 0)
        if number not in _ACTIVATIONS:
            name = _OTHER_ACTIVATIONS.get(number, str(number))
            raise self._model.error(
                f"the activation {name} is not supported; there are {', '.join(ACTIVATIONS)}"
            )
        return _ACTIVATIONS[number]

    def _scales_embeddings(self, d_model: int) -> bool:
        """Return whether embeddings are multiplied by the root of d_model; a flag, or the factor."""
        scales = []
        for stack in STACKS:
            names = f"{stack}/scale_embeddings", f"{stack}/embeddings/multiply_by_sqrt_depth"
            name = next((each for each in names if each in self._model), names[0])
            value = self._number(name, d_model**0.5)
            if self._model.is_flag(name):
                value = d_model**0.5 if value else 1.0
            scales.append(value)
        for value in (1.0, d_model**0.5):
            if all(abs(each / value - 1) < 1e-6 for each in scales):
                return value != 1.0
        raise self._model.error(f"scale_embeddings={scales} is neither 1 nor the root of {d_model}")

    def _positions(self, d_model: int) -> dict[str, Any]:
        """Return which sinusoids the tables are; all others are learned."""
        tables = [f"{stack}/position_encodings/encodings" for stack in STACKS]
        self._read.update(tables)
        there = [name for name in tables if name in self._model]
        if not there:
            return {"positions": SINUSOIDS}
        shapes = {self._model.shape(name) for name in tables}
        if len(shapes) > 1:
            raise self._model.error(f"{' and '.join(tables)} differ in size; they must be equal")
        (length, _), *_ = (self._sizes(name, 2) for name in tables)
        stored = [torch.from_numpy(self._model.rows(name, _ALL)) for name in tables]
        for name, formula in FORMULAS.items() if d_model % 2 == 0 else ():
            table = formula(length, d_model)
            if all(
                each.shape == table.shape and bool((each - table).abs().max() <= _TOLERANCE)
                for each in stored
            ):
                return {"positions": name}
        return {"positions": "learned", "max_positions": length}

    def _heads(self, num_heads: int, d_model: int) -> dict[str, int]:
        """Return the sizes of heads, the same in all attentions."""
        sizes = {}
        for key, ours in (("num_heads_kv", "num_kv_heads"), ("head_dim", "d_k")):
            names = [name for name in self._model if name.endswith(f"/{key}")]
            values = {self._number(name, 0) for name in names}
            if len(values) > 1:
                raise self._model.error(f"{names[0]!r} and others differ; they must be equal")
            if values:
                sizes[ours] = int(values.pop())
        if sizes.get("num_kv_heads") == num_heads:
            del sizes["num_kv_heads"]
        if "d_k" in sizes:
            size = sizes.pop("d_k")
            if size * num_heads != d_model:
                sizes |= {"d_k": size, "d_v": size}
        return sizes
