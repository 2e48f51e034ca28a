"""A trained model on a CPU, computed by the native library without torch, with weights packed for it.

A decoding step of a small model is some hundred short operations; in torch, most of its time goes to calling
them. The engine computes a whole step in one call. Several threads search several batches, each on its own,
or share the work of a single one (`native/workers.h`). It multiplies in float32, in bfloat16 (where the CPU
has instructions for it) or in int8: weights with a scale for each output, activations with one for each row,
found as they come. Every sentence is computed as if it were alone and by one thread: neither
padding, nor the other rows of a batch, nor the number of threads change a bit of it.

Models of other shapes than the paper's (see `Engine.why_not`) stay with torch.
"""

import ctypes
from collections.abc import Iterable, Sequence
from typing import cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from heedful.decoding.backend import Precision
from heedful.errors import InputError
from heedful.model import Transformer
from heedful.native import Functions, Layer, Linear, Model, Norm, Past, functions_of, native
from heedful.nn.embeddings import InputEmbedding
from heedful.nn.layers import DecoderLayer, EncoderLayer
from heedful.nn.positions import LearnedPositions

Within = tuple[int | None, int | None]  # the addresses of an EngineShortlist and of the sentence of each row
ALL: Within = (None, None)  # the whole vocabulary

_PRECISIONS = {"float32": 0, "bf16": 1, "int8": 2}
_SIZES = {"float32": 4, "bf16": 2, "int8": 1}  # bytes of a weight
_ACTIVATIONS = {"relu": 1, "gelu": 2, "swish": 3}
_TABLED = ("sinusoidal", "concatenated", "fairseq", "learned")  # positions that are added to the input
_WIDTH_STEP = 32  # widths are multiples of it: of the panels of every level, and of what it packs together
FIRST_PLACES = 64  # of an output, for which tables are made at first

_OK, _NO_MEMORY, _BAD_ARGUMENT = range(3)  # what native functions return


class Engine:
    """The weights of a model, packed; they are copies, so a model that trains on needs a new engine."""

    def __init__(self, model: Transformer, precision: Precision, *, level: str | None = None) -> None:
        """Pack a model.

        Args:
            model: on any device; one that `why_not` has nothing against.
            precision: what matrices are multiplied in.
            level: of the native library; None: the one in use.
        """
        assert self.why_not(model, precision, level=level) is None
        functions = _functions(level)
        assert functions is not None
        self._functions = functions
        config = model.config
        self.num_layers = config.num_decoder_layers
        self.width = config.d_model
        self.vocab_size = config.tgt_vocab_size
        self._precision = precision
        self._kept: list[object] = []  # what the structures point to
        self._src, self._tgt = model.encoder.embedding, model.decoder.embedding
        self._positions = {id(part): np.zeros((0, self.width), np.float32) for part in (self._src, self._tgt)}
        decoder_layers = cast("Iterable[DecoderLayer]", model.decoder.layers)
        memory = [[each.cross_attention.key, each.cross_attention.value] for each in decoder_layers]
        self._model = Model(
            *(config.d_model, config.d_ff, config.num_heads, config.src_vocab_size, config.tgt_vocab_size),
            *(config.num_encoder_layers, config.num_decoder_layers),
            *(_PRECISIONS[precision], _ACTIVATIONS[config.activation]),
            *(config.norm == "pre", isinstance(model.decoder.final_norm, nn.LayerNorm)),
            *(config.layer_norm_eps, self._tgt.scale),
            *(self._pointer(self._src.tokens.weight), self._pointer(self._tgt.tokens.weight)),
            self._array(Layer, [self._layer(layer) for layer in model.encoder.layers]),
            self._array(Layer, [self._layer(layer) for layer in model.decoder.layers]),
            self._array(Linear, [self._linear(parts) for parts in memory]),
            *(self._norm(model.encoder.final_norm), self._norm(model.decoder.final_norm)),
            *(self._linear([model.output]), self._pointer(model.output.weight)),
        )

    @staticmethod
    def why_not(model: Transformer, precision: Precision, *, level: str | None = None) -> str | None:
        """Say why this model cannot be computed here in that precision; None where it can."""
        config, functions = model.config, _functions(level)
        if functions is None:
            return native().describe()
        if precision not in _PRECISIONS:
            return f"the engine has no {precision}"
        if not functions.groups[_PRECISIONS[precision]]:
            return f"{precision}: this CPU has no instructions for it ({native().describe()})"
        linear = all(type(part) is nn.Linear for part in model.modules() if isinstance(part, nn.Linear))
        needed = {
            "layers that were adapted (LoRA) and not merged": linear,
            f"model.positions={config.positions}": config.positions in _TABLED,
            f"model.activation={config.activation}": config.activation in _ACTIVATIONS,
            f"model.norm_kind={config.norm_kind}": config.norm_kind == "layer",
            "model.gated": not config.gated,
            "model.embedding_norm": not config.embedding_norm,
            "fewer heads of keys than of queries": config.num_kv_heads in (None, config.num_heads),
            "heads that do not add up to d_model": (
                config.head_key_size == config.head_value_size
                and config.head_key_size * config.num_heads == config.d_model
            ),
            f"widths that are no multiples of {_WIDTH_STEP}": not (
                config.d_model % _WIDTH_STEP or config.d_ff % _WIDTH_STEP
            ),
            "weights that are not on the CPU": model.output.weight.device.type == "cpu",
            "weights that are not float32": model.output.weight.dtype == torch.float32,
        }
        return next((reason for reason, holds in needed.items() if not holds), None)

    def positions(self, embedding: InputEmbedding, length: int) -> NDArray[np.float32]:
        """The first position vectors (at least `length`, D) of an embedding; threads may share the engine."""
        table = self._positions[id(embedding)]
        if len(table) < length:
            wanted = max(length, 2 * len(table), FIRST_PLACES)
            if isinstance(embedding.positions, LearnedPositions):
                wanted = min(wanted, len(embedding.positions.weight))
            vectors = embedding.positions(0, wanted)
            table = vectors.detach().float().cpu().reshape(-1, self.width).contiguous().numpy()
            self._positions[id(embedding)] = table
        return table

    def encode(
        self, sources: Sequence[Sequence[int]], *, threads: int = 1
    ) -> tuple[NDArray[np.int64], list[NDArray[np.float32]]]:
        """Encode sources with special tokens: starts (B + 1,), keys and values (R, 2 D) of each layer."""
        starts = np.cumsum([0, *map(len, sources)], dtype=np.int64)
        ids = np.concatenate([np.asarray(source, dtype=np.int64) for source in sources])
        memory = [np.empty((len(ids), 2 * self.width), np.float32) for _ in range(self.num_layers)]
        table = self.positions(self._src, int(np.diff(starts).max()))
        pointers = (ctypes.c_void_p * self.num_layers)(*map(address_of, memory))
        rows = address_of(ids), address_of(starts), len(sources)
        self._call("encode", threads, *rows, address_of(table), len(table), pointers)
        return starts, memory

    def step(
        self,
        past: Past,
        ids: NDArray[np.int64],
        *,
        outputs: NDArray[np.int64],
        places: NDArray[np.int64],
        end: int,
        threads: int,
    ) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """Decode input ids of outputs, each at a position, all before `end`.

        Returns:
            The states there, (rows, D), and keys and values, (rows, layers, 2 D), to which the past points.
        """
        table = self.positions(self._tgt, end)
        kept = np.empty((len(ids), self.num_layers, 2 * self.width), np.float32)
        states = np.empty((len(ids), self.width), np.float32)
        rows = address_of(ids), address_of(outputs), address_of(places), len(ids)
        rest = address_of(table), len(table), address_of(kept), address_of(states)
        self._call("step", threads, ctypes.byref(past), *rows, *rest)
        return states, kept

    def top(
        self,
        states: NDArray[np.float32],
        count: int,
        banned: Sequence[int],
        *,
        renormalize: bool,
        threads: int,
        within: Within = ALL,
    ) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        """The best next ids of each row and their log-probabilities: see `NextTokens.top`."""
        count = min(count, self.vocab_size)
        values = np.empty((len(states), count), np.float32)
        ids = np.empty((len(states), count), np.int64)
        never = [i for i in banned if 0 <= i < self.vocab_size]
        without = (ctypes.c_int64 * len(never))(*never), len(never), renormalize
        rest = *without, address_of(values), address_of(ids)
        self._call("top", threads, address_of(states), len(states), *within, count, *rest)
        return values, ids

    def log_probs(
        self, states: NDArray[np.float32], *, threads: int = 1, within: Within = ALL
    ) -> NDArray[np.float32]:
        """The log-probabilities of all next ids, (rows, V)."""
        result = np.empty((len(states), self.vocab_size), np.float32)
        self._call("log_probs", threads, address_of(states), len(states), *within, address_of(result))
        return result

    def pick(self, ids: NDArray[np.int64]) -> tuple[ctypes.Structure, list[NDArray[np.generic]]]:
        """The output layer to some ids alone, and the arrays that it points to."""
        num_out, size = len(ids) + -len(ids) % self._functions.panel, _SIZES[self._precision]
        packed: list[NDArray[np.generic]] = [np.zeros(num_out * self.width * size // 4, np.uint32)]
        packed += [np.zeros(num_out, kind) for kind in (np.float32, np.float32, np.int32)]
        self._call("pick", address_of(ids), len(ids), *map(address_of, packed))
        return Linear(self.width, num_out, *map(address_of, packed)), packed

    def _call(self, name: str, *arguments: object) -> None:
        status = getattr(self._functions, name)(ctypes.byref(self._model), *arguments)
        if status == _NO_MEMORY:
            raise MemoryError(f"decoding: no memory left for {name}")
        if status == _BAD_ARGUMENT:
            raise InputError(
                f"decoding: {name} was given an id outside of the vocabulary ({self._model.src_vocabulary:,} "
                f"source tokens, {self._model.tgt_vocabulary:,} target tokens) or a position beyond the last"
            )
        assert status == _OK

    def _layer(self, layer: nn.Module) -> Layer:
        layer = cast("EncoderLayer | DecoderLayer", layer)  # or a wrapper, which has its parts
        attention, cross = layer.self_attention, getattr(layer, "cross_attention", None)
        return Layer(
            self._linear([attention.query, attention.key, attention.value]),
            self._linear([attention.output]),
            self._linear([cross.query]) if cross else Linear(),
            self._linear([cross.output]) if cross else Linear(),
            self._linear([layer.feed_forward.inner]),
            self._linear([layer.feed_forward.outer]),
            self._norm(layer.self_attention_norm),
            self._norm(getattr(layer, "cross_attention_norm", nn.Identity())),
            self._norm(layer.feed_forward_norm),
        )

    def _norm(self, norm: nn.Module) -> Norm:
        if not isinstance(norm, nn.LayerNorm):
            return Norm()
        return Norm(self._pointer(norm.weight), self._pointer(norm.bias))

    def _linear(self, layers: Sequence[nn.Linear]) -> Linear:
        """Pack layers of the same inputs as one: panels of outputs, in which inputs follow each other."""
        num_in, num_out = layers[0].in_features, sum(layer.out_features for layer in layers)
        panel, group = self._functions.panel, self._functions.groups[_PRECISIONS[self._precision]]
        filled_up = num_out + -num_out % panel
        weight, bias = torch.zeros(filled_up, num_in), torch.zeros(filled_up)
        torch.cat([layer.weight.detach() for layer in layers], out=weight[:num_out])
        torch.cat([_bias(layer).detach() for layer in layers], out=bias[:num_out])
        scale = sums = None
        if self._precision == "bf16":
            weight = weight.bfloat16()
        elif self._precision == "int8":
            largest = torch.maximum(weight.amax(dim=1), -weight.amin(dim=1))
            scale = (largest / self._functions.weight_limit).clamp_min(1e-30)
            weight = weight.div_(scale[:, None]).round_().to(torch.int8)
            sums = -128 * weight.sum(dim=1, dtype=torch.int32)  # unsigned inputs have 128 added
        panels = weight.view(-1, panel, num_in // group, group)
        packed = panels.transpose(1, 2)
        rest = (None if part is None else self._pointer(part) for part in (scale, sums))
        return Linear(num_in, filled_up, self._pointer(packed), self._pointer(bias), *rest)

    def _pointer(self, tensor: Tensor) -> int:
        kept = tensor.detach().cpu().contiguous()
        self._kept.append(kept)
        return kept.data_ptr()

    def _array(self, kind: type[ctypes.Structure], items: Sequence[ctypes.Structure]) -> int:
        array = (kind * len(items))(*items)
        self._kept.append(array)
        return ctypes.addressof(array)


def engine_precisions() -> list[str]:
    """The precisions that the engine multiplies in on this machine; none without the native library."""
    functions = _functions(None)
    return [] if functions is None else [name for name, i in _PRECISIONS.items() if functions.groups[i]]


def _functions(level: str | None) -> Functions | None:
    return native().functions if level is None else functions_of(level)


def _bias(layer: nn.Linear) -> Tensor:
    return layer.weight.new_zeros(layer.out_features) if layer.bias is None else layer.bias


def address_of(array: NDArray[np.generic]) -> int:
    """Where an array is, which has elements and is contiguous; quicker than `array.ctypes`."""
    return ctypes.addressof(ctypes.c_char.from_buffer(array.data))
