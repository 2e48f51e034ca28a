"""The loss (5.4): cross-entropy against a smoothed target, summed over the real target tokens.

`smoothed_cross_entropy` is the formula. `fused_linear_cross_entropy` computes the same from the decoder's
states, in chunks that stay in the CPU's cache, and the gradient in the same pass: the logits of a whole batch
(B x T x V in float32) never exist.
"""

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from heedful.ops.kernels import Context, add_in_place, differentiable_once, kernels_apply_to
from heedful.ops.kernels import call as call_kernel

_CHUNK_ROWS = 384  # their logits stay in a CPU's cache
_CHUNK_ROWS_ON_GPU = 4096
_ROWS_MULTIPLE = 64  # of every matrix multiplication here: kernels for repeated shapes are cached


class Loss(NamedTuple):
    """Scalar sums over tokens: the smoothed loss, which is minimised, and the negative log-likelihood.

    R-Drop's divergence is part of the smoothed loss. The negative log-likelihood has no gradient.
    """

    smoothed: Tensor
    nll: Tensor


def smoothed_cross_entropy(logits: Tensor, targets: Tensor, *, smoothing: float, pad_id: int) -> Loss:
    """Return the cross-entropy against q: (1 - ε) on the target, plus ε spread evenly over the vocabulary.

    Padding gets no share of ε, so every other token gets ε / (V - 1); no target is padding.

    Args:
        logits: (N, V), a row for each real target token.
        targets: (N,) ids.
        smoothing: ε, 0.1 in the paper.
        pad_id: the padding id of the target vocabulary.
    """
    log_probs = logits.log_softmax(dim=-1, dtype=torch.promote_types(logits.dtype, torch.float32))
    nll = -log_probs.gather(1, targets[:, None]).sum()
    uniform = -(log_probs.sum() - log_probs[:, pad_id].sum()) / (logits.shape[1] - 1)
    return Loss((1.0 - smoothing) * nll + smoothing * uniform, nll.detach())


def divergence(logits: Tensor) -> Tensor:
    """Return Σ KL(p‖q) + KL(q‖p) over pairs of neighbouring rows (N, V): see `fused_linear_cross_entropy`."""
    log_probs = logits.log_softmax(dim=-1, dtype=torch.promote_types(logits.dtype, torch.float32))
    log_p, log_q = log_probs[::2], log_probs[1::2]
    return ((log_p.exp() - log_q.exp()) * (log_p - log_q)).sum()


def fused_linear_cross_entropy(
    states: Tensor,
    output: nn.Linear,
    targets: Tensor,
    *,
    smoothing: float,
    pad_id: int,
    r_drop: float = 0.0,
    kernels: bool = False,
) -> Loss:
    """Return `smoothed_cross_entropy(output(states), ...)` without holding all logits.

    With `r_drop` the states come from two passes with different dropout, rows 2i and 2i + 1 of one token, and
    the smoothed loss has another term (R-Drop; Liang et al., 2021, equations 3 and 4): with p and q the
    predictions of the two passes, both cross-entropies plus α ½ (KL(p‖q) + KL(q‖p)).

    Args:
        states: (N, D), the decoder's states of the target tokens; zeros for padding, which only a GPU gets.
        output: the pre-softmax matrix (3.4).
        targets: (N,) ids.
        smoothing: ε.
        pad_id: the padding id of the target vocabulary.
        r_drop: α; 0 without R-Drop.
        kernels: use native kernels if they support these tensors.
    """
    smoothed, nll = _ProjectedCrossEntropy.apply(  # type: ignore[no-untyped-call]
        states, output.weight, output.bias, targets, _Settings(smoothing, pad_id, r_drop, kernels)
    )
    return Loss(smoothed, nll)


class _ProjectedCrossEntropy(torch.autograd.Function):
    """Forward computes the gradients too, a chunk at a time; backward only scales them.

    With z the logits of a token, w the target id and Z = log Σ exp(z), the smoothed loss is
    (1 - ε) (Z - z_w) + ε / (V - 1) Σ_v (Z - z_v), summed over all v but padding. Its gradient is
    softmax(z), minus (1 - ε) at w, minus ε / (V - 1) at every v but padding. The last term is the same for
    every token: it is taken from the sums at the end, so that a chunk is read and written once for the
    softmax.
    """

    @staticmethod
    def forward(
        ctx: Context,
        states: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        targets: Tensor,
        settings: "_Settings",
    ) -> tuple[Tensor, Tensor]:
        smoothing, pad_id, r_drop, kernels = settings
        device = states.device.type
        narrow = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else states.dtype
        wide = torch.promote_types(narrow, torch.float32)
        matrix, rows = weight.to(narrow), _pad_rows(states.to(narrow))
        shift = None if bias is None else bias.to(narrow)
        chunk_rows = _CHUNK_ROWS if device == "cpu" else _CHUNK_ROWS_ON_GPU
        num_rows, uniform = states.shape[0], smoothing / (weight.shape[0] - 1)
        is_real = (targets != pad_id)[:, None]
        num_real = num_rows if device == "cpu" else is_real.sum()
        grad_states = torch.empty_like(rows)
        _, needs_weight, needs_bias, *_ = ctx.needs_input_grad  # not all do if weights are frozen
        grad_weight: Tensor | None = None
        grad_bias = torch.zeros_like(bias, dtype=wide) if needs_bias and bias is not None else None
        sums, add = states.new_zeros(3, dtype=wide), add_in_place if kernels else Tensor.add_
        with torch.autocast(device, enabled=False):
            for start in range(0, rows.shape[0], chunk_rows):
                chunk = slice(start, start + chunk_rows)
                logits = F.linear(rows[chunk], matrix, shift)
                grad_logits, chunk_sums = _chunk_gradient(logits, targets[chunk], settings)
                sums += chunk_sums
                grad_states[chunk] = grad_logits @ matrix
                if needs_weight:
                    product = grad_logits.T @ rows[chunk]
                    grad_weight = product.to(wide) if grad_weight is None else add(grad_weight, product)
                if grad_bias is not None:
                    if device != "cpu":  # without selecting rows, padding counts too; its states are zeros
                        grad_logits = grad_logits[: len(targets[chunk])] * is_real[chunk]
                    grad_bias += grad_logits.sum(dim=0, dtype=wide)
            uniform_weights = torch.full_like(weight[:, 0], uniform, dtype=wide)
            uniform_weights[pad_id].zero_()
            state_sum, mean_row = rows.sum(dim=0, dtype=wide), uniform_weights @ matrix.to(wide)
            uniform_logits = state_sum @ mean_row
            if bias is not None:
                uniform_logits += num_real * (uniform_weights @ bias.to(wide))
            if grad_weight is not None:
                grad_weight = grad_weight.addr_(uniform_weights, state_sum, alpha=-1.0).to(weight.dtype)
            if grad_bias is not None:
                grad_bias -= num_real * uniform_weights
        nll, log_norms, divergence = sums.unbind()
        smoothed = (
            (1.0 - smoothing) * nll + smoothing * log_norms - uniform_logits + 0.5 * r_drop * divergence
        )
        ctx.save_for_backward((grad_states[:num_rows] - mean_row).to(states.dtype), grad_weight, grad_bias)
        ctx.mark_non_differentiable(nll)
        return smoothed, nll

    @staticmethod
    @differentiable_once
    def backward(ctx: Context, grad_smoothed: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
        # In place: the weight's gradient is large. A second backward pass is refused by autograd.
        scaled = (None if grad is None else grad.mul_(grad_smoothed) for grad in ctx.saved_tensors)
        return *scaled, None, None


class _Settings(NamedTuple):
    """The arguments of `fused_linear_cross_entropy` that are no tensors."""

    smoothing: float
    pad_id: int
    r_drop: float
    kernels: bool


def _chunk_gradient(logits: Tensor, targets: Tensor, settings: _Settings) -> tuple[Tensor, Tensor]:
    """Return the gradient by the logits (R, V), without its even part, and three sums over the targets (N,).

    The sums are Σ (Z - z_w), Σ Z and the divergence of R-Drop. R is N plus padding rows, which get zeros.
    """
    rows, (smoothing, pad_id, r_drop, kernels) = len(targets), settings
    if kernels and not r_drop and kernels_apply_to(logits):
        targets, of_rows = targets.to(torch.int64).contiguous(), torch.empty(2, rows)
        call_kernel(
            "loss_rows", logits.dtype, logits, targets, *of_rows, rows, logits.shape[1], 1.0 - smoothing
        )
        logits[rows:].zero_()
        return logits, F.pad(of_rows.sum(dim=1), (0, 1))
    wide = torch.promote_types(logits.dtype, torch.float32)
    probs, targets = logits.softmax(dim=-1), targets[:, None]
    nll = -probs[:rows].gather(1, targets).to(wide).clamp_min(torch.finfo(wide).tiny).log()
    log_norms = logits[:rows].gather(1, targets).to(wide) + nll  # Z = z_w - log softmax(z)_w
    divergence = _add_divergence(logits, probs, 0.5 * r_drop) if r_drop else nll.new_zeros(())
    probs[:rows].scatter_(1, targets, probs[:rows].gather(1, targets) + (smoothing - 1.0))
    probs[rows:].zero_()
    is_real = targets != pad_id
    return probs, torch.stack([(nll * is_real).sum(), (log_norms * is_real).sum(), divergence])


def _add_divergence(logits: Tensor, probs: Tensor, weight: float) -> Tensor:
    """Return Σ KL(p‖q) + KL(q‖p) over pairs of neighbouring rows; add `weight` times its gradient to probs.

    With d the difference of their logits it is Σ (p - q) d for each pair: the normalisers cancel. Its
    gradient is p (d + 1 - Σ p d) - q at the logits of p, and q (Σ q d + 1 - d) - p at the logits of q.
    """
    p, q, d = probs[::2], probs[1::2], logits[::2] - logits[1::2]
    p_d, q_d = p * d, q * d
    mean_p = p_d.sum(dim=-1, keepdim=True, dtype=torch.promote_types(d.dtype, torch.float32))
    mean_q = q_d.sum(dim=-1, keepdim=True, dtype=mean_p.dtype)
    at_p = p_d.addcmul_(p, (1.0 - mean_p).to(p.dtype)).sub_(q)
    at_q = q_d.neg_().addcmul_(q, (1.0 + mean_q).to(q.dtype)).sub_(p)
    p.add_(at_p, alpha=weight)
    q.add_(at_q, alpha=weight)
    return (mean_p - mean_q).sum()


def _pad_rows(rows: Tensor) -> Tensor:
    """Pad with rows of zeros up to the next multiple; no row at all, to the first."""
    missing = -rows.shape[0] % _ROWS_MULTIPLE if len(rows) else _ROWS_MULTIPLE
    return F.pad(rows, (0, 0, 0, missing))
