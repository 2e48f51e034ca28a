"""Kernels of the native library for training on a CPU, and when they can be used.

Between the matrix multiplications of a step, torch makes a pass over memory for each operation (dropout,
residual, norm; mask and softmax; the loss's softmax); a kernel makes one pass for each group. Without the
native library the same formulas run in torch; tests check that both are equal.
"""

from collections.abc import Callable
from functools import wraps
from typing import Any, Literal, Self, TypeGuard

import torch
from torch import Tensor, nn
from typing_extensions import override

from heedful.errors import InputError
from heedful.model.layers import Residual
from heedful.runtime.native import native

Context = Any  # autograd's, of a forward and a backward pass

MAX_WIDTH = 65_536  # elements of a row, WIDEST in native/training.h
_SUFFIXES = {torch.float32: "float32", torch.bfloat16: "bfloat16"}


def torch_dtype(precision: Literal["float32", "bf16", "fp16"]) -> torch.dtype:
    """Return torch's type for a precision; int8, which has scales beside its numbers, has none."""
    return {"float32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}[precision]


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
    """Call a kernel for contiguous tensors of that type, and numbers."""
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


_RANGE = 1 << 32


class FusedResidual(Residual):
    """A residual connection; in training a native kernel, if there is one, computes sum, dropout, norm."""

    def __init__(self, dropout: nn.Dropout, *, norm_first: bool, kernels: bool) -> None:
        super().__init__(dropout.p, norm_first=norm_first)
        self.dropout = dropout
        self.kernels = kernels

    @classmethod
    def like(cls, residual: Residual, *, kernels: bool) -> Self:
        """Return a fused residual with the dropout, order and mode of another."""
        fused = cls(residual.dropout, norm_first=residual.norm_first, kernels=kernels)
        return fused.train(residual.training)

    @override
    def forward(self, x: Tensor, sublayer: Callable[[Tensor], Tensor], norm: nn.Module) -> Tensor:
        if self.norm_first or not (self.kernels and self.training):
            return super().forward(x, sublayer, norm)
        return residual_norm(x, sublayer(x), self.dropout, norm)


def residual_norm(x: Tensor, h: Tensor, dropout: nn.Dropout, norm: nn.Module) -> Tensor:
    """Return norm(x + dropout(h)) (3.1, 5.4), all of the same shape (B, L, D), by a kernel if there is one.

    The kernel's result has the type of h, bfloat16 under autocast; its norm is computed in float32.
    """
    if _has_kernel(norm, x, h):
        p = dropout.p if dropout.training else 0.0
        y: Tensor = _ResidualNorm.apply(x, h, norm.weight, norm.bias, norm.eps, p)  # type: ignore[no-untyped-call]
        return y
    return norm(x + dropout(h))  # type: ignore[no-any-return]


def _has_kernel(norm: nn.Module, x: Tensor, h: Tensor) -> TypeGuard[nn.LayerNorm]:
    """Return whether there is a kernel of `residual_norm` for these."""
    return (
        isinstance(norm, nn.LayerNorm)
        and norm.bias is not None
        and norm.normalized_shape == h.shape[-1:]
        and norm.weight.dtype == torch.float32
        and x.shape == h.shape
        and kernels_apply_to(h)
    )


class _ResidualNorm(torch.autograd.Function):
    """Saves the normalised sums and the inverse deviation of each row for the backward pass."""

    @staticmethod
    def forward(
        ctx: Context,
        x: Tensor,
        h: Tensor,
        gain: Tensor,
        shift: Tensor,
        eps: float,
        p: float,
    ) -> Tensor:
        x, h = x.to(h.dtype).contiguous(), h.contiguous()
        y, normed = torch.empty_like(h), torch.empty_like(h)
        width = h.shape[-1]
        inverse = torch.empty(h.numel() // width)
        threshold = min(round(p * _RANGE), _RANGE - 1)  # p = 1 - 2**-53 leaves some elements, too
        seed = int(torch.empty((), dtype=torch.int64).random_()) if threshold else 0
        dropping = seed, threshold, _RANGE / (_RANGE - threshold)
        sizes = inverse.numel(), width
        call("residual_norm", h.dtype, x, h, gain, shift, y, normed, inverse, *sizes, eps, *dropping)
        ctx.save_for_backward(normed, inverse, gain)
        ctx.rest = *sizes, *dropping
        return y

    @staticmethod
    @differentiable_once
    def backward(ctx: Context, grad_y: Tensor) -> tuple[Tensor | None, ...]:
        normed, inverse, gain = ctx.saved_tensors
        dropped = ctx.rest[3] > 0
        grad_y = grad_y.to(normed.dtype).contiguous()
        grad_x = torch.empty_like(normed)
        grad_h = torch.empty_like(normed) if dropped else grad_x
        grad_gain, grad_shift = torch.zeros_like(gain), torch.zeros_like(gain)
        results = grad_x, grad_h if dropped else None, grad_gain, grad_shift
        call("residual_norm_backward", normed.dtype, grad_y, normed, inverse, gain, *results, *ctx.rest)
        return grad_x, grad_h, grad_gain, grad_shift, None, None
