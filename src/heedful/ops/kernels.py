"""Kernels of the native library for training on a CPU, and where they can be used.

What surrounds the matrix multiplications of a step (dropout, residual, norm; mask and softmax; the loss's
softmax) takes torch a pass over memory for each operation; a kernel makes one pass of each group. Without the
native library the same formulas run in torch; tests hold them equal.
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
    """Whether there are kernels for x, with its last dimension as rows.

    They have one thread: where torch has more in this process, torch's own operations are used.
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
    """Call a kernel for contiguous tensors of that type; numbers are passed as they are.

    Raises:
        InputError: the kernel refuses them.
    """
    function = getattr(native().functions, f"{name}_{_SUFFIXES[dtype]}")
    status = function(*(a.data_ptr() if isinstance(a, Tensor) else a for a in arguments))
    if status:
        raise InputError(f"{name}: an id that the vocabulary does not have, or a size that no tensor has")


def add_in_place(total: Tensor, addend: Tensor) -> Tensor:
    """Add to a float32 matrix in place one that may be bfloat16, both contiguous; return the sum."""
    if addend.dtype != torch.bfloat16 or not kernels_apply_to(total):
        return total.add_(addend)
    functions = native().functions
    assert functions is not None
    functions.add_bfloat16(total.data_ptr(), addend.data_ptr(), total.numel())
    return total


def differentiable_once(backward: Callable[..., Any]) -> Callable[..., Any]:
    """Decorate the backward pass of a kernel, which has no derivative itself.

    It raises as soon as that would be asked for (`create_graph=True`). torch's `once_differentiable` raises
    later, and lets gradients pass that do not depend on others: sums of them would miss a term silently.
    """

    @wraps(backward)
    def checked(*arguments: Any) -> Any:  # noqa: ANN401
        if torch.is_grad_enabled():
            raise RuntimeError(
                "heedful's kernels and its loss are differentiable once: create_graph=True would leave out "
                "terms; take second derivatives of the plain model and smoothed_cross_entropy"
            )
        return backward(*arguments)

    return checked
