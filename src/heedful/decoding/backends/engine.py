"""A trained model on a CPU, computed by the native library without torch, with weights packed for it.

A decoding step of a small model is about a hundred short operations, and torch spends most of the time on
calling them. The engine computes a whole step in one call. Several threads search a batch each, or share the
work of a single one (`native/workers.h`). The engine multiplies in float32, in bfloat16 (if the CPU has
instructions for it) or in int8, with a scale for each output of the weights and each row of the activations.
A sentence is computed as if it were alone and by one thread: padding, the other rows of a batch and the
number of threads do not change a bit.

It also has RMSNorm, gates and relative biases, for T5's families. Torch computes what it lacks (see
`Engine.why_not`).
"""

import ctypes
import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import accumulate
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from heedful.decoding.steps import Ints, Singles
from heedful.errors import InputError
from heedful.runtime.native import (
    Functions,
    Layer,
    LayerChange,
    LayerChanges,
    Linear,
    Model,
    Norm,
    native,
)
from heedful.settings.model import SINUSOID_OFFSETS, ModelConfig
from heedful.settings.options import Precision
from heedful.storage.adapter import Adapter
from heedful.storage.weights_file import embedding_names, weight_shapes


def sinusoids(length: int, d_model: int, *, interleaved: bool = True) -> Singles:
    """Return the paper's sinusoids (length, d_model): see `model.positions.sinusoids` (3.5).

    Not interleaved, all sines come first: see `model.variants.concatenated_sinusoids`.
    """
    positions = np.arange(length, dtype=np.float64)[:, None]
    angles = positions / 10_000 ** (np.arange(0, d_model, 2, dtype=np.float64) / d_model)
    pairs = np.stack([np.sin(angles), np.cos(angles)], axis=-1 if interleaved else 1)
    return pairs.reshape(length, -1).astype(np.float32)


def offset_sinusoids(length: int, d_model: int, *, offset: int) -> Singles:
    """Return the sinusoids of Marian, OpenNMT-tf or fairseq: see `model.variants.OffsetSinusoids`.

    Angles are rounded to float32 where torch rounds them. The exponentials of torch, in float32, may differ
    by one unit in the last place, as they do between machines.
    """
    count = d_model // 2
    step = math.log(10_000) / max(1, count - 1)
    exponents = np.arange(count, dtype=np.float32) * np.float32(-step)
    frequencies = np.exp(exponents.astype(np.float64)).astype(np.float32)
    angles = (np.arange(offset, length + offset, dtype=np.float32)[:, None] * frequencies).astype(np.float64)
    return np.concatenate([np.sin(angles), np.cos(angles)], axis=1).astype(np.float32)


SINUSOIDS: dict[str, Callable[[int, int], Singles]] = {
    "sinusoidal": sinusoids,
    "concatenated": partial(sinusoids, interleaved=False),
    **{name: partial(offset_sinusoids, offset=offset) for name, offset in SINUSOID_OFFSETS.items()},
}


def _zeros(length: int, d_model: int) -> Singles:
    """Return the position vectors of models with relative positions."""
    return np.zeros((length, d_model), np.float32)


def biases_by_distance(weight: Singles, *, reach: int, bidirectional: bool) -> Singles:
    """Return T5's relative biases (H, 2 reach + 1), by key minus query: see `model.variants.BucketedBiases`.

    Args:
        weight: (buckets, H), a bias for each bucket of distances.
        reach: the distance from which on the last bucket is used.
        bidirectional: whether keys may be to the right of a query.
    """
    distances = np.arange(-reach, reach + 1)
    num_buckets, offset = len(weight), np.zeros_like(distances)
    if bidirectional:
        num_buckets //= 2
        offset, distances = (distances > 0) * num_buckets, np.abs(distances)
    else:
        distances = np.maximum(-distances, 0)
    num_exact = num_buckets // 2
    shares = np.maximum(distances, 1).astype(np.float32) / np.float32(num_exact)
    logarithms = np.log(shares.astype(np.float64)).astype(np.float32)
    steps = logarithms / np.float32(math.log(reach / num_exact)) * np.float32(num_buckets - num_exact)
    far = np.minimum(num_exact + steps.astype(np.int64), num_buckets - 1)
    return np.ascontiguousarray(weight[offset + np.where(distances < num_exact, distances, far)].T)


_PRECISIONS: dict[Precision, int] = {"float32": 0, "bf16": 1, "int8": 2}
_SIZES = {"float32": 4, "bf16": 2, "int8": 1}  # bytes of a weight
_ACTIVATIONS = {"relu": 1, "gelu": 2, "swish": 3, "gelu_tanh": 4}
_POSITIONS = (*SINUSOIDS, "learned", "relative")
_WIDTH_STEP = 32  # widths must be multiples of it, for the panels and groups of every level
FIRST_POSITIONS = 64  # the first size of tables of output positions

# The linear layers of a HeedfulLayer, in the order of its fields; those in one list are packed as one layer.
# A layer of a model has only some of them: a recurrent unit has no queries, an encoder no cross-attention.
_PACKED = (
    [f"self_attention.{name}" for name in ("forget", "input", "query", "key", "value")],
    ["self_attention.output"],
    ["cross_attention.query"],
    ["cross_attention.output"],
    ["feed_forward.inner"],
    ["feed_forward.outer"],
    ["feed_forward.gate"],
)
_SUBLAYERS = ("self_attention", "cross_attention", "feed_forward")

_OK, _NO_MEMORY, _BAD_ARGUMENT = range(3)  # results of native functions


class Engine:
    """The weights of a model, packed; they are copies, so a model that trains on needs a new engine."""

    def __init__(
        self,
        config: ModelConfig,
        weight: Callable[[str], Singles],
        precision: Precision,
        *,
        functions: Functions | None = None,
    ) -> None:
        """Pack a model.

        Args:
            config: the configuration of the model; `why_not` has no reason against it.
            weight: returns each weight by its name (`storage/weights_file.py`).
            precision: the precision of matrix multiplications.
            functions: the functions of a level of the native library; None: of the level in use.
        """
        functions = functions or native().functions
        assert functions is not None
        self._functions, self._config, self._weight = functions, config, weight
        self._names = weight_shapes(config).keys()
        self._precision = precision
        self.num_encoder_layers, self.num_layers = config.num_encoder_layers, config.num_decoder_layers
        self.num_heads, self.width, self.vocab_size = config.num_heads, config.d_model, config.tgt_vocab_size
        self.attention_width = config.num_heads * config.head_key_size
        self.is_recurrent = config.decoder_unit == "ssru"
        self._referenced: list[object] = []  # what the structures point to
        self._places: dict[
            str, tuple[int, int]
        ] = {}  # of each layer: the number of the packed one, its first output
        self._num_changeable = 0  # packed layers that adapters may change
        self._adapters: WeakKeyDictionary[Adapter, AdapterTable] = WeakKeyDictionary()
        self._tables: dict[str, Singles] = {}  # position vectors for each stack
        if config.positions == "learned":
            self._tables = {
                each: weight(f"{each}.embedding.positions.weight") for each in ("encoder", "decoder")
            }
        self._model = self._packed()

    def _packed(self) -> Model:
        """Return the model as the native library has it: HeedfulModel."""
        config, names = self._config, embedding_names(self._config)
        matrices = {name: self._pointer(self._weight(name)) for name in dict.fromkeys(names)}
        output = self._linear([names[2].removesuffix(".weight")], bias="output.bias")
        encoder = [f"encoder.layers.{i}" for i in range(config.num_encoder_layers)]
        decoder = [f"decoder.layers.{i}" for i in range(config.num_decoder_layers)]
        memory = [[f"{layer}.cross_attention.{name}" for name in ("key", "value")] for layer in decoder]
        layers: list[ctypes.Array[Any]] = [
            (Layer * len(encoder))(*map(self._layer, encoder)),
            (Layer * len(decoder))(*map(self._layer, decoder)),
            (Linear * len(memory))(*map(self._linear, memory)),
        ]
        self._referenced += layers
        return Model(
            *(config.d_model, config.d_ff, config.num_heads, self.attention_width),
            *(config.relative_max_distance, config.src_vocab_size, config.tgt_vocab_size),
            *(config.num_encoder_layers, config.num_decoder_layers),
            *(_PRECISIONS[self._precision], _ACTIVATIONS[config.activation]),
            *(config.norm == "pre", "decoder.final_norm.weight" in self._names, self.is_recurrent),
            *(config.layer_norm_eps, math.sqrt(config.d_model) if config.scale_embeddings else 1.0),
            *(matrices[name] for name in names[:2]),
            *(ctypes.addressof(each) for each in layers),
            *(self._norm("encoder.final_norm"), self._norm("decoder.final_norm")),
            *(output, matrices[names[2]]),
        )

    @staticmethod
    def why_not(config: ModelConfig, precision: Precision) -> str | None:
        """Return why the engine cannot compute such a model here in that precision; None if it can."""
        functions = native().functions
        if functions is None:
            return native().describe()
        if precision not in _PRECISIONS:
            return f"the engine has no {precision}"
        if not functions.groups[_PRECISIONS[precision]]:
            return f"{precision}: this CPU has no instructions for it ({native().describe()})"
        widths = (config.d_model, config.d_ff, config.num_heads * config.head_key_size)
        needed = {
            f"model.positions={config.positions}": config.positions in _POSITIONS,
            f"model.activation={config.activation}": config.activation in _ACTIVATIONS,
            "model.norm=both": config.norm != "both",
            "model.decoder_unit=merged": config.decoder_unit != "merged",
            "model.query_norm": not config.query_norm,
            "model.attention_cap, model.output_cap": config.attention_cap is config.output_cap is None,
            "model.embedding_norm": not config.embedding_norm,
            "fewer heads of keys than of queries": config.num_kv_heads in (None, config.num_heads),
            "keys and values of different sizes": config.head_key_size == config.head_value_size,
            f"widths that are no multiples of {_WIDTH_STEP}": not any(each % _WIDTH_STEP for each in widths),
        }
        return next((reason for reason, holds in needed.items() if not holds), None)

    def positions(self, stack: str, length: int) -> Singles:
        """Return the position vectors of a stack, (L, D): at least `length`, or all learned ones.

        Threads may share the engine.
        """
        table = self._tables.get(stack)
        if table is None or (len(table) < length and self._config.positions != "learned"):
            num_positions = max(length, 0 if table is None else 2 * len(table), FIRST_POSITIONS)
            formula = SINUSOIDS.get(self._config.positions, _zeros)
            table = formula(num_positions, self.width)
            self._tables[stack] = table
        return table

    def pick(self, ids: Ints) -> tuple[ctypes.Structure, list[NDArray[np.generic]]]:
        """Return the output layer to some ids alone, and the arrays that it points to."""
        num_out, size = len(ids) + -len(ids) % self._functions.panel, _SIZES[self._precision]
        packed: list[NDArray[np.generic]] = [np.zeros(num_out * self.width * size // 4, np.uint32)]
        packed += [np.zeros(num_out, kind) for kind in (np.float32, np.float32, np.int32)]
        self.call("pick", address_of(ids), len(ids), *map(address_of, packed))
        return Linear(self.width, num_out, *map(address_of, packed)), packed

    def adapter_table(self, adapter: Adapter) -> "AdapterTable":
        """Return an adapter as the native library reads it, as long as it is used."""
        table = self._adapters.get(adapter)
        if table is None:
            table = self._adapters[adapter] = AdapterTable(adapter, self._places, self._num_changeable)
        return table

    def call(self, name: str, *arguments: object) -> None:
        """Call a function of the native library on the model: see `native/heedful.h`.

        Raises:
            MemoryError: too little memory.
            InputError: an id outside of the vocabulary, or a position beyond the last.
        """
        status = getattr(self._functions, name)(ctypes.byref(self._model), *arguments)
        if status == _NO_MEMORY:
            raise MemoryError(f"decoding: no memory left for {name}")
        if status == _BAD_ARGUMENT:
            raise InputError(
                f"decoding: {name} was given an id outside of the vocabulary ({self._model.src_vocabulary:,} "
                f"source tokens, {self._model.tgt_vocabulary:,} target tokens) or a position beyond the last"
            )
        assert status == _OK

    def _layer(self, layer: str) -> Layer:
        """Pack a layer; its self-attention may have relative biases, of its own or of the first layer."""
        config = self._config
        owner = layer if config.relative_per_layer else layer.rpartition(".")[0] + ".0"
        biases, is_encoder = f"{owner}.self_attention.positions.weight", layer.startswith("encoder")
        by_distance = None
        if biases in self._names:
            weight, reach = self._weight(biases), config.relative_max_distance
            by_distance = self._pointer(biases_by_distance(weight, reach=reach, bidirectional=is_encoder))
        return Layer(
            *(self._linear([f"{layer}.{name}" for name in names]) for names in _PACKED),
            *(self._norm(f"{layer}.{part}_norm") for part in _SUBLAYERS),
            by_distance,
        )

    def _norm(self, name: str) -> Norm:
        if f"{name}.weight" not in self._names:
            return Norm()
        parts = ["weight", "bias"][: 1 + (f"{name}.bias" in self._names)]
        return Norm(*(self._pointer(self._weight(f"{name}.{part}")) for part in parts))

    def _linear(self, names: Sequence[str], *, bias: str | None = None) -> Linear:
        """Pack layers of the same inputs as one, in panels; names without a weight are left out."""
        names = [name for name in names if f"{name}.weight" in self._names]
        if not names:
            return Linear()
        matrices = [self._weight(f"{name}.weight") for name in names]
        matrix = np.concatenate(matrices)
        biases = [self._weight(each) for name in names if (each := bias or f"{name}.bias") in self._names]
        (num_out, num_in), panel = matrix.shape, self._functions.panel
        filled_up = num_out + -num_out % panel
        matrix = np.pad(matrix, ((0, filled_up - num_out), (0, 0)))
        shift = np.zeros(filled_up, np.float32)
        if biases:  # of the first layers; the others may have none
            shift[: sum(map(len, biases))] = np.concatenate(biases)
        scale = sums = None
        weight: NDArray[np.generic] = matrix
        if self._precision == "bf16":
            weight = _bfloat16(matrix)
        elif self._precision == "int8":
            largest = np.maximum(matrix.max(axis=1), -matrix.min(axis=1))
            scale = np.maximum(largest / np.float32(self._functions.weight_limit), np.float32(1e-30))
            with np.errstate(invalid="ignore"):  # a row with NaN has no scale
                weight = np.rint(matrix / scale[:, None]).astype(np.int8)
            sums = -128 * weight.sum(axis=1, dtype=np.int32)  # unsigned inputs have 128 added
        number = 0 if bias else self._numbered(names, list(map(len, matrices)))
        group = self._functions.groups[_PRECISIONS[self._precision]]
        packed = weight.reshape(-1, panel, num_in // group, group).transpose(0, 2, 1, 3)
        rest = (None if part is None else self._pointer(part) for part in (scale, sums))
        return Linear(num_in, filled_up, self._pointer(packed), self._pointer(shift), *rest, number)

    def _numbered(self, names: Sequence[str], sizes: Sequence[int]) -> int:
        """Return the number of layers that are packed as one, and note the first output of each."""
        self._num_changeable += 1
        for name, first in zip(names, accumulate(sizes, initial=0), strict=False):
            self._places[name] = self._num_changeable, first
        return self._num_changeable

    def _pointer(self, array: NDArray[np.generic]) -> int:
        contiguous = np.ascontiguousarray(array)
        self._referenced.append(contiguous)
        return contiguous.ctypes.data


class AdapterTable:
    """The changes of an adapter by the number of a packed layer: a HeedfulAdapter, at `address`."""

    def __init__(self, adapter: Adapter, places: Mapping[str, tuple[int, int]], count: int) -> None:
        """Point to the matrices of an adapter.

        Args:
            adapter: the adapter.
            places: of each layer the number of the packed one, and its first output there.
            count: how many packed layers there are.
        """
        ordered = sorted((places[name], change) for name, change in adapter.changes.items())
        changes = (LayerChange * len(ordered))(
            *(
                LayerChange(
                    first, change.up.shape[1], len(change.up), *(matrix.ctypes.data for matrix in change)
                )
                for (_, first), change in ordered
            )
        )
        numbers = [number for (number, _), _ in ordered]
        firsts = np.searchsorted(numbers, np.arange(1, count + 2)).astype(np.int64)
        self._referenced = [change for _, change in ordered], changes, firsts
        self._changes = LayerChanges(ctypes.addressof(changes), address_of(firsts))
        self.address = ctypes.addressof(self._changes)


def engine_precisions() -> Sequence[Precision]:
    """Return the precisions of the engine on this machine; none without the native library."""
    functions = native().functions
    return [] if functions is None else [name for name, i in _PRECISIONS.items() if functions.groups[i]]


def _bfloat16(array: Singles) -> NDArray[np.uint16]:
    """Return the bits of the nearest bfloat16 numbers, ties to even."""
    bits = array.view(np.uint32)
    rounded = (bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))) >> np.uint32(16)
    return np.where(np.isnan(array), np.uint32(0x7FC0), rounded).astype(np.uint16)


def address_of(array: NDArray[np.generic]) -> int:
    """Return the address of a contiguous array with elements; quicker than `array.ctypes`."""
    return ctypes.addressof(ctypes.c_char.from_buffer(array.data))
