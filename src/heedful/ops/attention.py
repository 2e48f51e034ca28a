"""Scaled dot-product attention by torch's fused kernels or native ones, and a recorder of attention maps.

The formulas are in `model/attention.py`.
"""

import math
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from typing import Literal, Self

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.hooks import RemovableHandle

from heedful.model.attention import MultiHeadAttention, ScaledDotProductAttention, causal_mask
from heedful.model.layers import DecoderLayer, EncoderLayer
from heedful.model.positions import AttentionPositions
from heedful.ops import kernels
from heedful.ops.changes import is_changed, is_exactly, patched_functions
from heedful.ops.kernels import Context, differentiable_once
from heedful.settings.arguments import checked

# "eager" computes the weights, then their product with the values; "sdpa" is torch's
# scaled_dot_product_attention, which does not return weights.
AttentionImplementation = Literal["eager", "sdpa"]


def sdpa_for_sentences() -> AbstractContextManager[None]:
    """Return a context in which SDPA uses the kernel that is fastest for sentences on a GPU.

    Up to 64 tokens, the kernels of cuDNN and FlashAttention take two to three times as long, because they
    compute blocks of 64 or 128, and cuDNN plans each new shape (docs/results/gpu.md).
    """
    return sdpa_kernel([SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH])


class FusedAttention(ScaledDotProductAttention):
    """The fastest attention: SDPA on a GPU, a native kernel in training on a CPU, otherwise eager.

    SDPA is `torch.nn.functional.scaled_dot_product_attention`, which chooses its kernel by device, type and
    mask; without a mask, causal or not, it can be FlashAttention (Dao et al., 2022). It takes no bias: with
    one, attention is eager. On a CPU two matrix multiplications are faster (docs/log.md).
    """

    def __init__(self, dropout: nn.Dropout, *, kernels: bool, always_sdpa: bool = False) -> None:
        """Take the dropout of another attention; `always_sdpa`: use SDPA on a CPU too."""
        super().__init__()
        self.dropout = dropout
        self.kernels = kernels
        self.always_sdpa = always_sdpa

    @classmethod
    def like(cls, attention: ScaledDotProductAttention, *, kernels: bool, always_sdpa: bool = False) -> Self:
        """Return fused attention with the dropout and mode of another module."""
        fused = cls(attention.dropout, kernels=kernels, always_sdpa=always_sdpa)
        return fused.train(attention.training)

    def forward(
        self,
        queries_BHTK: Tensor,
        keys_BHSK: Tensor,
        values_BHSV: Tensor,
        mask: Tensor | None,
        *,
        causal: bool = False,
        bias: Tensor | None = None,
    ) -> Tensor:
        """Return the weighted sums of the values, as `ScaledDotProductAttention` does."""
        heads = queries_BHTK, keys_BHSK, values_BHSV
        if self.always_sdpa or queries_BHTK.is_cuda:
            if bias is None:
                dropout = self.dropout.p if self.training else 0.0
                return sdpa(*heads, mask, causal=causal, dropout=dropout)
        elif self.kernels and self.training:
            length, num_keys = queries_BHTK.shape[2], keys_BHSK.shape[2]
            if causal and length == num_keys:
                mask, causal = causal_mask(length, device=queries_BHTK.device), False
            if mask is not None and has_weights_kernel(queries_BHTK, keys_BHSK, mask, bias):
                heads_BHTV: Tensor = (
                    self.dropout(weights_by_kernel(queries_BHTK, keys_BHSK, mask)) @ values_BHSV
                )
                return heads_BHTV
        return super().forward(*heads, mask, causal=causal, bias=bias)


@contextmanager
def attention_implementation(model: nn.Module, implementation: AttentionImplementation) -> Iterator[None]:
    """Set the attention implementation of a model inside the block; "eager" computes weights.

    Attention that is not heedful's own stays as it is.
    """
    parts = [
        part
        for part in model.modules()
        if isinstance(part, MultiHeadAttention) and is_exactly(part.attention, ScaledDotProductAttention)
    ]
    own = [part.attention for part in parts]
    for part, usual in zip(parts, own, strict=True):
        if implementation == "sdpa":
            part.attention = FusedAttention.like(usual, kernels=False, always_sdpa=True)
        else:
            part.attention = ScaledDotProductAttention().train(usual.training)
            part.attention.dropout = usual.dropout
    try:
        yield
    finally:
        for part, usual in zip(parts, own, strict=True):
            part.attention = usual.train(part.training)


def has_plain_self_attention(part: nn.Module) -> bool:
    """Return whether all modules in a part of a model are heedful's own, and no positions enter in attention.

    Then it does not matter where a token stands in a tensor, as long as the mask is right.
    """
    if patched_functions() or is_changed(part):
        return False
    return all(
        is_exactly(layer.self_attention, MultiHeadAttention)
        and type(layer.self_attention.positions) is AttentionPositions
        for layer in part.modules()
        if isinstance(layer, EncoderLayer | DecoderLayer)
    )


def sdpa(
    queries_BHTK: Tensor,
    keys_BHSK: Tensor,
    values_BHSV: Tensor,
    mask: Tensor | None,
    *,
    causal: bool,
    dropout: float,
) -> Tensor:
    """Return the weighted sums of the values, (B, H, T, d_v), as `ScaledDotProductAttention` does.

    torch's kernels differ for a query that may attend to no key, so it attends to all keys here, and its
    result is set to zero.
    """
    length, num_keys = queries_BHTK.shape[2], keys_BHSK.shape[2]
    if causal and length != num_keys:  # torch's is_causal aligns the first query with the first key
        causal = False
        if length > 1:
            mask = causal_mask(length, past=num_keys - length, device=queries_BHTK.device)
    if mask is None:
        return F.scaled_dot_product_attention(
            queries_BHTK, keys_BHSK, values_BHSV, dropout_p=dropout, is_causal=causal
        )
    fully_masked = ~mask.any(dim=-1, keepdim=True)
    heads_BHTV = F.scaled_dot_product_attention(
        queries_BHTK, keys_BHSK, values_BHSV, attn_mask=mask | fully_masked, dropout_p=dropout
    )
    return heads_BHTV.masked_fill(fully_masked, 0.0)


def has_weights_kernel(queries_BHTK: Tensor, keys_BHSK: Tensor, mask: Tensor, bias: Tensor | None) -> bool:
    """Return whether a kernel of `attention_weights` takes these; the mask must be (B or 1, 1, T or 1, S)."""
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


def weights_by_kernel(queries_BHTK: Tensor, keys_BHSK: Tensor, mask: Tensor) -> Tensor:
    """Return the weights (B, H, T, S) of `attention_weights`, by a kernel."""
    scores_BHTS = queries_BHTK @ keys_BHSK.transpose(-2, -1)
    scale = 1.0 / math.sqrt(queries_BHTK.shape[-1])
    weights: Tensor = _MaskedSoftmax.apply(scores_BHTS, mask, scale)  # type: ignore[no-untyped-call]
    return weights


class _MaskedSoftmax(torch.autograd.Function):
    """Softmax in place: the weights overwrite the scores."""

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


@dataclass(frozen=True)
class AttentionMap:
    """The weights (B, H, T, S) of one attention, named as in the weight file."""

    name: str
    weights: Tensor = field(repr=False)


@dataclass(frozen=True)
class AttentionRecorder:
    """The maps of all recorded forward passes, in the order of computation."""

    maps: list[AttentionMap] = field(default_factory=list)


@checked
@contextmanager
def record_attention(model: nn.Module) -> Iterator[AttentionRecorder]:
    """Record the attention maps of all forward passes inside the `with` block.

    Attention is eager inside the block, so on a GPU outputs may differ by rounding. An attention class that
    is not heedful's own is recorded if it inherits from `ScaledDotProductAttention` and calls its dropout.

    >>> with record_attention(model) as recorder:
    ...     logits = model(src, tgt_in)
    >>> recorder.maps[-1].name
    'decoder.layers.1.cross_attention'
    >>> recorder.maps[-1].weights.shape  # (B, H, T, S)
    torch.Size([1, 4, 2, 3])
    """
    recorder = AttentionRecorder()

    def hook_into(name: str, attention: MultiHeadAttention) -> RemovableHandle:
        def record(_: nn.Module, inputs: tuple[Tensor, ...]) -> None:
            recorder.maps.append(AttentionMap(name, inputs[0].detach().clone()))

        return attention.attention.dropout.register_forward_pre_hook(record)

    hooks = [
        hook_into(name, part)
        for name, part in model.named_modules()
        if isinstance(part, MultiHeadAttention) and isinstance(part.attention, ScaledDotProductAttention)
    ]
    try:
        with attention_implementation(model, "eager"):
            yield recorder
    finally:
        for hook in hooks:
            hook.remove()
