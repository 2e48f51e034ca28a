"""Residual connection, dropout and layer norm in one pass over memory; see `Residual` in `nn/layers.py`.

The random bits of the kernel's dropout are a hash of a seed, from torch's generator, and of each element's
index: the backward pass computes them again instead of loading a mask.
"""

from collections.abc import Callable
from typing import Self, TypeGuard

import torch
from torch import Tensor, nn

from heedful.nn.layers import Residual
from heedful.ops import kernels
from heedful.ops.kernels import Context, differentiable_once

_RANGE = 1 << 32


class FusedResidual(Residual):
    """A residual connection whose sum, dropout and norm are one kernel in training, if there is one."""

    def __init__(self, dropout: nn.Dropout, *, norm_first: bool, kernels: bool) -> None:
        super().__init__(dropout.p, norm_first=norm_first)
        self.dropout = dropout
        self.kernels = kernels

    @classmethod
    def like(cls, residual: Residual, *, kernels: bool) -> Self:
        """Return a fused residual with the dropout, order and mode of another."""
        fused = cls(residual.dropout, norm_first=residual.norm_first, kernels=kernels)
        return fused.train(residual.training)

    def forward(self, x: Tensor, sublayer: Callable[[Tensor], Tensor], norm: nn.Module) -> Tensor:
        """See `Residual`."""
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
        and kernels.kernels_apply_to(h)
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
        threshold = round(p * _RANGE)
        seed = int(torch.empty((), dtype=torch.int64).random_()) if threshold else 0
        dropping = seed, threshold, _RANGE / (_RANGE - threshold)
        sizes = inverse.numel(), width
        kernels.call("residual_norm", h.dtype, x, h, gain, shift, y, normed, inverse, *sizes, eps, *dropping)
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
        kernels.call(
            "residual_norm_backward", normed.dtype, grad_y, normed, inverse, gain, *results, *ctx.rest
        )
        return grad_x, grad_h, grad_gain, grad_shift, None, None
