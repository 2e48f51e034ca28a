"""A trained model on a processor, without torch: `engine.c`, with weights packed for it, as a step function.

A decoding step of a small model is some hundred short operations; in torch, most of its time goes to calling
them. The engine computes a whole step in one call. Several threads search several batches, each on its own,
or share the work of a single one (`nn/sharing.h`). It multiplies in float32, in bfloat16 (where the processor
has instructions for it) or in int8 (as well): weights with a scale for each output, activations with one for
each row, found as they come. Every sentence is computed as if it were alone and by one thread: neither
padding, nor the other rows of a batch, nor the number of threads change a bit of it.

Models of other shapes than the paper's (see `Engine.why_not`) stay with torch.
"""

import ctypes
from collections.abc import Sequence
from functools import cache
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from heedful.model import Transformer
from heedful.nn.attention import MultiHeadAttention
from heedful.nn.compiling import compiled
from heedful.nn.embeddings import InputEmbedding
from heedful.nn.layers import DecoderLayer, EncoderLayer
from heedful.nn.positions import LearnedPositions

# What the products of an engine may be asked to be computed in; this one has no fp16, which is for GPUs.
EnginePrecision = Literal["float32", "bf16", "fp16", "int8"]
Within = tuple[int | None, int | None]  # the addresses of an EngineShortlist and of the sentence of each row
ALL: Within = (None, None)  # the whole vocabulary

_PRECISIONS = {"float32": 0, "bf16": 1, "int8": 2}
_ACTIVATIONS = {"relu": 1, "gelu": 2, "swish": 3}
_TABLED = ("sinusoidal", "concatenated", "fairseq", "learned")  # positions that are added to the input
_PANEL = 32  # PANEL in engine.c: outputs of a layer are filled up to a multiple, and inputs must be one
FIRST_PLACES = 64  # of an output, for which tables are made at first

_POINTER, _INT, _INT32, _FLOAT = ctypes.c_void_p, ctypes.c_int64, ctypes.c_int32, ctypes.c_float


class _Linear(ctypes.Structure):
    _fields_ = (
        *(("in", _INT), ("out", _INT)),
        *(("weight", _POINTER), ("bias", _POINTER), ("scale", _POINTER), ("sums", _POINTER)),
    )


class _Norm(ctypes.Structure):
    _fields_ = (("gain", _POINTER), ("shift", _POINTER))


class _Layer(ctypes.Structure):
    _fields_ = (
        *((name, _Linear) for name in ("query_key_value", "self_output", "query", "cross_output")),
        *((name, _Linear) for name in ("inner", "outer")),
        *((name, _Norm) for name in ("self_norm", "cross_norm", "outer_norm")),
    )


class _Model(ctypes.Structure):
    _fields_ = (
        *((name, _INT) for name in ("width", "inner", "heads", "vocabulary")),
        *((name, _INT) for name in ("num_encoder_layers", "num_decoder_layers")),
        *((name, _INT32) for name in ("precision", "activation", "norm_first", "has_final_norm")),
        *(("eps", _FLOAT), ("embedding_scale", _FLOAT)),
        *((name, _POINTER) for name in ("src_embedding", "tgt_embedding", "encoder", "decoder", "memory")),
        *(("encoder_norm", _Norm), ("decoder_norm", _Norm), ("output", _Linear)),
        ("output_weight", _POINTER),
    )


class Past(ctypes.Structure):
    """What the outputs of a step stand on: see engine.c."""

    _fields_ = (*((name, _POINTER) for name in ("sentences", "starts", "memory", "kept")), ("stride", _INT))


_MODEL = ctypes.POINTER(_Model)
_FUNCTIONS = {
    "supports": (_INT32,),
    "encode": (_MODEL, _INT, _POINTER, _POINTER, _INT, _POINTER, _POINTER),
    "step": (_MODEL, _INT, ctypes.POINTER(Past), *3 * [_POINTER], _INT, *3 * [_POINTER]),
    "top": (
        *(_MODEL, _INT, _POINTER, _INT, _POINTER, _POINTER),
        *(_INT, _POINTER, _INT, _INT32, _POINTER, _POINTER),
    ),
    "log_probs": (_MODEL, _INT, _POINTER, _INT, _POINTER, _POINTER, _POINTER),
    "pick": (_MODEL, _POINTER, _INT, _POINTER, _POINTER, _POINTER, _POINTER),
}


@cache
def _library() -> ctypes.CDLL | None:
    loaded = compiled("heedful.decoding", "engine.c")
    if loaded is not None:
        for name, arguments in _FUNCTIONS.items():
            function = getattr(loaded, name)
            function.argtypes, function.restype = arguments, _INT32
    return loaded


class Engine:
    """The weights of a model, packed; they are copies, so a model that trains on needs a new engine."""

    def __init__(self, model: Transformer, precision: EnginePrecision) -> None:
        """Pack a model.

        Args:
            model: on any device; one that `why_not` has nothing against.
            precision: what products are computed in.
        """
        assert self.why_not(model, precision) is None
        config = model.config
        self.num_layers = config.num_decoder_layers
        self.width = config.d_model
        self.vocab_size = config.tgt_vocab_size
        self._precision = precision
        self._kept: list[object] = []  # what the structures point to
        self._src, self._tgt = model.encoder.embedding, model.decoder.embedding
        self._positions = {id(part): np.zeros((0, self.width), np.float32) for part in (self._src, self._tgt)}
        decoder_layers = [layer for layer in model.decoder.layers if isinstance(layer, DecoderLayer)]
        memory = [[each.cross_attention.key, each.cross_attention.value] for each in decoder_layers]
        self._model = _Model(
            *(config.d_model, config.d_ff, config.num_heads, config.tgt_vocab_size),
            *(config.num_encoder_layers, config.num_decoder_layers),
            *(_PRECISIONS[precision], _ACTIVATIONS[config.activation]),
            *(config.norm == "pre", isinstance(model.decoder.final_norm, nn.LayerNorm)),
            *(config.layer_norm_eps, self._tgt.scale),
            *(self._pointer(self._src.tokens.weight), self._pointer(self._tgt.tokens.weight)),
            self._array(_Layer, [self._layer(layer) for layer in model.encoder.layers]),
            self._array(_Layer, [self._layer(layer) for layer in model.decoder.layers]),
            self._array(_Linear, [self._linear(parts) for parts in memory]),
            *(self._norm(model.encoder.final_norm), self._norm(model.decoder.final_norm)),
            *(self._linear([model.output]), self._pointer(model.output.weight)),
        )

    @staticmethod
    def why_not(model: Transformer, precision: EnginePrecision) -> str | None:
        """Say why this model cannot be computed here in that precision; None where it can."""
        config, library = model.config, _library()
        if library is None:
            return "no C compiler"
        if precision not in _PRECISIONS:
            return f"the engine has no {precision}"
        if not library.supports(_PRECISIONS[precision]):
            return f"this processor has no instructions for {precision}"
        linear = all(
            type(getattr(attention, name)) is nn.Linear
            for attention in model.modules()
            if isinstance(attention, MultiHeadAttention)
            for name in ("query", "key", "value", "output")
        )
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
            "widths that are no multiples of 32": not (config.d_model % _PANEL or config.d_ff % _PANEL),
            "weights that are not on the processor": model.output.weight.device.type == "cpu",
            "weights that are not float32": model.output.weight.dtype == torch.float32,
        }
        return next((reason for reason, holds in needed.items() if not holds), None)

    def positions(self, embedding: InputEmbedding, length: int) -> NDArray[np.float32]:
        """The first vectors (at least `length`, D) of a side's position table."""
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
        """Read framed sources: where each starts (B + 1,), and keys and values (R, 2 D) of each layer."""
        starts = np.cumsum([0, *map(len, sources)], dtype=np.int64)
        ids = np.concatenate([np.asarray(source, dtype=np.int64) for source in sources])
        memory = [np.empty((len(ids), 2 * self.width), np.float32) for _ in range(self.num_layers)]
        table = self.positions(self._src, int(np.diff(starts).max()))
        pointers = (_POINTER * self.num_layers)(*map(address_of, memory))
        self._call(
            "encode", threads, address_of(ids), address_of(starts), len(sources), address_of(table), pointers
        )
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
        """Feed ids to outputs, each at a place, all before `end`.

        Returns:
            The states there, (rows, D), and keys and values, (rows, layers, 2 D), to which the past points.
        """
        table = self.positions(self._tgt, end)
        assert len(table) >= end
        kept = np.empty((len(ids), self.num_layers, 2 * self.width), np.float32)
        states = np.empty((len(ids), self.width), np.float32)
        rows = address_of(ids), address_of(outputs), address_of(places), len(ids)
        rest = address_of(table), address_of(kept), address_of(states)
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
        never = [i for i in banned if i < self.vocab_size]
        rest = (_INT * len(never))(*never), len(never), renormalize, address_of(values), address_of(ids)
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
        num_out, size = len(ids) + -len(ids) % _PANEL, {"float32": 4, "bf16": 2, "int8": 1}[self._precision]
        packed: list[NDArray[np.generic]] = [np.zeros(num_out * self.width * size // 4, np.uint32)]
        packed += [np.zeros(num_out, kind) for kind in (np.float32, np.float32, np.int32)]
        self._call("pick", address_of(ids), len(ids), *map(address_of, packed))
        return _Linear(self.width, num_out, *map(address_of, packed)), packed

    def _call(self, name: str, *arguments: object) -> None:
        if not getattr(_library(), name)(ctypes.byref(self._model), *arguments):
            raise MemoryError(f"decoding: no memory left for {name}")

    def _layer(self, layer: nn.Module) -> _Layer:
        assert isinstance(layer, (EncoderLayer, DecoderLayer))
        attention, cross = layer.self_attention, getattr(layer, "cross_attention", None)
        return _Layer(
            self._linear([attention.query, attention.key, attention.value]),
            self._linear([attention.output]),
            self._linear([cross.query]) if cross else _Linear(),
            self._linear([cross.output]) if cross else _Linear(),
            self._linear([layer.feed_forward.inner]),
            self._linear([layer.feed_forward.outer]),
            self._norm(layer.self_attention_norm),
            self._norm(getattr(layer, "cross_attention_norm", nn.Identity())),
            self._norm(layer.feed_forward_norm),
        )

    def _norm(self, norm: nn.Module) -> _Norm:
        if not isinstance(norm, nn.LayerNorm):
            return _Norm()
        return _Norm(self._pointer(norm.weight), self._pointer(norm.bias))

    def _linear(self, layers: Sequence[nn.Linear]) -> _Linear:
        """Pack layers of the same inputs as one: panels of outputs, in which inputs follow each other."""
        num_in, num_out = layers[0].in_features, sum(layer.out_features for layer in layers)
        filled_up = num_out + -num_out % _PANEL
        weight, bias = torch.zeros(filled_up, num_in), torch.zeros(filled_up)
        torch.cat([layer.weight.detach() for layer in layers], out=weight[:num_out])
        torch.cat([_bias(layer).detach() for layer in layers], out=bias[:num_out])
        scale = sums = None
        if self._precision == "float32":
            panels = weight.view(-1, _PANEL, num_in, 1)
        elif self._precision == "bf16":
            panels = weight.bfloat16().view(-1, _PANEL, num_in // 2, 2)
        else:
            scale = (torch.maximum(weight.amax(dim=1), -weight.amin(dim=1)) / 127.0).clamp_min(1e-30)
            whole = weight.div_(scale[:, None]).round_().to(torch.int8)
            sums = -128 * whole.sum(dim=1, dtype=torch.int32)  # the engine's inputs have 128 added
            panels = whole.view(-1, _PANEL, num_in // 4, 4)
        packed = panels.transpose(1, 2)
        rest = (None if part is None else self._pointer(part) for part in (scale, sums))
        return _Linear(num_in, filled_up, self._pointer(packed), self._pointer(bias), *rest)

    def _pointer(self, tensor: Tensor) -> int:
        kept = tensor.detach().cpu().contiguous()
        self._kept.append(kept)
        return kept.data_ptr()

    def _array(self, kind: type[ctypes.Structure], items: Sequence[ctypes.Structure]) -> int:
        array = (kind * len(items))(*items)
        self._kept.append(array)
        return ctypes.addressof(array)


def _bias(layer: nn.Linear) -> Tensor:
    return layer.weight.new_zeros(layer.out_features) if layer.bias is None else layer.bias


def address_of(array: NDArray[np.generic]) -> int:
    """Where an array is, which has elements and is contiguous; quicker than `array.ctypes`."""
    return ctypes.addressof(ctypes.c_char.from_buffer(array.data))
