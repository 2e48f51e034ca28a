"""Parts of the model that one kernel can compute at once, ours or torch's; the formula stands beside each.

The random bits of our kernels' dropout are a hash of a seed, drawn from torch's generator, and of each
element's place: nothing is stored for the backward pass, which hashes again.
"""

import math
from collections.abc import Callable
from functools import wraps
from typing import Any, TypeGuard

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from heedful.nn import kernels
from heedful.nn.dropout import Dropout

Context = Any  # what autograd gives to forward and backward, to keep things on

_RANGE = 1 << 32


def residual_norm(x: Tensor, h: Tensor, dropout: Dropout, norm: nn.Module) -> Tensor:
    """Return norm(x + dropout(h)) (3.1, 5.4), all of the same shape (B, L, D).

    The kernel gives what it returns the type of h: bfloat16 under autocast, where the norm is float32 inside.
    """
    if _has_kernel(norm, x, h):
        p = dropout.p if dropout.training else 0.0
        y: Tensor = _ResidualNorm.apply(x, h, norm.weight, norm.bias, norm.eps, p)  # type: ignore[no-untyped-call]
        return y
    return norm(x + dropout(h))  # type: ignore[no-any-return]


def _has_kernel(norm: nn.Module, x: Tensor, h: Tensor) -> TypeGuard[nn.LayerNorm]:
    """Whether `residual_norm` of these has a kernel: it reads memory as it is told to."""
    return (
        isinstance(norm, nn.LayerNorm)
        and norm.bias is not None
        and norm.normalized_shape == h.shape[-1:]
        and norm.weight.dtype == torch.float32
        and x.shape == h.shape
        and kernels.kernels_apply_to(h)
    )


def can_weigh(queries_BHTK: Tensor, keys_BHSK: Tensor, mask: Tensor, bias: Tensor | None) -> bool:
    """Whether `attention_weights` of these has a kernel: it reads a mask as `masks.py` makes them."""
    rows, _, queries, _ = queries_BHTK.shape
    return (
        bias is None
        and mask.dim() == 4
        and mask.dtype == torch.bool
        and mask.shape[0] in (1, rows)
        and mask.shape[1] == 1
        and mask.shape[2] in (1, queries)
        and mask.shape[3] == keys_BHSK.shape[2] <= kernels.MAX_WIDTH
        and keys_BHSK.shape[:2] == queries_BHTK.shape[:2]
        and kernels.kernels_apply_to(queries_BHTK)
    )


def weigh(queries_BHTK: Tensor, keys_BHSK: Tensor, mask: Tensor) -> Tensor:
    """Return what `attention.attention_weights` does: (B, H, T, S)."""
    scores_BHTS = queries_BHTK @ keys_BHSK.transpose(-2, -1)
    scale = 1.0 / math.sqrt(queries_BHTK.shape[-1])
    weights: Tensor = _MaskedSoftmax.apply(scores_BHTS, mask, scale)  # type: ignore[no-untyped-call]
    return weights


def attend_at_once(
    queries_BHTK: Tensor,
    keys_BHSK: Tensor,
    values_BHSV: Tensor,
    mask: Tensor | None,
    *,
    causal: bool,
    dropout: float,
) -> Tensor:
    """Return what `attention.attention_weights` of these, dropped out, makes of the values: (B, H, T, d_v).

    torch takes the kernel that suits device, type and mask: without a mask, causal or not, that can be
    FlashAttention (Dao et al., 2022). What kernels make of a query without a key differs, so such a query
    sees all keys here, and gets its zeros afterwards.
    """
    if mask is None:
        return F.scaled_dot_product_attention(
            queries_BHTK, keys_BHSK, values_BHSV, dropout_p=dropout, is_causal=causal
        )
    lost = ~mask.any(dim=-1, keepdim=True)
    heads_BHTV = F.scaled_dot_product_attention(
        queries_BHTK, keys_BHSK, values_BHSV, attn_mask=mask | lost, dropout_p=dropout
    )
    return heads_BHTV.masked_fill(lost, 0.0)


def added(total: Tensor, addend: Tensor) -> Tensor:
    """Add to a float32 matrix in place one that may be bfloat16; both contiguous."""
    if addend.dtype == torch.bfloat16 and kernels.kernels_apply_to(total):
        kernels.add_bfloat16(total, addend)
        return total
    return total.add_(addend)


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


class _ResidualNorm(torch.autograd.Function):
    """What is kept for the backward pass: the normalised sums and the inverse deviation of each row."""

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


class _MaskedSoftmax(torch.autograd.Function):
    """In place: the scores are nobody else's, and the weights stand where they stood."""

    @staticmethod
    def forward(ctx: Context, scores_BHTS: Tensor, mask: Tensor, scale: float) -> Tensor:
        mask = mask.contiguous()
        strides = (mask.stride(axis) if mask.shape[axis] > 1 else 0 for axis in (0, 2))
        kernels.call(
            "masked_softmax", scores_BHTS.dtype, scores_BHTS, mask, *scores_BHTS.shape, *strides, scale
        )
        ctx.mark_dirty(scores_BHTS)
        ctx.save_for_backward(scores_BHTS)
        ctx.scale = scale
        return scores_BHTS

    @staticmethod
    @differentiable_once
    def backward(ctx: Context, grad_weights: Tensor) -> tuple[Tensor | None, ...]:
        (weights,) = ctx.saved_tensors
        grad_weights = grad_weights.to(weights.dtype).contiguous()
        grad_scores = torch.empty_like(weights)
        keys = weights.shape[-1]
        sizes = weights.numel() // keys, keys
        kernels.call(
            "masked_softmax_backward", weights.dtype, grad_weights, weights, grad_scores, *sizes, ctx.scale
        )
        return grad_scores, None, None
