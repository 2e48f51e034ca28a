"""Kernels of the native library for training on a CPU, and when they can be used.

Between the matrix multiplications of a step, torch makes a pass over memory for each operation (dropout,
residual, norm; mask and softmax; the loss's softmax); a kernel makes one pass for each group. Without the
native library the same formulas run in torch; tests check that both are equal.
"""

from collections.abc import Callable
from functools import wraps
from typing import Any

import torch
from torch import Tensor

from heedful.errors import InputError
from heedful.native import native

Context = Any  # autograd's, of a forward and a backward pass

MAX_WIDTH = 65_536  # elements of a row, WIDEST in native/training.h
_SUFFIXES = {torch.float32: "float32", torch.bfloat16: "bfloat16"}


def kernels_apply_to(x: Tensor) -> bool:
    """Return whether there are kernels for x, with its last dimension as rows.

    They have one thread: if torch uses more in this process, torch's operations are used.
    """
    return (
        not torch.compiler.is_compiling()
        and x.device.type == "cpu"
        and x.dtype in _SUFFIXES
        and 0 < x.shape[-1] <= MAX_WIDTH
        and torch.get_num_threads() == 1
        and native().functions is not None
    )


def call(name: str, dtype: torch.dtype, *arguments: Tensor | float | None) -> None:
    """Call a kernel for contiguous tensors of that type, and numbers.

    Raises:
        InputError: the arguments are invalid.
    """
    function = getattr(native().functions, f"{name}_{_SUFFIXES[dtype]}")
    status = function(*(a.data_ptr() if isinstance(a, Tensor) else a for a in arguments))
    if status:
        raise InputError(f"{name}: an id is outside of the vocabulary, or a size is invalid")


def add_in_place(total: Tensor, addend: Tensor) -> Tensor:
    """Add a float32 or bfloat16 matrix to a float32 one in place, both contiguous; return the sum."""
    if addend.dtype != torch.bfloat16 or not kernels_apply_to(total):
        return total.add_(addend)
    functions = native().functions
    assert functions is not None
    functions.add_bfloat16(total.data_ptr(), addend.data_ptr(), total.numel())
    return total


def differentiable_once(backward: Callable[..., Any]) -> Callable[..., Any]:
    """Decorate the backward pass of a kernel, which has no derivative itself.

    It raises at once for `create_graph=True`. torch's `once_differentiable` raises later, and lets gradients
    pass that do not depend on others: sums of them would silently miss a term.
    """

    @wraps(backward)
    def checked(*arguments: Any) -> Any:  # noqa: ANN401
        if torch.is_grad_enabled():
            raise RuntimeError(
                "heedful's kernels and its loss are differentiable only once: create_graph=True would omit "
                "terms; take second derivatives of the plain model and smoothed_cross_entropy"
            )
        return backward(*arguments)

    return checked
