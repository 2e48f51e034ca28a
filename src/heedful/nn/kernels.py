"""Compiled kernels (`kernels.c`) for training on a processor, and whether they are in use.

What surrounds the matrix products of a step (dropout, residual, norm; mask and softmax; the loss's softmax)
takes torch a pass over memory for each operation. A C compiler, where the machine has one, makes one pass of
each group (`compiling.py`). Where there is none the same formulas run in torch. `fused.py` and
`training/loss.py` have both forms; tests hold them equal.
"""

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache

import torch
from torch import Tensor

from heedful.nn.compiling import compiled

MAX_WIDTH = 65_536  # elements of a row, WIDEST in kernels.c
_SUFFIXES = {torch.float32: "float32", torch.bfloat16: "bfloat16"}

_POINTER, _INT, _FLOAT = ctypes.c_void_p, ctypes.c_int64, ctypes.c_float
_DROPOUT = (ctypes.c_uint64, ctypes.c_uint32, _FLOAT)  # seed, threshold, scale
_ARGUMENTS = {
    "residual_norm": (*[_POINTER] * 7, _INT, _INT, _FLOAT, *_DROPOUT),
    "residual_norm_backward": (*[_POINTER] * 8, _INT, _INT, *_DROPOUT),
    "masked_softmax": (_POINTER, _POINTER, *[_INT] * 6, _FLOAT),
    "masked_softmax_backward": (*[_POINTER] * 3, _INT, _INT, _FLOAT),
    "loss_rows": (*[_POINTER] * 4, _INT, _INT, _FLOAT),
}

_in_use: ContextVar[bool] = ContextVar("kernels_in_use", default=False)


@contextmanager
def using_kernels(*, wanted: bool) -> Iterator[None]:
    """Let forward passes inside the block use the kernels, where they are wanted and can be had."""
    token = _in_use.set(wanted)
    try:
        yield
    finally:
        _in_use.reset(token)


def kernels_apply_to(x: Tensor) -> bool:
    """Whether x, with its last dimension as rows, is to be computed by the kernels.

    They have one thread: where torch has more in this process, torch's own operations are used.
    """
    return (
        not torch.compiler.is_compiling()
        and _in_use.get()
        and x.device.type == "cpu"
        and x.dtype in _SUFFIXES
        and 0 < x.shape[-1] <= MAX_WIDTH
        and torch.get_num_threads() == 1
        and library() is not None
    )


def call(name: str, dtype: torch.dtype, *arguments: Tensor | float | None) -> None:
    """Call a kernel for contiguous tensors of that type; numbers are passed as they are."""
    function = getattr(library(), f"{name}_{_SUFFIXES[dtype]}")
    function(*(a.data_ptr() if isinstance(a, Tensor) else a for a in arguments))


def add_bfloat16(total: Tensor, addend: Tensor) -> None:
    """Add a contiguous bfloat16 tensor to a float32 one, in place."""
    loaded = library()
    assert loaded is not None
    loaded.add_bfloat16(total.data_ptr(), addend.data_ptr(), total.numel())


@cache
def library() -> ctypes.CDLL | None:
    """The compiled kernels; None where there is no compiler, or one whose result cannot be loaded."""
    loaded = compiled("heedful.nn", "kernels.c")
    if loaded is None:
        return None
    for name, arguments in _ARGUMENTS.items():
        for suffix in _SUFFIXES.values():
            function = getattr(loaded, f"{name}_{suffix}")
            function.argtypes, function.restype = arguments, None
    loaded.add_bfloat16.argtypes, loaded.add_bfloat16.restype = (_POINTER, _POINTER, _INT), None
    return loaded
