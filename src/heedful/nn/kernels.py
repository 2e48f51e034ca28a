"""Kernels of the native library for training on a CPU, and whether they are in use.

What surrounds the matrix multiplications of a step (dropout, residual, norm; mask and softmax; the loss's
softmax) takes torch a pass over memory for each operation; a kernel makes one pass of each group. Without the
native library the same formulas run in torch. `fused.py` and `training/loss.py` have both forms; tests hold
them equal.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import torch
from torch import Tensor

from heedful.errors import InputError
from heedful.native import native

MAX_WIDTH = 65_536  # elements of a row, WIDEST in native/training.h
_SUFFIXES = {torch.float32: "float32", torch.bfloat16: "bfloat16"}

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
        and native().functions is not None
    )


def call(name: str, dtype: torch.dtype, *arguments: Tensor | float | None) -> None:
    """Call a kernel for contiguous tensors of that type; numbers are passed as they are.

    Raises:
        InputError: the kernel refuses them.
    """
    function = getattr(native().functions, f"{name}_{_SUFFIXES[dtype]}")
    status = function(*(a.data_ptr() if isinstance(a, Tensor) else a for a in arguments))
    if status:
        raise InputError(f"{name}: an id that the vocabulary does not have, or a size that no tensor has")


def add_bfloat16(total: Tensor, addend: Tensor) -> None:
    """Add a contiguous bfloat16 tensor to a float32 one, in place."""
    functions = native().functions
    assert functions is not None
    functions.add_bfloat16(total.data_ptr(), addend.data_ptr(), total.numel())
