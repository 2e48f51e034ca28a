"""The native library (`native/`), loaded once, at the best level of the instruction set that a machine has.

It holds the decoding engine and the kernels of training. A level is chosen by what the CPU can do and the
operating system saves; HEEDFUL_ISA forces a lower one, so that each can be tested and measured. Without the
library everything is computed by torch, more slowly.
"""

import ctypes
import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from heedful.errors import ConfigError

VERSION = 6  # HEEDFUL_VERSION in native/heedful.h
VARIABLE = "HEEDFUL_ISA"
BF16_VARIABLE = "HEEDFUL_BF16"
BF16_LEVELS = ("avx512_bf16", "amx", "neon_bf16")  # their CPUs multiply bfloat16 themselves

_NAMES = ("libheedful.so", "libheedful.dylib", "libheedful.dll")
_REASON_FILE = "native-library.txt"  # instead of the library, if the build found that it cannot be had

_POINTER, _INT, _INT32, _FLOAT = ctypes.c_void_p, ctypes.c_int64, ctypes.c_int32, ctypes.c_float


def call_libc(name: str, *arguments: int) -> None:
    """Call a function of the C library of Linux, such as `malloc_trim`; nothing happens without it."""
    if sys.platform == "linux" and (function := getattr(ctypes.CDLL(None), name, None)) is not None:
        function(*arguments)


class Linear(ctypes.Structure):
    """A packed linear layer: HeedfulLinear."""

    _fields_ = (
        *(("in", _INT), ("out", _INT)),
        *(("weight", _POINTER), ("bias", _POINTER), ("scale", _POINTER), ("sums", _POINTER)),
        ("number", _INT),
    )


class Norm(ctypes.Structure):
    """A layer norm: HeedfulNorm."""

    _fields_ = (("gain", _POINTER), ("shift", _POINTER))


class Layer(ctypes.Structure):
    """A layer of the encoder or the decoder: HeedfulLayer."""

    _fields_ = (
        *((name, Linear) for name in ("query_key_value", "self_output", "query", "cross_output")),
        *((name, Linear) for name in ("inner", "outer", "gate")),
        *((name, Norm) for name in ("self_norm", "cross_norm", "outer_norm")),
        ("biases", _POINTER),
    )


class Model(ctypes.Structure):
    """A model: HeedfulModel."""

    _fields_ = (
        *((name, _INT) for name in ("d_model", "d_ff", "num_heads", "attention_width", "reach")),
        *((name, _INT) for name in ("src_vocabulary", "tgt_vocabulary")),
        *((name, _INT) for name in ("num_encoder_layers", "num_decoder_layers")),
        *((name, _INT32) for name in ("precision", "activation", "norm_first", "has_final_norm")),
        ("is_recurrent", _INT32),
        *(("eps", _FLOAT), ("embedding_scale", _FLOAT)),
        *((name, _POINTER) for name in ("src_embedding", "tgt_embedding", "encoder", "decoder", "memory")),
        *(("encoder_norm", Norm), ("decoder_norm", Norm), ("output", Linear)),
        ("output_weight", _POINTER),
    )


class Past(ctypes.Structure):
    """The past of a decoder's outputs, input ids and cached keys and values: HeedfulPast."""

    _fields_ = (
        *((name, _INT) for name in ("num_outputs", "num_sources", "stride")),
        *((name, _POINTER) for name in ("sources", "starts", "memory", "cache", "adapters")),
    )


class Attention(ctypes.Structure):
    """Where attention weights go: HeedfulAttention."""

    _fields_ = (
        *(("layer", _INT), ("width", _INT)),
        *(("weights", _POINTER), ("self", _POINTER), ("cross", _POINTER)),
    )


class Shortlist(ctypes.Structure):
    """The tokens allowed in the sentences of a batch: HeedfulShortlist."""

    _fields_ = (
        *((name, _INT) for name in ("group_size", "num_sentences")),
        *((name, _POINTER) for name in ("outputs", "ids", "firsts", "columns", "starts")),
    )


class LayerChange(ctypes.Structure):
    """A low-rank change of some outputs of a linear layer: HeedfulChange."""

    _fields_ = (
        *((name, _INT) for name in ("first", "out", "rank")),
        *((name, _POINTER) for name in ("down", "up")),
    )


class LayerChanges(ctypes.Structure):
    """The changes of all layers: HeedfulAdapter."""

    _fields_ = (("changes", _POINTER), ("firsts", _POINTER))


_MODEL = ctypes.POINTER(Model)
_DROPOUT = (ctypes.c_uint64, ctypes.c_uint32, _FLOAT)  # seed, threshold, scale
_RESIDUAL_NORM = (_INT32, *[_POINTER] * 7, _INT, _INT, _FLOAT, *_DROPOUT)
_RESIDUAL_NORM_BACKWARD = (_INT32, *[_POINTER] * 8, _INT, _INT, *_DROPOUT)
_MASKED_SOFTMAX = (_INT32, _POINTER, _POINTER, *[_INT] * 6, _FLOAT)
_MASKED_SOFTMAX_BACKWARD = (_INT32, *[_POINTER] * 3, _INT, _INT, _FLOAT)
_LOSS_ROWS = (_INT32, *[_POINTER] * 4, _INT, _INT, _FLOAT)
_SIGNATURES: dict[str, tuple[Any, ...]] = {  # what each function returns, and its arguments
    "encode": (
        *(_INT32, _MODEL, _INT, _POINTER, _POINTER, _INT),
        *(_POINTER, _INT, _POINTER, ctypes.POINTER(Attention), _POINTER),
    ),
    "step": (
        *(_INT32, _MODEL, _INT, ctypes.POINTER(Past), *3 * [_POINTER], _INT),
        *(_POINTER, _INT, _POINTER, _POINTER, ctypes.POINTER(Attention)),
    ),
    "top": (
        *(_INT32, _MODEL, _INT, _POINTER, _INT, _POINTER, _POINTER),
        *(_INT, _POINTER, _INT, _INT32, _POINTER, _POINTER),
    ),
    "log_probs": (_INT32, _MODEL, _INT, _POINTER, _INT, _POINTER, _POINTER, _POINTER),
    "pick": (_INT32, _MODEL, _POINTER, _INT, _POINTER, _POINTER, _POINTER, _POINTER),
    "linear": (_INT32, ctypes.POINTER(Linear), _INT32, _INT32, _INT, _POINTER, _INT, _POINTER),
    "exponentials": (None, _POINTER, _INT),
    "residual_norm_float32": _RESIDUAL_NORM,
    "residual_norm_bfloat16": _RESIDUAL_NORM,
    "residual_norm_backward_float32": _RESIDUAL_NORM_BACKWARD,
    "residual_norm_backward_bfloat16": _RESIDUAL_NORM_BACKWARD,
    "masked_softmax_float32": _MASKED_SOFTMAX,
    "masked_softmax_bfloat16": _MASKED_SOFTMAX,
    "masked_softmax_backward_float32": _MASKED_SOFTMAX_BACKWARD,
    "masked_softmax_backward_bfloat16": _MASKED_SOFTMAX_BACKWARD,
    "loss_rows_float32": _LOSS_ROWS,
    "loss_rows_bfloat16": _LOSS_ROWS,
    "add_bfloat16": (None, _POINTER, _POINTER, _INT),
}


class Functions(ctypes.Structure):
    """The functions of a level: HeedfulFunctions in native/heedful.h says what each does."""

    _fields_ = (
        *(("panel", _INT), ("groups", _INT * 3), ("weight_limit", _INT)),
        *((name, ctypes.CFUNCTYPE(*signature)) for name, signature in _SIGNATURES.items()),
    )


_STRUCTURES = (Linear, Norm, Layer, Model, Past, Attention, Shortlist, Functions, LayerChange, LayerChanges)


@dataclass(frozen=True)
class Level:
    """A level of the instruction set that the library was compiled for.

    `why_not` says why this machine cannot run it; None: it can.
    """

    name: str
    why_not: str | None


@dataclass(frozen=True)
class Native:
    """The native library as this process uses it: the level and its functions.

    Attributes:
        level: the name of the level in use; None without the library.
        functions: the functions of that level.
        why_not: why there is no library, or no higher level; None if the best there is is in use.
        levels: all that the library has, the slowest first.
    """

    level: str | None
    functions: Functions | None
    why_not: str | None
    levels: tuple[Level, ...]

    def describe(self) -> str:
        """Say in a few words what is in use, and why nothing better."""
        if self.level is None:
            return f"no native library: {self.why_not}"
        return f"native library at level {self.level}" + (f" ({self.why_not})" if self.why_not else "")


@cache
def native() -> Native:
    """Return the library at the level in use, loaded at the first call.

    Raises:
        ConfigError: HEEDFUL_ISA names a level that does not exist or that this machine cannot run.
    """
    forced = os.environ.get(VARIABLE, "").strip().lower()
    library, levels, why_not = _load()
    if library is None:
        return Native(None, None, why_not, ())
    reasons = {level.name: level.why_not for level in levels}
    *_, best = (name for name, reason in reasons.items() if reason is None)
    if not forced:
        above = [*reasons.values()][[*reasons].index(best) + 1 :]
        return Native(best, functions_of(best), next(iter(above), None), levels)
    if forced not in reasons:
        problem = f"the native library has no such level; it has {', '.join(reasons)}"
        raise ConfigError(f"{VARIABLE}={forced}: {problem}")
    if reasons[forced] is not None:
        raise ConfigError(f"{VARIABLE}={forced}: not on this machine: {reasons[forced]}")
    note = None if forced == best else f"{VARIABLE}={forced} forces it"
    return Native(forced, functions_of(forced), note, levels)


@cache
def functions_of(level: str) -> Functions:
    """Return the functions of a level by its name; they may be called if this machine can run the level."""
    library, levels, _ = _load()
    assert library is not None
    number = [each.name for each in levels].index(level)
    functions: Functions = library.heedful_functions(number).contents
    return functions


def on_or_off(variable: str) -> str:
    """Return what a variable of the environment says: `on`, `off` or nothing."""
    chosen = os.environ.get(variable, "").strip().lower()
    if chosen not in ("", "on", "off"):
        raise ConfigError(f"{variable}={chosen}: must be on or off")
    return chosen


def cpu_has_bf16() -> bool:
    """Return whether the CPU has instructions for bfloat16 that are to be used; see `why_no_bf16`."""
    return why_no_bf16() is None


def why_no_bf16() -> str | None:
    """Return why bfloat16 would have to be emulated; None if the CPU has instructions that are to be used.

    With HEEDFUL_ISA, as on a CPU of that level. HEEDFUL_BF16, `on` or `off`, overrides both, so that either
    choice can be tested and measured on any machine.

    Raises:
        ConfigError: HEEDFUL_BF16 is something else, or HEEDFUL_ISA names a level that is not possible.
    """
    if chosen := on_or_off(BF16_VARIABLE):
        return None if chosen == "on" else f"{BF16_VARIABLE}=off forbids bf16"
    import torch  # as everything else here works without it

    ask = getattr(torch.cpu, "get_capabilities", None)  # newer than the oldest torch that is supported
    if ask is not None:
        has_instructions = any(ask().get(name) for name in ("avx512_bf16", "amx_bf16", "bf16"))
    else:
        has_instructions = any(each.name in BF16_LEVELS and each.why_not is None for each in native().levels)
    if not has_instructions:
        return "this CPU has no bf16 instructions"
    forced = os.environ.get(VARIABLE, "").strip().lower()
    level = native().level or forced
    if not level or level in BF16_LEVELS:
        return None
    return (
        f"{VARIABLE}={forced} forbids bf16" if forced else f"the native library's level {level} has no bf16"
    )


@cache
def _load() -> tuple[ctypes.CDLL | None, tuple[Level, ...], str]:
    """Return the library, checked, and its levels; or None, and why there is none."""
    candidates = (folder / name for folder in _folders() for name in _NAMES)
    path = next(filter(Path.is_file, candidates), None)
    if path is None:
        return None, (), _why_there_is_none()
    try:
        library = ctypes.CDLL(str(path))
        library.heedful_version.restype = _INT32
        if (version := library.heedful_version()) != VERSION:
            return None, (), f"{path} is of version {version} and not {VERSION}; reinstall heedful"
    except (OSError, AttributeError) as error:
        return None, (), f"{path} cannot be loaded: {error}"
    library.heedful_size.restype, library.heedful_size.argtypes = _INT, (_INT32,)
    for number, structure in enumerate(_STRUCTURES):
        if library.heedful_size(number) != ctypes.sizeof(structure):
            return None, (), f"{path} has another {structure.__name__} than this heedful; reinstall heedful"
    for name in ("heedful_level", "heedful_why_not"):
        getattr(library, name).restype, getattr(library, name).argtypes = ctypes.c_char_p, (_INT32,)
    library.heedful_functions.restype = ctypes.POINTER(Functions)
    library.heedful_functions.argtypes = (_INT32,)
    levels: list[Level] = []
    while (name := library.heedful_level(len(levels))) is not None:
        reason = library.heedful_why_not(len(levels))
        levels.append(Level(name.decode(), None if reason is None else reason.decode()))
    return library, tuple(levels), ""


def _folders() -> Iterator[Path]:
    """Where the library may be: beside this file, or where an editable installation has put it."""
    yield Path(__file__).parent.parent
    from importlib import metadata  # slow to import, and not needed if the library is beside this file

    try:
        yield Path(str(metadata.distribution("heedful").locate_file("heedful")))
    except metadata.PackageNotFoundError:
        return


def _why_there_is_none() -> str:
    for folder in _folders():
        if (folder / _REASON_FILE).is_file():
            return (folder / _REASON_FILE).read_text(encoding="utf-8").strip()
    return "heedful was installed without it; reinstall it from a wheel, or where there is a C compiler"
